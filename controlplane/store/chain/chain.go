// Package chain reads turns, items and history through the chain of sources of
// a fork. It holds the rules of what a fork sees, once, for every store.
//
// A fork made at a turn sees the source's turns up to and including it, the
// items and history entries that were recorded by then, and nothing later. A
// turn that was running at the cut shows as interrupted in the fork.
package chain

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxDepth bounds the length of a chain of forks, against damaged rows that
// form a circle.
const maxDepth = 10_000

// Rows is what a store provides of one thread's own rows. The yield functions
// return false to stop.
type Rows interface {
	// Head returns the row and the ordinal of the last shared turn, or an
	// errdefs.ThreadNotFound error.
	Head(threadID string) (row *heddlev1.Thread, base int64, err error)
	// TurnByID returns nil when the thread's own log has no such turn.
	TurnByID(threadID, turnID string) (*heddlev1.Turn, error)
	// Turns yields own turns with lo <= ordinal <= hi.
	Turns(threadID string, lo, hi int64, desc bool, yield func(*heddlev1.Turn) bool) error
	// ItemByID returns false when the thread's own log has no such item.
	ItemByID(threadID, itemID string) (thread.ItemRow, bool, error)
	// Items yields own items with lo <= key <= hi.
	Items(threadID string, lo, hi thread.ItemKey, desc bool, yield func(thread.ItemRow) bool) error
	// UserItems yields the user messages of one own turn, oldest first.
	UserItems(threadID string, ordinal int64, yield func(thread.ItemRow) bool) error
	// History yields own entries from a seq on.
	History(threadID string, from uint64, yield func(thread.HistoryRow) bool) error
	// Floors yields own floors, newest first.
	Floors(threadID string, yield func(thread.Floor) bool) error
}

// segment is the part of one thread's log that belongs to the thread that is
// read.
type segment struct {
	threadID string
	// Own turns of the segment have lo <= ordinal <= hi.
	lo, hi int64
	// maxSeq and cutAt are those of the fork; maxSeq is MaxUint64 for the
	// thread itself.
	maxSeq uint64
	cutAt  int64
	// reverted are the turns that the reading thread does not see any more.
	reverted []*heddlev1.RevertedTurns
}

// hidden reports whether something of a turn, recorded at seq, was taken back.
// Sources and forks count turns alike, so a fork's range holds for its source.
func (s segment) hidden(ordinal int64, seq uint64) bool {
	for _, r := range s.reverted {
		if ordinal >= r.GetFirstOrdinal() && ordinal <= r.GetLastOrdinal() && (s.shared() && r.GetSeq() == 0 || seq < r.GetSeq()) {
			return true
		}
	}
	return false
}

func (s segment) shared() bool { return s.maxSeq != math.MaxUint64 }

// segments returns the parts of a thread, newest first.
func segments(r Rows, threadID string) ([]segment, error) {
	row, base, err := r.Head(threadID)
	if err != nil {
		return nil, err
	}
	reverted := row.GetReverted()
	segs := []segment{{threadID: threadID, lo: base + 1, hi: math.MaxInt64, maxSeq: math.MaxUint64, reverted: reverted}}
	hi := int64(math.MaxInt64)
	for base > 0 && len(segs) < maxDepth {
		hi = min(hi, base)
		source, maxSeq, cutAt := row.GetForkedFromId(), row.GetForkedSeq(), row.GetCreatedAtMs()
		row, base, err = r.Head(source)
		if errdefs.Is(err, errdefs.ThreadNotFound) {
			return segs, nil
		}
		if err != nil {
			return nil, err
		}
		reverted = append(inherited(reverted), before(row.GetReverted(), maxSeq)...)
		if hi > base {
			segs = append(segs, segment{threadID: source, lo: base + 1, hi: hi, maxSeq: maxSeq, cutAt: cutAt, reverted: reverted})
		}
	}
	return segs, nil
}

// inherited makes a fork's ranges hold for what it shares with its source, all
// of which is older than the fork: seqs of two logs do not compare.
func inherited(ranges []*heddlev1.RevertedTurns) []*heddlev1.RevertedTurns {
	out := make([]*heddlev1.RevertedTurns, 0, len(ranges))
	for _, r := range ranges {
		out = append(out, &heddlev1.RevertedTurns{FirstOrdinal: r.GetFirstOrdinal(), LastOrdinal: r.GetLastOrdinal()})
	}
	return out
}

// before are the ranges that a source had at a fork's cut.
func before(ranges []*heddlev1.RevertedTurns, maxSeq uint64) []*heddlev1.RevertedTurns {
	var out []*heddlev1.RevertedTurns
	for _, r := range ranges {
		if r.GetSeq() <= maxSeq {
			out = append(out, r)
		}
	}
	return out
}

