package server

import (
	"strings"
	"testing"
	"unicode/utf16"
)

func TestFindFold(t *testing.T) {
	for name, c := range map[string]struct {
		text, term string
		from, at   int
		ok         bool
	}{
		"start":       {"Hello", "hel", 0, 0, true},
		"later":       {"say HELLO", "hello", 0, 4, true},
		"after from":  {"aXaxa", "x", 2, 3, true},
		"absent":      {"abc", "d", 0, 0, false},
		"longer":      {"ab", "abc", 0, 0, false},
		"empty":       {"", "a", 0, 0, false},
		"umlauts":     {"größe ÄPFEL", "äpfel", 0, 8, true},
		"broken UTF8": {"\xff\xfeab", "AB", 0, 2, true},
	} {
		at, n, ok := findFold(c.text, c.term, c.from)
		if ok != c.ok || at != c.at || ok && !strings.EqualFold(c.text[at:at+n], c.term) {
			t.Errorf("%s: %d, %d, %v", name, at, n, ok)
		}
	}
}

// The match range points at the match, in units of UTF-16, wherever it was cut.
func TestSnippetRange(t *testing.T) {
	long := strings.Repeat("ä😀 ", 80)
	for _, text := range []string{"needle", "a needle b", long + "needle" + long, "x\nneedle\ny"} {
		at := strings.Index(text, "needle")
		shown, start, end := snippet(text, at, len("needle"))
		units := utf16.Encode([]rune(shown))
		if got := string(utf16.Decode(units[start:end])); got != "needle" {
			t.Errorf("%q: range %d to %d shows %q", shown, start, end, got)
		}
		if len([]rune(shown)) > 2*snippetRunes+len("needle")+2 || strings.Contains(shown, "\n") {
			t.Errorf("snippet %q", shown)
		}
	}
}

func TestFindTokens(t *testing.T) {
	for token, want := range map[string]int{"": 0, "+3": 3, "abc+0": 0} {
		if _, skip, err := splitFindToken(token); err != nil || skip != want {
			t.Errorf("%q: %d, %v", token, skip, err)
		}
	}
	for _, token := range []string{"abc", "abc+", "abc+-1", "+x"} {
		if _, _, err := splitFindToken(token); err == nil {
			t.Errorf("%q was accepted", token)
		}
	}
}
