package agent

import (
	"fmt"
	"strings"
)

// maxEdits bounds the search for a shortest edit; past it the differing middle
// is shown as removed and added whole.
const maxEdits = 2000

// edit is one line of an edit script: ' ', '-' or '+'.
type edit struct {
	op   byte
	line string
}

// unified returns the hunks that turn a into b, with three lines of context.
func unified(a, b []string) string {
	edits := editScript(a, b)
	var out strings.Builder
	oldLine, newLine := 1, 1
	for i := 0; i < len(edits); {
		if edits[i].op == ' ' {
			oldLine, newLine, i = oldLine+1, newLine+1, i+1
			continue
		}
		from := i
		lead := 0
		for from > 0 && lead < contextLen && edits[from-1].op == ' ' {
			from, lead = from-1, lead+1
		}
		to := hunkEnd(edits, i)
		oldLine, newLine = writeHunk(&out, edits[from:to], oldLine-lead, newLine-lead)
		i = to
	}
	return out.String()
}

// hunkEnd finds where the hunk around the change at i ends: after the trailing
// context, unless another change begins within twice the context.
func hunkEnd(edits []edit, i int) int {
	end, same := i, 0
	for j := i; j < len(edits); j++ {
		if edits[j].op != ' ' {
			end, same = j+1, 0
			continue
		}
		if same++; same > 2*contextLen {
			break
		}
	}
	for n := 0; n < contextLen && end < len(edits) && edits[end].op == ' '; n++ {
		end++
	}
	return end
}

func writeHunk(out *strings.Builder, edits []edit, oldStart, newStart int) (oldNext, newNext int) {
	olds, news := 0, 0
	for _, e := range edits {
		if e.op != '+' {
			olds++
		}
		if e.op != '-' {
			news++
		}
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(oldStart, olds), span(newStart, news))
	for _, e := range edits {
		out.WriteByte(e.op)
		out.WriteString(e.line)
		if !strings.HasSuffix(e.line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
	return oldStart + olds, newStart + news
}

// span writes a range as diff does: an empty one names the line before it.
func span(start, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%d,0", start-1)
	case 1:
		return fmt.Sprint(start)
	}
	return fmt.Sprintf("%d,%d", start, n)
}

// editScript aligns a and b: common ends first, then a shortest edit of the
// middle.
func editScript(a, b []string) []edit {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	edits := make([]edit, 0, len(a)+len(b))
	for _, l := range a[:head] {
		edits = append(edits, edit{' ', l})
	}
	edits = append(edits, shortest(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for _, l := range a[len(a)-tail:] {
		edits = append(edits, edit{' ', l})
	}
	return edits
}

// shortest is the greedy search along diagonals: frontier[k] is the furthest
// position in a that d edits reach on diagonal k = x-y.
func shortest(a, b []string) []edit {
	n, m := len(a), len(b)
	limit := min(n+m, maxEdits)
	frontier := make([]int, 2*limit+3)
	mid := limit + 1
	var trail [][]int
	for d := 0; d <= limit; d++ {
		trail = append(trail, append([]int(nil), frontier[mid-d-1:mid+d+2]...))
		for k := -d; k <= d; k += 2 {
			x := frontier[mid+k-1] + 1
			if k == -d || (k != d && frontier[mid+k-1] < frontier[mid+k+1]) {
				x = frontier[mid+k+1]
			}
			for x < n && x-k < m && a[x] == b[x-k] {
				x++
			}
			frontier[mid+k] = x
			if x >= n && x-k >= m {
				return backtrack(a, b, trail, d, k)
			}
		}
	}
	return replaced(a, b)
}

// backtrack reads the edit script from the saved frontiers, last edit first.
// trail[d] holds the frontier before step d for diagonals -d-1..d+1.
func backtrack(a, b []string, trail [][]int, d, k int) []edit {
	x, y := len(a), len(b)
	var reversed []edit
	for ; d > 0; d-- {
		at := func(k int) int { return trail[d][k+d+1] }
		down := k == -d || (k != d && at(k-1) < at(k+1))
		prev := k - 1
		if down {
			prev = k + 1
		}
		// The edit leads from the end of step d-1 to where the equal lines begin.
		fromX := at(prev)
		fromY := fromX - prev
		if down {
			fromY++
		} else {
			fromX++
		}
		for x > fromX && y > fromY {
			x, y = x-1, y-1
			reversed = append(reversed, edit{' ', a[x]})
		}
		if down {
			y--
			reversed = append(reversed, edit{'+', b[y]})
		} else {
			x--
			reversed = append(reversed, edit{'-', a[x]})
		}
		k = prev
	}
	for x > 0 && y > 0 {
		x, y = x-1, y-1
		reversed = append(reversed, edit{' ', a[x]})
	}
	edits := make([]edit, 0, len(reversed))
	for i := len(reversed) - 1; i >= 0; i-- {
		edits = append(edits, reversed[i])
	}
	return edits
}

func replaced(a, b []string) []edit {
	var edits []edit
	for _, l := range a {
		edits = append(edits, edit{'-', l})
	}
	for _, l := range b {
		edits = append(edits, edit{'+', l})
	}
	return edits
}