// turn shows a turn as the reading thread sees it.
func (s segment) turn(r Rows, threadID string, t *heddlev1.Turn) (*heddlev1.Turn, error) {
	if !s.shared() {
		return t, nil
	}
	t = proto.CloneOf(t)
	t.ThreadId = threadID
	if t.GetLastSeq() != 0 && t.GetLastSeq() <= s.maxSeq {
		return t, nil
	}
	t.Status = heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED
	t.Error, t.LastSeq, t.InterruptCause = nil, s.maxSeq, "fork"
	t.CompletedAtMs = max(s.cutAt, t.GetStartedAtMs())
	t.DurationMs = 0
	if t.GetStartedAtMs() > 0 {
		t.DurationMs = t.CompletedAtMs - t.GetStartedAtMs()
	}
	t.LastAgentMessage = nil
	ord := t.GetOrdinal()
	err := r.Items(s.threadID, thread.ItemKey{Ordinal: ord}, thread.ItemKey{Ordinal: ord, StartSeq: s.maxSeq}, true, func(it thread.ItemRow) bool {
		if it.Item.GetAgentMessage() != nil && !it.Open() && it.EndSeq <= s.maxSeq {
			t.LastAgentMessage = it.Item
		}
		return t.LastAgentMessage == nil
	})
	return t, err
}

// item shows an item as the reading thread sees it; false hides it.
func (s segment) item(r Rows, it thread.ItemRow) (thread.ItemRow, bool, error) {
	if s.hidden(it.Ordinal, it.StartSeq) {
		return it, false, nil
	}
	if !s.shared() {
		return it, true, nil
	}
	if it.Ordinal > s.hi {
		return it, false, nil
	}
	ended := false
	err := r.Turns(s.threadID, it.Ordinal, it.Ordinal, false, func(t *heddlev1.Turn) bool {
		ended = t.GetLastSeq() != 0 && t.GetLastSeq() <= s.maxSeq
		return false
	})
	if err != nil || !ended {
		// The cut interrupted the turn: only what was complete by then counts.
		return it, err == nil && !it.Open() && it.EndSeq <= s.maxSeq, err
	}
	if it.Open() {
		// A background terminal of the source: the fork has no part in it.
		c := proto.CloneOf(it.Item)
		c.Status, c.CompletedAtMs = heddlev1.ItemStatus_ITEM_STATUS_FAILED, s.cutAt
		it.Item, it.EndSeq = c, s.maxSeq
	}
	return it, true, nil
}

// Turn finds a turn of the thread or of its sources.
func Turn(r Rows, threadID, turnID string) (*heddlev1.Turn, error) {
	segs, err := segments(r, threadID)
	if err != nil {
		return nil, err
	}
	for _, s := range segs {
		t, err := r.TurnByID(s.threadID, turnID)
		if err != nil {
			return nil, err
		}
		if t != nil && t.GetOrdinal() <= s.hi && !s.hidden(t.GetOrdinal(), t.GetFirstSeq()) {
			return s.turn(r, threadID, t)
		}
	}
	return nil, errdefs.New(errdefs.TurnNotFound, "turn not found: %s", turnID).With("turn_id", turnID)
}

// Item finds an item of the thread or of its sources.
func Item(r Rows, threadID, itemID string) (thread.ItemRow, error) {
	segs, err := segments(r, threadID)
	if err != nil {
		return thread.ItemRow{}, err
	}
	for _, s := range segs {
		it, ok, err := r.ItemByID(s.threadID, itemID)
		if err != nil {
			return thread.ItemRow{}, err
		}
		if !ok {
			continue
		}
		if it, ok, err = s.item(r, it); err != nil || ok {
			return it, err
		}
	}
	return thread.ItemRow{}, errdefs.New(errdefs.ItemNotFound, "item not found: %s", itemID).With("item_id", itemID)
}

// History returns the entries that the model is shown, oldest first.
func History(r Rows, threadID string) ([]*heddlev1.HistoryEntry, error) {
	segs, err := segments(r, threadID)
	if err != nil {
		return nil, err
	}
	rows, err := historyRows(r, segs)
	if err != nil {
		return nil, err
	}
	entries := make([]*heddlev1.HistoryEntry, 0, len(rows))
	for _, h := range rows {
		entries = append(entries, h.Entry)
	}
	return entries, nil
}

func historyRows(r Rows, segs []segment) ([]thread.HistoryRow, error) {
	var parts [][]thread.HistoryRow
	for _, s := range segs {
		rows, floor, err := s.history(r)
		if err != nil {
			return nil, err
		}
		parts = append(parts, rows)
		if floor > 0 {
			break
		}
	}
	slices.Reverse(parts)
	return slices.Concat(parts...), nil
}

// history reads a segment from its last floor within the cut.
func (s segment) history(r Rows) (rows []thread.HistoryRow, floor uint64, err error) {
	err = r.Floors(s.threadID, func(f thread.Floor) bool {
		if f.Seq <= s.maxSeq && f.Ordinal <= s.hi && !s.hidden(f.Ordinal, f.Seq) {
			floor = f.Seq
		}
		return floor == 0
	})
	if err != nil {
		return nil, 0, err
	}
	err = r.History(s.threadID, floor, func(h thread.HistoryRow) bool {
		if s.hidden(h.Ordinal, h.Seq) {
			return true
		}
		if h.Seq > s.maxSeq || h.Ordinal > s.hi {
			return false
		}
		rows = append(rows, h)
		return true
	})
	return rows, floor, err
}
