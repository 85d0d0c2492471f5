package search

import (
	"cmp"
	"container/heap"
	"strings"
	"sync"
	"unicode"

	"github.com/junegunn/fzf/src/algo"
	"github.com/junegunn/fzf/src/util"
)

const (
	maxTerms = 16
	maxQuery = 1024
	// checkEvery is how many files are matched between two looks for a newer
	// query.
	checkEvery = 2048
	slab16     = 100 * 1024
	slab32     = 2048
)

// term is one word of a query; all of them must match.
type term struct {
	text []rune
	// exact is set for a word with capital letters.
	exact bool
}

// prepare makes the tables of the matching algorithm, once per process.
var prepare = sync.OnceFunc(func() { algo.Init("path") })

func termsOf(query string) []term {
	prepare()
	var out []term
	if len(query) > maxQuery {
		query = strings.ToValidUTF8(query[:maxQuery], "")
	}
	for _, word := range strings.Fields(query) {
		t := term{text: []rune(word), exact: strings.IndexFunc(word, unicode.IsUpper) >= 0}
		if !t.exact {
			t.text = []rune(strings.ToLower(word))
		}
		t.text = algo.NormalizeRunes(t.text)
		if out = append(out, t); len(out) == maxTerms {
			break
		}
	}
	return out
}

// match returns the score of a file, 0 when it does not match, and the positions
// when asked for.
func (t term) match(f *found, withPos bool, slab *util.Slab) (int, []uint32) {
	res, pos := algo.FuzzyMatchV2(t.exact, true, true, &f.path, t.text, withPos, slab)
	if res.Start < 0 {
		return 0, nil
	}
	var at []uint32
	if pos != nil {
		for _, p := range *pos {
			at = append(at, uint32(p))
		}
	}
	return max(res.Score, 1), at
}

// hit is a file that matches.
type hit struct {
	at    int
	score int
	size  int
}

// hits is a heap whose top is the worst one.
type hits struct {
	list  []hit
	files []found
}

func (h *hits) Len() int           { return len(h.list) }
func (h *hits) Less(i, j int) bool { return h.compare(h.list[i], h.list[j]) > 0 }
func (h *hits) Swap(i, j int)      { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *hits) Push(x any)         { h.list = append(h.list, x.(hit)) }
func (h *hits) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return last
}

// compare orders the better one first: score, then the shorter path, then by
// name.
func (h *hits) compare(a, b hit) int {
	if c := cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.size, b.size)); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(h.files[a.at].path.ToString(), h.files[b.at].path.ToString()), cmp.Compare(a.at, b.at))
}

// rank returns the best matches, best first; ok is false when stale said that
// the query is not wanted any more.
func rank(files []found, terms []term, limit int, stale func() bool) (best []hit, ok bool) {
	h := &hits{files: files}
	slab := util.MakeSlab(slab16, slab32)
	for i := range files {
		if i%checkEvery == 0 && stale() {
			return nil, false
		}
		total := 0
		for _, t := range terms {
			score, _ := t.match(&files[i], false, slab)
			if score == 0 {
				total = 0
				break
			}
			total += score
		}
		if total == 0 {
			continue
		}
		x := hit{at: i, score: total, size: files[i].path.Length()}
		if len(h.list) < limit {
			heap.Push(h, x)
		} else if h.compare(x, h.list[0]) < 0 {
			h.list[0] = x
			heap.Fix(h, 0)
		}
	}
	best = make([]hit, len(h.list))
	for i := len(best) - 1; i >= 0; i-- {
		best[i] = heap.Pop(h).(hit)
	}
	return best, true
}
