package tool

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// PatchInCommand finds a patch that a shell command hands to apply_patch: as a
// here-document or as the only argument, alone or behind one `cd DIR &&`. ok is
// false when the command is anything else, or when the shell would still expand
// something in the patch. workdir is the folder of the `cd`.
func PatchInCommand(cmd string) (patch, workdir string, ok bool) {
	if !strings.Contains(cmd, NameApplyPatch) && !strings.Contains(cmd, "applypatch") {
		return "", "", false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(cmd), "")
	if err != nil || len(file.Stmts) != 1 {
		return "", "", false
	}
	stmt := file.Stmts[0]
	if bin, isBin := stmt.Cmd.(*syntax.BinaryCmd); isBin {
		if bin.Op != syntax.AndStmt || !plain(stmt) || len(stmt.Redirs) > 0 {
			return "", "", false
		}
		args, isCall := literalArgs(bin.X)
		if !isCall || len(bin.X.Redirs) > 0 || len(args) != 2 || args[0] != "cd" {
			return "", "", false
		}
		workdir, stmt = args[1], bin.Y
	}
	args, isCall := literalArgs(stmt)
	if !isCall || len(args) == 0 || (args[0] != NameApplyPatch && args[0] != "applypatch") {
		return "", "", false
	}
	switch {
	case len(args) == 2 && len(stmt.Redirs) == 0:
		return args[1], workdir, true
	case len(args) == 1 && len(stmt.Redirs) == 1:
		r := stmt.Redirs[0]
		if (r.Op != syntax.Hdoc && r.Op != syntax.DashHdoc) || r.Hdoc == nil || r.N != nil {
			return "", "", false
		}
		body, literal := literalWord(r.Hdoc, true)
		if !literal {
			return "", "", false
		}
		if !quoted(r.Word) {
			body = unescape(body, "\\$`\n")
		}
		if r.Op == syntax.DashHdoc {
			body = untab(body)
		}
		return body, workdir, true
	}
	return "", "", false
}

func plain(s *syntax.Stmt) bool { return !s.Background && !s.Negated && !s.Coprocess }

// literalArgs returns the words of a plain command without assignments.
func literalArgs(s *syntax.Stmt) ([]string, bool) {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || !plain(s) || len(call.Assigns) > 0 {
		return nil, false
	}
	args := make([]string, 0, len(call.Args))
	for _, w := range call.Args {
		text, literal := literalWord(w, false)
		if !literal {
			return nil, false
		}
		args = append(args, text)
	}
	return args, true
}

// quoted reports whether the end word of a here-document has quotes, so that the
// shell leaves its body alone.
func quoted(w *syntax.Word) bool {
	for _, p := range w.Parts {
		if lit, ok := p.(*syntax.Lit); !ok || strings.Contains(lit.Value, `\`) {
			return true
		}
	}
	return false
}

// literalWord is the text of a word in which the shell expands nothing. body is
// true for the body of a here-document, where unquoted text has no meaning.
func literalWord(w *syntax.Word, body bool) (string, bool) {
	var b strings.Builder
	for _, p := range w.Parts {
		switch x := p.(type) {
		case *syntax.Lit:
			if !body && strings.ContainsAny(x.Value, "\\*?[{~") {
				return "", false
			}
			b.WriteString(x.Value)
		case *syntax.SglQuoted:
			if x.Dollar {
				return "", false
			}
			b.WriteString(x.Value)
		case *syntax.DblQuoted:
			for _, q := range x.Parts {
				lit, ok := q.(*syntax.Lit)
				if !ok {
					return "", false
				}
				b.WriteString(unescape(lit.Value, "\\\"$`\n"))
			}
		default:
			return "", false
		}
	}
	return b.String(), true
}

// unescape removes the backslashes in front of the given characters, as the shell
// does; one in front of a line end joins the lines.
func unescape(s, special string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte(special, s[i+1]) >= 0 {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// untab removes the leading tabs of a <<- here-document.
func untab(s string) string {
	lines := strings.SplitAfter(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimLeft(l, "\t")
	}
	return strings.Join(lines, "")
}
