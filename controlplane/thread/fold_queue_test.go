package thread_test

import (
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func queueEvent(seq uint64, c *heddlev1.QueueChanged) *heddlev1.Event {
	return &heddlev1.Event{Seq: seq, ThreadId: "t", Payload: &heddlev1.Event_QueueChanged{QueueChanged: c}}
}

func added(id, text string) *heddlev1.QueueChanged {
	in := &heddlev1.UserMessage{Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: text}}}}
	return &heddlev1.QueueChanged{Change: &heddlev1.QueueChanged_Added{Added: &heddlev1.QueuedMessage{Id: id, Input: in}}}
}

// A change of the queue that does not fit it is refused and changes nothing.
func TestQueueRefusesWhatDoesNotFit(t *testing.T) {
	s, ch := thread.New(), thread.Changes{}
	fold := func(ev *heddlev1.Event) error { return s.Fold(ev, &ch) }
	for _, ev := range []*heddlev1.Event{
		{Seq: 1, ThreadId: "t", Payload: &heddlev1.Event_ThreadCreated{ThreadCreated: &heddlev1.ThreadCreated{Thread: &heddlev1.Thread{Id: "t"}}}},
		queueEvent(2, added("a", "x")), queueEvent(3, added("b", "y")),
	} {
		if err := fold(ev); err != nil {
			t.Fatal(err)
		}
	}
	before := s.Queue
	for what, c := range map[string]*heddlev1.QueueChanged{
		"an id again":   added("a", "z"),
		"no id":         added("", "z"),
		"too much":      added("c", strings.Repeat("x", thread.MaxQueuedSize)),
		"unknown":       {Change: &heddlev1.QueueChanged_RemovedId{RemovedId: "c"}},
		"replaces none": {Change: &heddlev1.QueueChanged_Replaced{Replaced: &heddlev1.QueuedMessage{Id: "c"}}},
		"half an order": {Change: &heddlev1.QueueChanged_Ordered{Ordered: &heddlev1.QueueOrder{Ids: []string{"a"}}}},
		"one twice":     {Change: &heddlev1.QueueChanged_Ordered{Ordered: &heddlev1.QueueOrder{Ids: []string{"a", "a"}}}},
	} {
		if err := fold(queueEvent(4, c)); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	taken := &heddlev1.TurnAccepted{Turn: &heddlev1.Turn{Id: "t1"}, QueuedId: "c"}
	if err := fold(&heddlev1.Event{Seq: 4, ThreadId: "t", TurnId: "t1", Payload: &heddlev1.Event_TurnAccepted{TurnAccepted: taken}}); err == nil {
		t.Error("a turn took up what was not queued")
	}
	if s.Queue != before || s.LastSeq != 3 || s.Row.GetTurnCount() != 0 {
		t.Errorf("refused changes left %v at seq %d", s.Queue, s.LastSeq)
	}
	if m := thread.Waiting(s.Queue); m.GetId() != "a" {
		t.Errorf("next is %v", m)
	}
}
