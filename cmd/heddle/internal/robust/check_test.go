package robust

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func item(id string, status heddlev1.ItemStatus) *heddlev1.Item {
	return &heddlev1.Item{Id: id, TurnId: "t", Status: status, Content: &heddlev1.Item_CommandExecution{CommandExecution: &heddlev1.CommandExecution{Command: "echo TKN-1-1"}}}
}

func ended(id string) *heddlev1.Event {
	i := item(id, heddlev1.ItemStatus_ITEM_STATUS_COMPLETED)
	i.GetCommandExecution().ExitCode = proto.Int32(0)
	return &heddlev1.Event{TurnId: "t", Payload: &heddlev1.Event_ItemCompleted{ItemCompleted: &heddlev1.ItemCompleted{Item: i}}}
}

func begun(id string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: "t", Payload: &heddlev1.Event_ItemStarted{ItemStarted: &heddlev1.ItemStarted{Item: item(id, heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS)}}}
}

func user(text string) *heddlev1.UserMessage {
	return &heddlev1.UserMessage{Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: text}}}}
}

func said(text string) []*heddlev1.Event {
	i := &heddlev1.Item{Id: text, TurnId: "t", Status: heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, Content: &heddlev1.Item_UserMessage{UserMessage: user(text)}}
	return []*heddlev1.Event{
		{TurnId: "t", Payload: &heddlev1.Event_ItemStarted{ItemStarted: &heddlev1.ItemStarted{Item: i}}},
		{TurnId: "t", Payload: &heddlev1.Event_ItemCompleted{ItemCompleted: &heddlev1.ItemCompleted{Item: i}}},
	}
}

func accepted(text string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: "t", Payload: &heddlev1.Event_TurnAccepted{TurnAccepted: &heddlev1.TurnAccepted{Turn: &heddlev1.Turn{Id: "t"}, Input: user(text)}}}
}

func steered(text string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: "t", Payload: &heddlev1.Event_SteerAccepted{SteerAccepted: &heddlev1.SteerAccepted{Input: user(text)}}}
}

func over(status heddlev1.TurnStatus) *heddlev1.Event {
	return &heddlev1.Event{TurnId: "t", Payload: &heddlev1.Event_TurnCompleted{TurnCompleted: &heddlev1.TurnCompleted{Turn: &heddlev1.Turn{Id: "t", Status: status}}}}
}

func delta() *heddlev1.Event {
	return &heddlev1.Event{TurnId: "t", Payload: &heddlev1.Event_ItemDelta{ItemDelta: &heddlev1.ItemDelta{ItemId: "a"}}}
}

// numbered gives events that have no number the next one.
func numbered(events ...*heddlev1.Event) []*heddlev1.Event {
	next := uint64(1)
	for _, ev := range events {
		if ev.Seq == 0 {
			ev.Seq = next
		}
		ev.ThreadId = "th"
		next = lastOf(ev) + 1
	}
	return events
}

func asked(id string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: "t", Payload: &heddlev1.Event_ApprovalRequested{ApprovalRequested: &heddlev1.ApprovalRequested{Approval: &heddlev1.Approval{Id: id}}}}
}

func turn(middle ...*heddlev1.Event) []*heddlev1.Event {
	events := append([]*heddlev1.Event{accepted("go")}, said("go")...)
	return append(append(events, middle...), over(heddlev1.TurnStatus_TURN_STATUS_COMPLETED))
}

func TestCheckLogFindsEach(t *testing.T) {
	background := ended("b")
	background.GetItemCompleted().GetItem().GetCommandExecution().Background = true
	cases := []struct {
		name, want string
		events     []*heddlev1.Event
	}{
		{"clean", "", turn(begun("c"), ended("c"))},
		{"background terminal", "", append(turn(begun("b")), background)},
		{"steer", "", turn(append([]*heddlev1.Event{steered("more")}, said("more")...)...)},
		{"no end of a turn", "has no end", []*heddlev1.Event{accepted("go")}},
		{"two ends of a turn", "ends twice", append(turn(), over(heddlev1.TurnStatus_TURN_STATUS_FAILED))},
		{"no end of an item", "has no end", turn(begun("c"))},
		{"two ends of an item", "completes twice", turn(begun("c"), ended("c"), ended("c"))},
		{"an end without a start", "never started", turn(ended("c"))},
		{"late end of an item", "completes after turn", append(turn(begun("c")), ended("c"))},
		{"interrupted with an open item", "with item c open", append(append([]*heddlev1.Event{accepted("go")}, said("go")...), begun("c"), over(heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED), background, ended("c"))},
		{"late delta", "after the end of turn", append(turn(), delta())},
		{"lost steer", "is no item", turn(steered("more"))},
		{"lost input", "is no item", []*heddlev1.Event{accepted("go"), over(heddlev1.TurnStatus_TURN_STATUS_FAILED)}},
		{"open question", "never resolved", turn(asked("q"))},
		{"gap", "want seq", append(turn(), &heddlev1.Event{Seq: 9, Payload: &heddlev1.Event_ThreadNamed{}})},
		{"damage", "damaged", append(turn(), &heddlev1.Event{Payload: &heddlev1.Event_RangeCompacted{RangeCompacted: &heddlev1.RangeCompacted{Damaged: true}}})},
	}
	for _, c := range cases {
		events := numbered(c.events...)
		found := CheckLog("th", events, lastOf(events[len(events)-1]))
		expect(t, c.name, c.want, found)
	}
	expect(t, "short log", "its head is 9", CheckLog("th", numbered(turn()...), 9))
}

