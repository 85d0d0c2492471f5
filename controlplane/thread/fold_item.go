package thread

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// compactFrom is the number of bytes of increments from which dropping them is
// worth rewriting the records that hold them.
const compactFrom = 2048

func (s *State) itemStarted(ev *heddlev1.Event, it *heddlev1.Item, ch *Changes) error {
	t, err := s.activeTurn(ev, "an item")
	if err != nil {
		return err
	}
	if PhaseOf(t) == PhaseAccepted {
		return fmt.Errorf("fold: item %s cannot start before its turn %s", it.GetId(), t.GetId())
	}
	if err := checkID("an item", it.GetId()); err != nil {
		return err
	}
	if _, ok := s.Items[it.GetId()]; ok {
		return fmt.Errorf("fold: item %s is open already", it.GetId())
	}
	stampItem(it, ev)
	if it.StartedAtMs == 0 {
		it.StartedAtMs = ev.GetTimeMs()
	}
	row := ItemRow{Item: it, ItemKey: ItemKey{Ordinal: t.GetOrdinal(), StartSeq: ev.GetSeq()}, ThreadID: s.Row.GetId()}
	s.Items[it.GetId()] = OpenItem{ItemRow: row}
	put(&ch.Items, row.ItemKey, row)
	if m := it.GetUserMessage(); m != nil && s.Row.GetPreview() == "" {
		if preview := previewOf(m); preview != "" {
			s.row(ch).Preview = preview
		}
	}
	return nil
}

func (s *State) itemCompleted(ev *heddlev1.Event, it *heddlev1.Item, ch *Changes) error {
	open, ok := s.Items[it.GetId()]
	if !ok {
		return fmt.Errorf("fold: item %q is not open", it.GetId())
	}
	if ev.GetTurnId() == "" {
		ev.TurnId = open.Item.GetTurnId()
	}
	stampItem(it, ev)
	if it.StartedAtMs == 0 {
		it.StartedAtMs = open.Item.GetStartedAtMs()
	}
	if it.CompletedAtMs == 0 {
		it.CompletedAtMs = ev.GetTimeMs()
	}
	row := open.ItemRow
	row.Item, row.EndSeq = it, ev.GetSeq()
	delete(s.Items, it.GetId())
	put(&ch.Items, row.ItemKey, row)
	if open.deltaBytes >= compactFrom {
		ch.Compactable = append(ch.Compactable, Compaction{ItemID: it.GetId(), First: open.deltaFirst, Last: open.deltaLast, Bytes: open.deltaBytes})
	}
	if it.GetAgentMessage() != nil {
		if t := s.Turns[it.GetTurnId()]; t != nil {
			next := proto.CloneOf(t)
			next.LastAgentMessage = it
			s.setTurn(next, ch)
		}
	}
	return nil
}

// increment notes a delta or an output record of an open item.
func (s *State) increment(ev *heddlev1.Event, itemID string) error {
	open, ok := s.Items[itemID]
	if !ok {
		return fmt.Errorf("fold: item %q is not open", itemID)
	}
	if open.deltaFirst == 0 {
		open.deltaFirst = ev.GetSeq()
	}
	open.deltaLast = ev.GetSeq()
	open.deltaBytes += proto.Size(ev)
	s.Items[itemID] = open
	return nil
}

func stampItem(it *heddlev1.Item, ev *heddlev1.Event) {
	if it.TurnId == "" {
		it.TurnId = ev.GetTurnId()
	}
}
