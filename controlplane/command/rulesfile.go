package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxAlternatives bounds how many rules one statement may stand for.
const maxAlternatives = 256

// parseRules reads statements such as
//
//	prefix_rule(pattern=["git", ["status", "log"]], decision="allow")
//
// A statement may span lines; # begins a comment. After a mistake reading goes on
// at the next line that begins with a name.
func parseRules(src string) ([]Rule, []Warning) {
	var rules []Rule
	var warnings []Warning
	s := &scanner{src: src, line: 1}
	for {
		s.space()
		if s.pos >= len(s.src) {
			return rules, warnings
		}
		line := s.line
		got, err := s.statement()
		if err != nil {
			warnings = append(warnings, Warning{Line: line, Text: err.Error()})
			s.recover()
			continue
		}
		rules = append(rules, got...)
	}
}

type scanner struct {
	src  string
	pos  int
	line int
}

// space skips blanks, line ends and comments.
func (s *scanner) space() {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '\n':
			s.line++
			s.pos++
		case c == ' ' || c == '\t' || c == '\r' || c == ';':
			s.pos++
		case c == '#':
			for s.pos < len(s.src) && s.src[s.pos] != '\n' {
				s.pos++
			}
		default:
			return
		}
	}
}

// recover moves to the next line that may begin a statement.
func (s *scanner) recover() {
	for s.pos < len(s.src) {
		if s.src[s.pos] == '\n' {
			s.line++
			if next := s.pos + 1; next < len(s.src) && (isName(s.src[next]) || s.src[next] == '#') {
				s.pos = next
				return
			}
		}
		s.pos++
	}
}

func isName(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func (s *scanner) name() string {
	start := s.pos
	for s.pos < len(s.src) && isName(s.src[s.pos]) {
		s.pos++
	}
	return s.src[start:s.pos]
}

func (s *scanner) take(c byte) bool {
	s.space()
	if s.pos < len(s.src) && s.src[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) statement() ([]Rule, error) {
	name := s.name()
	if name != "prefix_rule" {
		if name == "" {
			return nil, errors.New("expected prefix_rule(...)")
		}
		return nil, fmt.Errorf("%q is not known; only prefix_rule(...) is", name)
	}
	if !s.take('(') {
		return nil, errors.New("expected ( after prefix_rule")
	}
	args := map[string]any{}
	for !s.take(')') {
		s.space()
		key := s.name()
		if key == "" || !s.take('=') {
			return nil, errors.New("expected name=value in prefix_rule(...)")
		}
		v, err := s.value(0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		args[key] = v
		if !s.take(',') {
			if !s.take(')') {
				return nil, errors.New("expected , or ) in prefix_rule(...)")
			}
			break
		}
	}
	return buildRules(args)
}

// value reads a text or a list.
func (s *scanner) value(depth int) (any, error) {
	s.space()
	if s.pos >= len(s.src) {
		return nil, errors.New("a value is missing")
	}
	switch s.src[s.pos] {
	case '"', '\'':
		return s.text()
	case '[':
		if depth > 2 {
			return nil, errors.New("lists are nested too deeply")
		}
		s.pos++
		list := []any{}
		for !s.take(']') {
			v, err := s.value(depth + 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
			if !s.take(',') {
				if !s.take(']') {
					return nil, errors.New("expected , or ] in a list")
				}
				break
			}
		}
		return list, nil
	}
	return nil, errors.New("expected a text in quotes or a list")
}

func (s *scanner) text() (string, error) {
	q := s.src[s.pos]
	s.pos++
	var b strings.Builder
	for s.pos < len(s.src) && s.src[s.pos] != '\n' {
		if s.src[s.pos] == q {
			s.pos++
			return b.String(), nil
		}
		r, multibyte, tail, err := strconv.UnquoteChar(s.src[s.pos:], q)
		if err != nil {
			return "", errors.New("a text has a broken escape")
		}
		switch {
		case r == utf8.RuneError && len(s.src)-s.pos-len(tail) == 1:
			b.WriteByte(s.src[s.pos])
		case multibyte:
			b.WriteRune(r)
		default:
			b.WriteByte(byte(r))
		}
		s.pos = len(s.src) - len(tail)
	}
	return "", errors.New("a text is not closed")
}

func quoteString(s string) string { return strconv.Quote(s) }

func buildRules(args map[string]any) ([]Rule, error) {
	r := Rule{Decision: Allow}
	switch d := args["decision"]; d {
	case nil, "allow":
	case "prompt":
		r.Decision = Prompt
	case "forbid", "forbidden":
		r.Decision = Forbid
	default:
		return nil, fmt.Errorf("decision %q is not one of allow, prompt, forbid", fmt.Sprint(d))
	}
	r.Justification, _ = args["justification"].(string)
	list, ok := args["pattern"].([]any)
	if !ok || len(list) == 0 {
		return nil, errors.New("pattern must be a list of at least one text")
	}
	patterns := [][]string{nil}
	for _, e := range list {
		words, err := alternatives(e)
		if err != nil {
			return nil, err
		}
		var next [][]string
		for _, p := range patterns {
			for _, w := range words {
				next = append(next, append(append([]string(nil), p...), w))
			}
		}
		if patterns = next; len(patterns) > maxAlternatives {
			return nil, fmt.Errorf("the pattern stands for more than %d prefixes", maxAlternatives)
		}
	}
	rules := make([]Rule, 0, len(patterns))
	for _, p := range patterns {
		one := r
		one.Pattern = p
		rules = append(rules, one)
	}
	return rules, nil
}

func alternatives(e any) ([]string, error) {
	switch x := e.(type) {
	case string:
		return []string{x}, nil
	case []any:
		var words []string
		for _, w := range x {
			s, ok := w.(string)
			if !ok {
				return nil, errors.New("an alternative in a pattern must be a text")
			}
			words = append(words, s)
		}
		if len(words) > 0 {
			return words, nil
		}
	}
	return nil, errors.New("a pattern may hold texts and lists of texts only")
}
