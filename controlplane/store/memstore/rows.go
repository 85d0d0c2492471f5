package memstore

import (
	"math"
	"slices"
	"sort"

	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// rows gives package chain the rows of the store; the read lock is held.
type rows struct{ s *Store }

func (r rows) Head(threadID string) (*heddlev1.Thread, int64, error) {
	l, err := r.s.get(threadID)
	if err != nil {
		return nil, 0, err
	}
	return l.state.Row, l.state.BaseOrdinal, nil
}

func (r rows) TurnByID(threadID, turnID string) (*heddlev1.Turn, error) {
	l, err := r.s.get(threadID)
	if err != nil {
		return nil, err
	}
	for _, t := range slices.Backward(l.turns) {
		if t.GetId() == turnID {
			return t, nil
		}
	}
	return nil, nil
}

func (r rows) Turns(threadID string, lo, hi int64, desc bool, yield func(*heddlev1.Turn) bool) error {
	l, err := r.s.get(threadID)
	if err != nil {
		return err
	}
	i := sort.Search(len(l.turns), func(i int) bool { return l.turns[i].GetOrdinal() >= lo })
	j := sort.Search(len(l.turns), func(i int) bool { return l.turns[i].GetOrdinal() > hi })
	walk(l.turns[i:max(i, j)], desc, yield)
	return nil
}

func (r rows) ItemByID(threadID, itemID string) (thread.ItemRow, bool, error) {
	l, err := r.s.get(threadID)
	if err != nil {
		return thread.ItemRow{}, false, err
	}
	key, ok := l.itemByID[itemID]
	if !ok {
		return thread.ItemRow{}, false, nil
	}
	i, ok := l.findItem(key)
	if !ok {
		return thread.ItemRow{}, false, nil
	}
	return l.items[i], true, nil
}

func (r rows) Items(threadID string, lo, hi thread.ItemKey, desc bool, yield func(thread.ItemRow) bool) error {
	l, err := r.s.get(threadID)
	if err != nil {
		return err
	}
	i := sort.Search(len(l.items), func(i int) bool { return !l.items[i].Less(lo) })
	j := sort.Search(len(l.items), func(i int) bool { return hi.Less(l.items[i].ItemKey) })
	walk(l.items[i:max(i, j)], desc, yield)
	return nil
}

func (r rows) UserItems(threadID string, ordinal int64, yield func(thread.ItemRow) bool) error {
	lo, hi := thread.ItemKey{Ordinal: ordinal}, thread.ItemKey{Ordinal: ordinal, StartSeq: math.MaxUint64}
	return r.Items(threadID, lo, hi, false, func(it thread.ItemRow) bool {
		return it.Item.GetUserMessage() == nil || yield(it)
	})
}

func (r rows) History(threadID string, from uint64, yield func(thread.HistoryRow) bool) error {
	l, err := r.s.get(threadID)
	if err != nil {
		return err
	}
	i := sort.Search(len(l.history), func(i int) bool { return l.history[i].Seq >= from })
	walk(l.history[i:], false, yield)
	return nil
}

func (r rows) Floors(threadID string, yield func(thread.Floor) bool) error {
	l, err := r.s.get(threadID)
	if err != nil {
		return err
	}
	walk(l.floors, true, yield)
	return nil
}

func walk[T any](s []T, desc bool, yield func(T) bool) {
	if desc {
		for _, v := range slices.Backward(s) {
			if !yield(v) {
				return
			}
		}
		return
	}
	for _, v := range s {
		if !yield(v) {
			return
		}
	}
}
