package store

import (
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// DefaultReadBytes is how much Events returns when the caller does not say.
const DefaultReadBytes = 256 << 10

// ReadBytes gives a byte limit its default.
func ReadBytes(n int) int {
	if n <= 0 {
		return DefaultReadBytes
	}
	return n
}

// EndOf returns the last seq that an event stands for.
func EndOf(ev *heddlev1.Event) uint64 {
	if r := ev.GetRangeCompacted(); r != nil && r.GetLastSeq() > ev.GetSeq() {
		return r.GetLastSeq()
	}
	return ev.GetSeq()
}

// Gap stands for the events first..last of an item that were compacted away,
// or, with no item id, for records that cannot be read.
func Gap(threadID, itemID string, first, last uint64) *heddlev1.Event {
	return &heddlev1.Event{Seq: first, ThreadId: threadID, Payload: &heddlev1.Event_RangeCompacted{
		RangeCompacted: &heddlev1.RangeCompacted{LastSeq: last, ItemId: itemID, Damaged: itemID == ""},
	}}
}

// incrementOf returns the item whose increment the event is, or "".
func incrementOf(ev *heddlev1.Event) string {
	switch p := ev.GetPayload().(type) {
	case *heddlev1.Event_ItemDelta:
		return p.ItemDelta.GetItemId()
	case *heddlev1.Event_OutputAdvanced:
		return p.OutputAdvanced.GetItemId()
	case *heddlev1.Event_RangeCompacted:
		return p.RangeCompacted.GetItemId()
	}
	return ""
}

// DropIncrements returns the events with every run of the item's increments
// within the span replaced by one RangeCompacted event. The given slice is not
// changed.
func DropIncrements(events []*heddlev1.Event, span thread.Compaction) []*heddlev1.Event {
	out := make([]*heddlev1.Event, 0, len(events))
	for _, ev := range events {
		if ev.GetSeq() < span.First || ev.GetSeq() > span.Last || incrementOf(ev) != span.ItemID {
			out = append(out, ev)
			continue
		}
		if n := len(out); n > 0 {
			prev := out[n-1]
			if r := prev.GetRangeCompacted(); r != nil && r.GetItemId() == span.ItemID && r.GetLastSeq()+1 == ev.GetSeq() {
				out[n-1] = gapAt(prev, span.ItemID, EndOf(ev))
				continue
			}
		}
		out = append(out, gapAt(ev, span.ItemID, EndOf(ev)))
	}
	return out
}

func gapAt(at *heddlev1.Event, itemID string, last uint64) *heddlev1.Event {
	g := Gap(at.GetThreadId(), itemID, at.GetSeq(), last)
	g.TurnId, g.TimeMs = at.GetTurnId(), at.GetTimeMs()
	return g
}

// HasForks is the error for a thread that cannot be deleted.
func HasForks(threadID string) error {
	return errdefs.New(errdefs.ThreadHasForks, "cannot delete thread %s: forked history still references it", threadID).With("thread_id", threadID)
}
