// Package gitconf reads git's configuration files without running git and tells which entries could make git run
// a program or look elsewhere. It is strict: what it does not know, and what it cannot read, is not harmless.
package gitconf

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Entry is one variable. Section and Key are in lower case.
type Entry struct {
	Section, Sub, Key, Value string
	// NoValue: the key stood alone, which git reads as true.
	NoValue    bool
	start, end int // bytes of the file
}

// Name is section.sub.key.
func (e Entry) Name() string {
	if e.Sub != "" {
		return e.Section + "." + e.Sub + "." + e.Key
	}
	return e.Section + "." + e.Key
}

// String is name=value, with which entries are told apart.
func (e Entry) String() string { return e.Name() + "=" + e.Value }

// MaxBytes is the largest file that Parse reads.
const MaxBytes = 1 << 20

type parser struct {
	b            []byte
	at           int
	section, sub string
	out          []Entry
}

// Parse returns the entries of a file in their order.
func Parse(b []byte) ([]Entry, error) {
	if len(b) > MaxBytes {
		return nil, errors.New("git configuration is too large")
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return nil, errors.New("git configuration holds a zero byte")
	}
	p := &parser{b: b}
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		p.at = 3
	}
	for {
		switch c := p.peek(); {
		case c == 0:
			return p.out, nil
		case space(c) || c == '\n':
			p.at++
		case c == '#' || c == ';':
			p.skipLine()
		case c == '[':
			if err := p.header(); err != nil {
				return nil, err
			}
		case letter(c):
			if err := p.entry(); err != nil {
				return nil, err
			}
		default:
			return nil, p.bad("unexpected character")
		}
	}
}

func (p *parser) bad(what string) error {
	return fmt.Errorf("git configuration, line %d: %s", 1+bytes.Count(p.b[:min(p.at, len(p.b))], []byte("\n")), what)
}

// peek returns the next byte, 0 at the end.
func (p *parser) peek() byte {
	if p.at >= len(p.b) {
		return 0
	}
	return p.b[p.at]
}

func (p *parser) skipLine() {
	for c := p.peek(); c != 0 && c != '\n'; c = p.peek() {
		p.at++
	}
}

func space(c byte) bool  { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' }
func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// header reads [section], [section "sub"] or the old [section.sub].
func (p *parser) header() error {
	p.at++
	from := p.at
	for c := p.peek(); letter(c) || digit(c) || c == '-' || c == '.'; c = p.peek() {
		p.at++
	}
	name := strings.ToLower(string(p.b[from:p.at]))
	p.section, p.sub, _ = strings.Cut(name, ".")
	if p.section == "" {
		return p.bad("section without a name")
	}
	if space(p.peek()) {
		for space(p.peek()) {
			p.at++
		}
		if p.peek() != '"' {
			return p.bad("malformed section")
		}
		p.at++
		var sub []byte
		for c := p.peek(); c != '"'; c = p.peek() {
			if c == '\\' {
				p.at++
				c = p.peek()
			}
			if c == 0 || c == '\n' {
				return p.bad("section does not end")
			}
			sub = append(sub, c)
			p.at++
		}
		p.at++
		if p.sub != "" {
			p.sub += "."
		}
		p.sub += string(sub)
	}
	if p.peek() != ']' {
		return p.bad("section does not end")
	}
	p.at++
	return nil
}

func (p *parser) entry() error {
	if p.section == "" {
		return p.bad("entry before any section")
	}
	e := Entry{Section: p.section, Sub: p.sub, start: p.at}
	for c := p.peek(); letter(c) || digit(c) || c == '-'; c = p.peek() {
		p.at++
	}
	e.Key = strings.ToLower(string(p.b[e.start:p.at]))
	for space(p.peek()) {
		p.at++
	}
	switch p.peek() {
	case 0, '\n', '#', ';':
		e.NoValue = true
	case '=':
		p.at++
		v, err := p.value()
		if err != nil {
			return err
		}
		e.Value = v
	default:
		return p.bad("entry without a value")
	}
	e.end = p.at
	p.out = append(p.out, e)
	return nil
}

// value reads to the end of the line, or further after a backslash.
func (p *parser) value() (string, error) {
	var v, blank []byte
	quoted := false
	for {
		c := p.peek()
		switch {
		case c == 0 || c == '\n':
			if quoted {
				return "", p.bad("quote does not end")
			}
			return string(v), nil
		case !quoted && (c == '#' || c == ';'):
			p.skipLine()
			return string(v), nil
		case c == '"':
			quoted = !quoted
		case !quoted && space(c):
			if len(v) > 0 {
				blank = append(blank, c)
			}
			p.at++
			continue
		case c == '\\':
			p.at++
			esc := p.peek()
			if esc == '\r' && p.at+1 < len(p.b) && p.b[p.at+1] == '\n' {
				p.at++
				esc = '\n'
			}
			if esc == '\n' {
				p.at++
				continue
			}
			i := strings.IndexByte(`tbn\"`, esc)
			if esc == 0 || i < 0 {
				return "", p.bad("unknown escape")
			}
			v = append(append(v, blank...), "\t\b\n\\\""[i])
			blank = blank[:0]
		default:
			v = append(append(v, blank...), c)
			blank = blank[:0]
		}
		p.at++
	}
}

// Without returns the file without the entries that drop names, and how many those were. The result is checked
// to be read as exactly the rest.
func Without(b []byte, drop func(Entry) bool) ([]byte, int, error) {
	all, err := Parse(b)
	if err != nil {
		return nil, 0, err
	}
	var out []byte
	var rest []Entry
	at := 0
	for _, e := range all {
		if !drop(e) {
			rest = append(rest, e)
			continue
		}
		out = append(out, b[at:e.start]...)
		at = e.end
	}
	out = append(out, b[at:]...)
	again, err := Parse(out)
	if err == nil && len(again) != len(rest) {
		err = errors.New("git configuration cannot be taken apart")
	}
	for i := range again {
		if err == nil && again[i].String() != rest[i].String() {
			err = errors.New("git configuration cannot be taken apart")
		}
	}
	return out, len(all) - len(rest), err
}
