// Package thread holds the pure state of a thread: the turn state machine and
// the fold that turns events into the rows that clients read.
//
// Nothing here does I/O, reads a clock or starts a goroutine. A State belongs
// to one goroutine at a time. The messages it points to are never changed in
// place: a change replaces the pointer, so rows that were handed out stay as
// they were.
package thread

import (
	"maps"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// PreviewBytes bounds the preview of a thread row.
const PreviewBytes = 1024

// ItemKey orders the items of a thread: by the ordinal of their turn, then by
// the seq of the event that started them.
type ItemKey struct {
	Ordinal  int64
	StartSeq uint64
}

// Less reports whether k sorts before o.
func (k ItemKey) Less(o ItemKey) bool {
	if k.Ordinal != o.Ordinal {
		return k.Ordinal < o.Ordinal
	}
	return k.StartSeq < o.StartSeq
}

// ItemRow is an item with its place in the log.
type ItemRow struct {
	Item *heddlev1.Item
	ItemKey
	// EndSeq is the seq of the item's completion, 0 while it is open.
	EndSeq uint64
	// ThreadID names the thread whose log and stream files hold the item; for
	// an item that a fork shares it is the source.
	ThreadID string
}

// Open reports whether the item has not been completed.
func (r ItemRow) Open() bool { return r.EndSeq == 0 }

// HistoryRow is one entry of the model's history with its place in the log.
type HistoryRow struct {
	Seq uint64
	// Index is the entry's position within its event.
	Index int
	// Ordinal is that of the entry's turn, or of the last turn before it.
	Ordinal int64
	Entry   *heddlev1.HistoryEntry
}

// Floor says that the history starts anew at Seq (the entries before it were
// replaced).
type Floor struct {
	Seq     uint64
	Ordinal int64
}

// Compaction names the span of log that holds the increments of one completed
// item; they may be dropped, as the item's completion holds the whole.
type Compaction struct {
	ItemID      string
	First, Last uint64
	Bytes       int
}

// OpenItem is a started item together with what its increments cost so far.
type OpenItem struct {
	ItemRow
	deltaFirst, deltaLast uint64
	deltaBytes            int
}

// State is what the fold needs to know about a thread. It holds what is open
// and nothing of what has ended, so its size does not grow with history.
type State struct {
	Row     *heddlev1.Thread
	LastSeq uint64
	Epoch   uint64
	// BaseOrdinal is the ordinal of the last turn that a fork shares with its
	// source, 0 when nothing is shared.
	BaseOrdinal int64
	Turns       map[string]*heddlev1.Turn
	Items       map[string]OpenItem
	Actions     map[string]*heddlev1.ActionIntent
	Approvals   map[string]*heddlev1.Approval
	// Queue is never changed in place; nil when nothing was ever queued.
	Queue *heddlev1.Queue
}

// New returns the state of a thread without events.
func New() *State {
	return &State{
		Turns:     map[string]*heddlev1.Turn{},
		Items:     map[string]OpenItem{},
		Actions:   map[string]*heddlev1.ActionIntent{},
		Approvals: map[string]*heddlev1.Approval{},
	}
}

// Clone returns an independent copy; the rows are shared.
func (s *State) Clone() *State {
	c := *s
	c.Turns = maps.Clone(s.Turns)
	c.Items = maps.Clone(s.Items)
	c.Actions = maps.Clone(s.Actions)
	c.Approvals = maps.Clone(s.Approvals)
	return &c
}

// Busy reports whether something in the thread has begun and not ended.
func (s *State) Busy() bool {
	return len(s.Turns)+len(s.Items)+len(s.Actions)+len(s.Approvals) > 0 || Waiting(s.Queue) != nil
}

// Changes are the rows that a run of events changed, in their last form.
type Changes struct {
	// Row is nil when the thread's row did not change.
	Row   *heddlev1.Thread
	Turns map[string]*heddlev1.Turn
	Items map[ItemKey]ItemRow
	// Actions maps an id to its intent, or to nil once it is resolved.
	Actions   map[string]*heddlev1.ActionIntent
	Approvals map[string]*heddlev1.Approval
	History   []HistoryRow
	Floors    []Floor
	// Compactable spans of completed items.
	Compactable []Compaction
	// Queue is nil when it did not change.
	Queue       *heddlev1.Queue
	Attachments map[AttachmentKey]AttachmentRow
	// NextRequestID is one more than the largest approval request id, 0 when
	// there was none.
	NextRequestID int64
}

func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// Merge lays later changes over c.
func (c *Changes) Merge(later *Changes) {
	if later.Row != nil {
		c.Row = later.Row
	}
	merge(&c.Turns, later.Turns)
	merge(&c.Items, later.Items)
	merge(&c.Actions, later.Actions)
	merge(&c.Approvals, later.Approvals)
	merge(&c.Attachments, later.Attachments)
	if later.Queue != nil {
		c.Queue = later.Queue
	}
	c.History = append(c.History, later.History...)
	c.Floors = append(c.Floors, later.Floors...)
	c.Compactable = append(c.Compactable, later.Compactable...)
	c.NextRequestID = max(c.NextRequestID, later.NextRequestID)
}

func merge[K comparable, V any](dst *map[K]V, src map[K]V) {
	if len(src) == 0 {
		return
	}
	if *dst == nil {
		*dst = make(map[K]V, len(src))
	}
	maps.Copy(*dst, src)
}
