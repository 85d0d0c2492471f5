package search

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"unicode/utf8"
)

// maxIgnoreFile bounds one file of patterns.
const maxIgnoreFile = 1 << 20

// rules are the patterns of one ignore file, in the form of gitignore(5).
type rules struct {
	// base is the folder of the file, relative to the root of the search, "."
	// for the root; for a folder above it, prefix leads from there to the root.
	base, prefix string
	list         []rule
}

type rule struct {
	match  *regexp.Regexp
	negate bool
	// folders marks a pattern that matches folders only.
	folders bool
}

// readRules reads the ignore files of a folder; a later one has precedence.
func readRules(dir, base, prefix string, names ...string) *rules {
	r := &rules{base: base, prefix: prefix}
	for _, name := range names {
		r.list = append(r.list, parseRules(readIgnoreFile(filepath.Join(dir, name)))...)
	}
	if len(r.list) == 0 {
		return nil
	}
	return r
}

// readIgnoreFile reads a file that others may replace meanwhile, by a pipe that nobody writes to or by a device without
// an end: what was opened is judged. What is no ignore file has no rules.
func readIgnoreFile(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile+1))
	if err != nil || len(data) > maxIgnoreFile {
		return ""
	}
	return string(data)
}

func parseRules(text string) []rule {
	var out []rule
	text = strings.TrimPrefix(text, "\uFEFF")
	for line := range strings.SplitSeq(text, "\n") {
		if r, ok := parseRule(strings.TrimSuffix(line, "\r")); ok {
			out = append(out, r)
		}
	}
	return out
}

func parseRule(line string) (rule, bool) {
	line = trimBlanks(line)
	if line == "" || line[0] == '#' {
		return rule{}, false
	}
	var r rule
	if line[0] == '!' {
		r.negate, line = true, line[1:]
	}
	if rest, ok := strings.CutSuffix(line, "/"); ok {
		r.folders, line = true, rest
	}
	if line == "" {
		return rule{}, false
	}
	anchored := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	expr, ok := translate(line)
	if !ok {
		return rule{}, false
	}
	if !anchored {
		expr = "(?:.*/)?" + expr
	}
	re, err := regexp.Compile("(?s)^" + expr + "$")
	if err != nil {
		return rule{}, false
	}
	r.match = re
	return r, true
}

// trimBlanks removes blanks at the end that are not quoted by a backslash.
func trimBlanks(s string) string {
	for strings.HasSuffix(s, " ") {
		quotes := 0
		for i := len(s) - 2; i >= 0 && s[i] == '\\'; i-- {
			quotes++
		}
		if quotes%2 == 1 {
			break
		}
		s = s[:len(s)-1]
	}
	return s
}

// translate makes a regular expression of a pattern without leading slash.
func translate(p string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(p); {
		switch c := p[i]; {
		case strings.HasPrefix(p[i:], "**/") && (i == 0 || p[i-1] == '/'):
			b.WriteString("(?:.*/)?")
			i += 3
		case p[i:] == "**" && i > 0 && p[i-1] == '/':
			b.WriteString(".+")
			i += 2
		case c == '*':
			for i < len(p) && p[i] == '*' {
				i++
			}
			b.WriteString("[^/]*")
		case c == '?':
			b.WriteString("[^/]")
			i++
		case c == '[':
			class, n := translateClass(p[i:])
			if n == 0 {
				return "", false // such a pattern matches nothing
			}
			b.WriteString(class)
			i += n
		case c == '\\':
			if i+1 == len(p) {
				return "", false
			}
			_, n := utf8.DecodeRuneInString(p[i+1:])
			b.WriteString(regexp.QuoteMeta(p[i+1 : i+1+n]))
			i += 1 + n
		default:
			end := i + 1
			for end < len(p) && !strings.ContainsRune(`*?[\`, rune(p[end])) && p[end] != '/' {
				end++
			}
			b.WriteString(regexp.QuoteMeta(p[i:end]))
			i = end
		}
	}
	return b.String(), true
}

// translateClass translates a bracket expression and returns how long it is; 0
// for one that is not closed.
func translateClass(p string) (string, int) {
	i, negate := 1, false
	if i < len(p) && (p[i] == '!' || p[i] == '^') {
		negate = true
		i++
	}
	var set strings.Builder
	for first := true; ; first = false {
		if i >= len(p) {
			return "", 0
		}
		c := p[i]
		switch {
		case c == ']' && !first:
			if negate {
				return "[^/" + set.String() + "]", i + 1
			}
			return "[" + set.String() + "]", i + 1
		case strings.HasPrefix(p[i:], "[:"):
			end := strings.Index(p[i:], ":]")
			if end < 0 {
				return "", 0
			}
			set.WriteString(p[i : i+end+2])
			i += end + 2
			continue
		case c == '\\' && i+1 < len(p):
			_, n := utf8.DecodeRuneInString(p[i+1:])
			set.WriteString(escapeClass(p[i+1 : i+1+n]))
			i += n
		case c == '-':
			set.WriteString("-")
		default:
			_, n := utf8.DecodeRuneInString(p[i:])
			set.WriteString(escapeClass(p[i : i+n]))
			i += n - 1
		}
		i++
	}
}

// escapeClass quotes one character for a bracket expression.
func escapeClass(c string) string {
	if strings.ContainsAny(c, `\]^-[`) {
		return `\` + c
	}
	return c
}

// ignored reports what the rules say of a path relative to the root of the
// search; known is false when they say nothing.
func (r *rules) ignored(path string, dir bool) (ignored, known bool) {
	rel := path
	switch {
	case r.prefix != "":
		rel = r.prefix + "/" + path
	case r.base != ".":
		rel = strings.TrimPrefix(path, r.base+"/")
	}
	for i := len(r.list) - 1; i >= 0; i-- {
		if e := &r.list[i]; (!e.folders || dir) && e.match.MatchString(rel) {
			return !e.negate, true
		}
	}
	return false, false
}
