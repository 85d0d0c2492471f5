package patch

import (
	"fmt"
	"slices"
	"strings"
)

const (
	contextLines = 3
	// maxEdits bounds the search for the shortest script; past it the changed
	// region is shown as replaced as a whole.
	maxEdits = 800
)

// span is one changed region: old[a:b] became new[c:d].
type span struct{ a, b, c, d int }

// Unified returns the difference as unified hunks without file headers; empty
// when there is none. A last line without newline is marked as git does.
func Unified(before, after string) string {
	old, niw := diffLines(before), diffLines(after)
	spans := changes(old, niw)
	var b strings.Builder
	for i := 0; i < len(spans); {
		j := i + 1
		for j < len(spans) && spans[j].a-spans[j-1].b <= 2*contextLines {
			j++
		}
		writeHunk(&b, old, niw, spans[i:j])
		i = j
	}
	return b.String()
}

// diffLines splits into lines that keep their newline.
func diffLines(s string) []string {
	if s == "" {
		return nil
	}
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func writeHunk(b *strings.Builder, old, niw []string, spans []span) {
	first, last := spans[0], spans[len(spans)-1]
	a := max(first.a-contextLines, 0)
	c := first.c - (first.a - a)
	end := min(last.b+contextLines, len(old))
	d := last.d + (end - last.b)
	fmt.Fprintf(b, "@@ -%s +%s @@\n", lineRange(a, end-a), lineRange(c, d-c))
	at := a
	for _, s := range spans {
		writeLines(b, ' ', old[at:s.a])
		writeLines(b, '-', old[s.a:s.b])
		writeLines(b, '+', niw[s.c:s.d])
		at = s.b
	}
	writeLines(b, ' ', old[at:end])
}

func lineRange(start, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return fmt.Sprintf("%d", start+1)
	}
	return fmt.Sprintf("%d,%d", start+1, n)
}

func writeLines(b *strings.Builder, mark byte, lines []string) {
	for _, l := range lines {
		b.WriteByte(mark)
		b.WriteString(l)
		if !strings.HasSuffix(l, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// changes returns the changed regions in order.
func changes(old, niw []string) []span {
	pre := 0
	for pre < len(old) && pre < len(niw) && old[pre] == niw[pre] {
		pre++
	}
	a, b := old[pre:], niw[pre:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a) == 0 && len(b) == 0 {
		return nil
	}
	spans := []span{{0, len(a), 0, len(b)}}
	if len(a) > 0 && len(b) > 0 {
		if found := shortest(a, b); found != nil {
			spans = found
		}
	}
	for i := range spans {
		s := &spans[i]
		s.a, s.b, s.c, s.d = s.a+pre, s.b+pre, s.c+pre, s.d+pre
	}
	return spans
}

// shortest finds the shortest edit script with Myers' greedy algorithm, or nil
// when it is longer than maxEdits.
func shortest(a, b []string) []span {
	limit := min(len(a)+len(b), maxEdits)
	reach := make([]int, 2*limit+3) // furthest a-index on diagonal k, at k+limit+1
	var trace [][]int
	for d := 0; d <= limit; d++ {
		trace = append(trace, slices.Clone(reach[limit-d:limit+d+3]))
		for k := -d; k <= d; k += 2 {
			i := k + limit + 1
			x := reach[i-1] + 1
			if k == -d || (k != d && reach[i-1] < reach[i+1]) {
				x = reach[i+1]
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			reach[i] = x
			if x >= len(a) && x-k >= len(b) {
				return backtrack(trace, len(a), len(b))
			}
		}
	}
	return nil
}

// backtrack follows the trace from the end and joins single edits into spans.
func backtrack(trace [][]int, x, y int) []span {
	var spans []span // from the last to the first
	for d := len(trace) - 1; d > 0; d-- {
		row := trace[d] // diagonal k is at k+d+1
		k := x - y
		down := k == -d || (k != d && row[k-1+d+1] < row[k+1+d+1])
		prev := k - 1
		if down {
			prev = k + 1
		}
		px := row[prev+d+1]
		py := px - prev
		s := span{px, px + 1, py, py}
		if down {
			s = span{px, px, py, py + 1}
		}
		if n := len(spans); n > 0 && spans[n-1].a == s.b && spans[n-1].c == s.d {
			spans[n-1].a, spans[n-1].c = s.a, s.c
		} else {
			spans = append(spans, s)
		}
		x, y = px, py
	}
	slices.Reverse(spans)
	return spans
}
