package chain

import (
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Shared returns what a fork with the row, made at the turn with ordinal base,
// sees of its source, as rows that can stand at the start of a log of its own:
// their seqs are those of a first event. It is for forks that cannot read
// their source where it lies.
func Shared(r Rows, fork *heddlev1.Thread, base int64) (thread.Changes, error) {
	var ch thread.Changes
	over := overlay{Rows: r, row: fork, base: base}
	segs, err := segments(over, fork.GetId())
	if err != nil {
		return ch, err
	}
	turns, err := turnRange(over, segs, fork.GetId(), turnSpan{lo: 1, hi: base, limit: math.MaxInt})
	if err != nil {
		return ch, err
	}
	ch.Turns = make(map[string]*heddlev1.Turn, len(turns))
	for _, t := range turns {
		c := proto.CloneOf(t.turn)
		c.FirstSeq, c.LastSeq = 1, 1
		ch.Turns[c.GetId()] = c
	}
	items, err := itemRange(over, segs, thread.ItemKey{}, thread.ItemKey{Ordinal: base, StartSeq: math.MaxUint64}, false, unbounded())
	if err != nil {
		return ch, err
	}
	ch.Items = make(map[thread.ItemKey]thread.ItemRow, len(items))
	for i, it := range items {
		it.StartSeq, it.EndSeq = uint64(i)+1, 1
		ch.Items[it.ItemKey] = it
	}
	history, err := historyRows(over, segs)
	for i, h := range history {
		h.Seq, h.Index = 1, i
		ch.History = append(ch.History, h)
	}
	return ch, err
}

// overlay adds the head of a thread that does not exist yet.
type overlay struct {
	Rows
	row  *heddlev1.Thread
	base int64
}

func (o overlay) Head(threadID string) (*heddlev1.Thread, int64, error) {
	if threadID == o.row.GetId() {
		return o.row, o.base, nil
	}
	return o.Rows.Head(threadID)
}

func (o overlay) Turns(threadID string, lo, hi int64, desc bool, yield func(*heddlev1.Turn) bool) error {
	if threadID == o.row.GetId() {
		return nil
	}
	return o.Rows.Turns(threadID, lo, hi, desc, yield)
}

func (o overlay) Items(threadID string, lo, hi thread.ItemKey, desc bool, yield func(thread.ItemRow) bool) error {
	if threadID == o.row.GetId() {
		return nil
	}
	return o.Rows.Items(threadID, lo, hi, desc, yield)
}

func (o overlay) Floors(threadID string, yield func(thread.Floor) bool) error {
	if threadID == o.row.GetId() {
		return nil
	}
	return o.Rows.Floors(threadID, yield)
}

func (o overlay) History(threadID string, from uint64, yield func(thread.HistoryRow) bool) error {
	if threadID == o.row.GetId() {
		return nil
	}
	return o.Rows.History(threadID, from, yield)
}