func expect(t *testing.T, name, want string, found []Violation) {
	t.Helper()
	var all []string
	for _, v := range found {
		all = append(all, v.String())
	}
	text := strings.Join(all, "\n")
	if want == "" && text != "" || !strings.Contains(text, want) {
		t.Errorf("%s: found %q, want %q", name, text, want)
	}
}

func TestSeen(t *testing.T) {
	log := numbered(turn(begun("c"), delta(), delta(), ended("c"))...)
	compacted := func(first, last uint64) *heddlev1.Event {
		return &heddlev1.Event{Seq: first, ThreadId: "th", Payload: &heddlev1.Event_RangeCompacted{RangeCompacted: &heddlev1.RangeCompacted{LastSeq: last, ItemId: "a"}}}
	}
	s := NewSeen()
	s.Observe("a", log...)
	s.Observe("b", compacted(5, 6))
	expect(t, "the same, and compacted deltas", "", s.Compare("th", log))
	s.Observe("c", compacted(5, 7))
	expect(t, "a compacted milestone", "was shown", s.Compare("th", log))

	s = NewSeen()
	s.Observe("a", log...)
	other := proto.CloneOf(log[3])
	other.TimeMs++
	s.Observe("b", other)
	expect(t, "a number given twice", "was shown", s.Compare("th", log))

	s = NewSeen()
	s.Observe("a", log...)
	expect(t, "a lost event", "does not have", s.Compare("th", log[:len(log)-1]))

	s = NewSeen()
	cur := Cursor{Reader: "a", Thread: "th"}
	cur.Take(s, log[:2], 8)
	cur.Take(s, log[3:], 8)
	expect(t, "a hole", "stood at 2", s.Compare("th", log))

	s = NewSeen()
	inside := Cursor{Reader: "a", Thread: "th", After: 5}
	inside.Take(s, []*heddlev1.Event{compacted(5, 6), log[6]}, 8)
	expect(t, "from inside a range", "", s.Compare("th", log))
}

func TestCheckEffects(t *testing.T) {
	logs := map[string][]*heddlev1.Event{"th": numbered(turn(begun("c"), ended("c"))...)}
	check := func(lines ...string) []Violation {
		_, found := CheckEffects(lines, logs)
		return found
	}
	expect(t, "once", "", check("TKN-1-1"))
	expect(t, "twice", "ran 2 times", check("TKN-1-1", "TKN-1-1"))
	expect(t, "missing", "left no line", check())
	expect(t, "without an item", "no item says so", check("TKN-1-1", "TKN-1-2"))
	logs["th"][4].GetItemCompleted().GetItem().Status = heddlev1.ItemStatus_ITEM_STATUS_DECLINED
	expect(t, "declined", "declined and ran", check("TKN-1-1"))
}

func TestCheckNotes(t *testing.T) {
	log := numbered(turn(begun("c"), delta(), ended("c"))...)
	note := func(seq, prev uint64, method, subject string) Note {
		return Note{Chain: "x", Thread: "th", Method: method, Seq: seq, Prev: prev, Subject: subject}
	}
	start, inc, end := note(4, 3, "item/started", "c"), note(5, 4, "item/agentMessage/delta", ""), note(6, 5, "item/completed", "c")
	expect(t, "clean", "", CheckNotes([]Note{start, inc, end}, log))
	expect(t, "wrong prev", "prev is 5", CheckNotes([]Note{start, end}, log))
	expect(t, "repeated", "comes after", CheckNotes([]Note{start, start}, log))
	expect(t, "wrong kind", "the log has", CheckNotes([]Note{note(4, 3, "turn/completed", "t")}, log))
	expect(t, "wrong subject", "about c", CheckNotes([]Note{note(4, 3, "item/started", "d")}, log))
	expect(t, "left out", "was left out", CheckNotes([]Note{start, note(7, 4, "turn/completed", "t")}, log))
	expect(t, "not in the log", "no such event", CheckNotes([]Note{note(5, 4, "turn/completed", "t")}, log))
}
