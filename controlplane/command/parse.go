package command

import (
	"errors"
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	// maxCommand bounds what is parsed; more counts as unparsable.
	maxCommand = 256 << 10
	// maxDepth bounds shells within shells.
	maxDepth = 4
	// opaque stands for an argument that is known only at run time.
	opaque = "\x00"
)

var shells = map[string]bool{"sh": true, "bash": true, "zsh": true, "dash": true, "ksh": true}

// call is one simple command.
type call struct {
	args []string
	// text is the command as it was written.
	text string
	// piped is true when it reads from another command.
	piped bool
	// depth is the depth of the shell that runs it.
	depth int
}

// line is a parsed command line.
type line struct {
	err error
	// calls are all simple commands, those in substitutions and functions too.
	calls []call
	// plain is true when the line is nothing but literal simple commands joined
	// by &&, ||, ; and pipes: no redirection to files, no substitution, no
	// assignment, nothing in the background.
	plain bool
}

func parse(cmd string) *line {
	l := &line{plain: true}
	l.add(cmd, 0)
	return l
}

func (l *line) add(cmd string, depth int) {
	if len(cmd) > maxCommand {
		l.err = errors.New("it is too long")
		return
	}
	if depth > maxDepth {
		l.plain = false
		return
	}
	file, err := parseFile(cmd)
	if err != nil {
		l.err = errors.New("syntax error")
		var pe syntax.ParseError
		if errors.As(err, &pe) {
			l.err = errors.New(pe.Text)
		}
		return
	}
	for _, s := range file.Stmts {
		if !plainStmt(s) {
			l.plain = false
		}
	}
	piped := map[*syntax.Stmt]bool{}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch x := n.(type) {
		case *syntax.BinaryCmd:
			if x.Op == syntax.Pipe || x.Op == syntax.PipeAll {
				markPiped(x.Y, piped)
			}
		case *syntax.Stmt:
			if c, ok := x.Cmd.(*syntax.CallExpr); ok && len(c.Args) > 0 {
				l.addCall(cmd, c, piped[x], depth)
			}
		}
		return true
	})
}

func markPiped(s *syntax.Stmt, piped map[*syntax.Stmt]bool) {
	piped[s] = true
	if b, ok := s.Cmd.(*syntax.BinaryCmd); ok {
		markPiped(b.X, piped)
	}
}

func (l *line) addCall(cmd string, c *syntax.CallExpr, piped bool, depth int) {
	args := make([]string, len(c.Args))
	for i, w := range c.Args {
		text, ok := literal(w)
		if !ok {
			text = opaque
		}
		args[i] = text
	}
	start, end := int(c.Pos().Offset()), int(c.End().Offset())
	text := ""
	if start >= 0 && start <= end && end <= len(cmd) {
		text = cmd[start:end]
	}
	if script, ok := shellScript(args); ok {
		l.add(script, depth+1)
		return
	}
	l.calls = append(l.calls, call{args: args, text: text, piped: piped, depth: depth})
}

// shellScript returns the script of `bash -c SCRIPT` and `eval SCRIPT`.
func shellScript(args []string) (string, bool) {
	if args[0] == "eval" && len(args) == 2 && args[1] != opaque {
		return args[1], true
	}
	if !shells[base(args[0])] {
		return "", false
	}
	for i := 1; i+1 < len(args); i++ {
		switch a := args[i]; {
		case isShortWith(a, 'c'):
			return args[i+1], args[i+1] != opaque
		case isShortWith(a, 'o') || isShortWith(a, 'O'):
			i++
		case !strings.HasPrefix(a, "-"):
			return "", false
		}
	}
	return "", false
}

func parseFile(cmd string) (*syntax.File, error) {
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(cmd), "")
	if err == nil {
		return f, nil
	}
	if f, perr := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(cmd), ""); perr == nil {
		return f, nil
	}
	return nil, err
}

// plainStmt reports whether a statement is made of literal simple commands only.
func plainStmt(s *syntax.Stmt) bool {
	if s.Background || s.Negated || s.Coprocess {
		return false
	}
	for _, r := range s.Redirs {
		if !harmless(r) {
			return false
		}
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Assigns) > 0 || len(c.Args) == 0 {
			return false
		}
		for _, w := range c.Args {
			if _, ok := literal(w); !ok {
				return false
			}
		}
		return true
	case *syntax.BinaryCmd:
		return plainStmt(c.X) && plainStmt(c.Y)
	}
	return false
}

// harmless reports whether a redirection touches no file: 2>&1, >/dev/null.
func harmless(r *syntax.Redirect) bool {
	if r.Word == nil {
		return false
	}
	target, ok := literal(r.Word)
	if !ok {
		return false
	}
	switch r.Op {
	case syntax.DplOut:
		return target == "1" || target == "2"
	case syntax.RdrOut, syntax.AppOut, syntax.RdrAll, syntax.AppAll, syntax.RdrIn:
		return target == "/dev/null"
	}
	return false
}

// literal is the text of a word in which the shell expands nothing.
func literal(w *syntax.Word) (string, bool) {
	var b strings.Builder
	for i, p := range w.Parts {
		switch x := p.(type) {
		case *syntax.Lit:
			if i == 0 && strings.HasPrefix(x.Value, "~") || !unescapeBare(&b, x.Value) {
				return "", false
			}
		case *syntax.SglQuoted:
			if x.Dollar {
				return "", false
			}
			b.WriteString(x.Value)
		case *syntax.DblQuoted:
			if x.Dollar {
				return "", false
			}
			for _, q := range x.Parts {
				lit, ok := q.(*syntax.Lit)
				if !ok {
					return "", false
				}
				unescapeQuoted(&b, lit.Value)
			}
		default:
			return "", false
		}
	}
	return b.String(), true
}

// unescapeBare writes unquoted text; false when it holds a pattern.
func unescapeBare(b *strings.Builder, s string) bool {
	if strings.Contains(s, "{") && (strings.Contains(s, ",") || strings.Contains(s, "..")) {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '*', '?', '[':
			return false
		case '\\':
			if i++; i < len(s) && s[i] != '\n' {
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(s[i])
		}
	}
	return true
}

// unescapeQuoted writes text from within double quotes.
func unescapeQuoted(b *strings.Builder, s string) {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("\\\"$`\n", s[i+1]) >= 0 {
			if i++; s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
}

func base(name string) string { return path.Base(name) }
