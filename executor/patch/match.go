package patch

import (
	"strings"
	"unicode/utf8"
)

// strictness is how lines of the patch are compared with lines of the file. The
// strictest one that finds a place wins.
type strictness uint8

const (
	exact strictness = iota
	trailingSpace
	typography
	strictnesses
)

// fold brings a line to the form that is compared.
func (s strictness) fold(line string) string {
	line = strings.TrimSuffix(line, "\r")
	if s == exact {
		return line
	}
	if s == typography {
		line = strings.Map(plainRune, line)
	}
	return strings.TrimRight(line, " \t\r\v\f")
}

// plainRune replaces punctuation and spaces that models swap for one another.
func plainRune(r rune) rune {
	switch {
	case r >= 0x2010 && r <= 0x2015, r == 0x2212:
		return '-'
	case r >= 0x2018 && r <= 0x201b:
		return '\''
	case r >= 0x201c && r <= 0x201f:
		return '"'
	case r == 0x00a0, r >= 0x2002 && r <= 0x200a, r == 0x202f, r == 0x205f, r == 0x3000:
		return ' '
	}
	return r
}

// equal compares a line of the file with one of the patch. A patch is UTF-8; in
// a file that is not, a line may have been shown to its author as Latin-1 or
// with replacement characters.
func (s strictness) equal(file, want string) bool {
	want = s.fold(want)
	if s.fold(file) == want {
		return true
	}
	if utf8.ValidString(file) {
		return false
	}
	return s.fold(fromLatin1(file)) == want || s.fold(replaceInvalid(file)) == want
}

// replaceInvalid puts one U+FFFD in the place of each invalid byte.
func replaceInvalid(s string) string { return string([]rune(s)) }

func fromLatin1(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

// toLatin1 is the inverse of fromLatin1 where one exists.
func toLatin1(s string) (string, bool) {
	var b strings.Builder
	for _, r := range s {
		if r > 0xff {
			return "", false
		}
		b.WriteByte(byte(r))
	}
	return b.String(), true
}

// find returns where want stands in lines at or after from, or -1. With atEnd
// the end of the file is tried first.
func find(lines, want []string, from int, atEnd bool) int {
	last := len(lines) - len(want)
	if last < from {
		return -1
	}
	for s := exact; s < strictnesses; s++ {
		if atEnd && matches(lines[last:], want, s) {
			return last
		}
		for i := from; i <= last; i++ {
			if matches(lines[i:], want, s) {
				return i
			}
		}
	}
	return -1
}

func matches(lines, want []string, s strictness) bool {
	for i, w := range want {
		if !s.equal(lines[i], w) {
			return false
		}
	}
	return true
}

// findHeader returns the line after the one a header names, or -1. Headers are
// written without their indentation.
func findHeader(lines []string, header string, from int) int {
	for s := exact; s < strictnesses; s++ {
		want := strings.TrimSpace(s.fold(header))
		for i := from; i < len(lines); i++ {
			if strings.TrimSpace(s.fold(lines[i])) == want {
				return i + 1
			}
		}
	}
	return -1
}
