package patch_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/executor/patch"
)

func TestUnified(t *testing.T) {
	long := func(changed ...int) string {
		var b strings.Builder
		for i := 1; i <= 30; i++ {
			mark := ""
			for _, c := range changed {
				if c == i {
					mark = "x"
				}
			}
			fmt.Fprintf(&b, "%d%s\n", i, mark)
		}
		return b.String()
	}
	for name, c := range map[string]struct{ before, after, diff string }{
		"same":             {"a\n", "a\n", ""},
		"one line":         {"c\n", "C\n", "@@ -1 +1 @@\n-c\n+C\n"},
		"from empty":       {"", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		"to empty":         {"a\n", "", "@@ -1 +0,0 @@\n-a\n"},
		"no final newline": {"a\nb", "a\nc", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"},
		"middle":           {long(), long(15), "@@ -12,7 +12,7 @@\n 12\n 13\n 14\n-15\n+15x\n 16\n 17\n 18\n"},
		"two joined":       {long(), long(10, 16), "@@ -7,13 +7,13 @@\n 7\n 8\n 9\n-10\n+10x\n 11\n 12\n 13\n 14\n 15\n-16\n+16x\n 17\n 18\n 19\n"},
		"two apart":        {long(), long(2, 20), "@@ -1,5 +1,5 @@\n 1\n-2\n+2x\n 3\n 4\n 5\n@@ -17,7 +17,7 @@\n 17\n 18\n 19\n-20\n+20x\n 21\n 22\n 23\n"},
		"inserted":         {"a\nb\n", "a\nn\nb\n", "@@ -1,2 +1,3 @@\n a\n+n\n b\n"},
	} {
		if got := patch.Unified(c.before, c.after); got != c.diff {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.diff)
		}
	}
}

// undiff applies a unified diff in the plainest way.
func undiff(before, diff string) (string, error) {
	old := strings.SplitAfter(before, "\n")
	if old[len(old)-1] == "" {
		old = old[:len(old)-1]
	}
	var out []string
	at := 0
	lines := strings.SplitAfter(diff, "\n")
	for i, l := range lines {
		if l == "" {
			continue
		}
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], "\\") && l[0] != '@' {
			l = strings.TrimSuffix(l, "\n")
		}
		switch l[0] {
		case '@':
			var start int
			if _, err := fmt.Sscanf(l, "@@ -%d", &start); err != nil {
				return "", err
			}
			if !strings.HasPrefix(l, fmt.Sprintf("@@ -%d,0 ", start)) {
				start--
			}
			for at < start {
				out = append(out, old[at])
				at++
			}
		case '-', ' ':
			if at >= len(old) || old[at] != l[1:] {
				return "", fmt.Errorf("line %d does not match %q", at, l)
			}
			if l[0] == ' ' {
				out = append(out, old[at])
			}
			at++
		case '+':
			out = append(out, l[1:])
		}
	}
	return strings.Join(append(out, old[at:]...), ""), nil
}

func TestUnifiedRebuildsTheNewText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		text := func() string {
			var b strings.Builder
			for range r.IntN(14) {
				b.WriteString(strings.Repeat(string(rune('a'+r.IntN(3))), 1) + "\n")
			}
			s := b.String()
			if r.IntN(3) == 0 {
				s = strings.TrimSuffix(s, "\n")
			}
			return s
		}
		before, after := text(), text()
		got, err := undiff(before, patch.Unified(before, after))
		if err != nil || got != after {
			t.Fatalf("%q to %q: rebuilt %q, %v\n%s", before, after, got, err, patch.Unified(before, after))
		}
	}
}

func TestUnifiedOfLargeRewrite(t *testing.T) {
	var a, b strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&a, "old %d\n", i)
		fmt.Fprintf(&b, "new %d\n", i)
	}
	got, err := undiff(a.String(), patch.Unified(a.String(), b.String()))
	if err != nil || got != b.String() {
		t.Fatalf("rebuilt %d bytes, %v", len(got), err)
	}
}
