package robust

import (
	"fmt"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Violation is one broken promise and where it shows.
type Violation struct {
	Thread string
	Seq    uint64
	What   string
}

func (v Violation) String() string {
	return fmt.Sprintf("thread %s seq %d: %s", v.Thread, v.Seq, v.What)
}

// turnTrace is what the log says about one turn.
type turnTrace struct {
	accepted, completed uint64
	steers              map[string]uint64 // text of an accepted steer that is no item yet
	open                map[string]bool   // items that are not completed
}

type itemTrace struct {
	turn               string
	started, completed uint64
}

// logCheck reads a log once, in order.
type logCheck struct {
	thread    string
	next      uint64
	turns     map[string]*turnTrace
	order     []string
	items     map[string]*itemTrace
	approvals map[string]uint64
	out       []Violation
}

// CheckLog checks a whole log, read from its first event to its head when
// nothing is open any more: numbers without gaps (I1); each turn ends once, each
// item once and before its turn, background terminals excepted (I2); each
// question is resolved once; no accepted steer is lost.
func CheckLog(thread string, events []*heddlev1.Event, head uint64) []Violation {
	c := &logCheck{thread: thread, next: 1, turns: map[string]*turnTrace{}, items: map[string]*itemTrace{}, approvals: map[string]uint64{}}
	for _, ev := range events {
		c.event(ev)
	}
	if c.next != head+1 {
		c.bad(c.next, "the log ends at %d, its head is %d", c.next-1, head)
	}
	for _, id := range c.order {
		if t := c.turns[id]; t.completed == 0 {
			c.bad(t.accepted, "turn %s has no end", id)
		}
	}
	for id, it := range c.items {
		if it.completed == 0 {
			c.bad(it.started, "item %s of turn %s has no end", id, it.turn)
		}
	}
	for id, seq := range c.approvals {
		if seq != 0 {
			c.bad(seq, "approval %s was never resolved", id)
		}
	}
	return c.out
}

func (c *logCheck) bad(seq uint64, format string, args ...any) {
	c.out = append(c.out, Violation{c.thread, seq, fmt.Sprintf(format, args...)})
}

// lastOf is the last seq that an event accounts for.
func lastOf(ev *heddlev1.Event) uint64 {
	return max(ev.GetSeq(), ev.GetRangeCompacted().GetLastSeq())
}

func (c *logCheck) event(ev *heddlev1.Event) {
	seq := ev.GetSeq()
	if seq != c.next {
		c.bad(seq, "want seq %d", c.next)
	}
	if ev.GetThreadId() != c.thread {
		c.bad(seq, "the event belongs to thread %s", ev.GetThreadId())
	}
	c.next = lastOf(ev) + 1
	if ev.GetTurnId() != "" {
		c.late(ev)
	}
	switch p := ev.GetPayload().(type) {
	case *heddlev1.Event_RangeCompacted:
		if p.RangeCompacted.GetDamaged() {
			c.bad(seq, "records up to %d are damaged", p.RangeCompacted.GetLastSeq())
		}
	case *heddlev1.Event_TurnAccepted:
		c.accepted(seq, p.TurnAccepted)
	case *heddlev1.Event_SteerAccepted:
		if t := c.turns[ev.GetTurnId()]; t != nil {
			t.steers[textOf(p.SteerAccepted.GetInput())] = seq
		}
	case *heddlev1.Event_ItemStarted:
		c.itemStarted(ev, p.ItemStarted.GetItem())
	case *heddlev1.Event_ItemCompleted:
		c.itemCompleted(ev, p.ItemCompleted.GetItem())
	case *heddlev1.Event_TurnCompleted:
		c.turnCompleted(ev)
	case *heddlev1.Event_ApprovalRequested:
		id := p.ApprovalRequested.GetApproval().GetId()
		if _, again := c.approvals[id]; again {
			c.bad(seq, "approval %s is asked again under the same id", id)
		}
		c.approvals[id] = seq
	case *heddlev1.Event_ApprovalResolved:
		id := p.ApprovalResolved.GetApproval().GetId()
		if c.approvals[id] == 0 {
			c.bad(seq, "approval %s is resolved and was not open", id)
		}
		c.approvals[id] = 0
	}
}

// late checks what comes after the end of its turn: only a background terminal's
// own events may.
func (c *logCheck) late(ev *heddlev1.Event) {
	t := c.turns[ev.GetTurnId()]
	if t == nil {
		if ev.GetTurnAccepted() == nil {
			c.bad(ev.GetSeq(), "%T of turn %s, which was not accepted", ev.GetPayload(), ev.GetTurnId())
		}
		return
	}
	if t.completed == 0 {
		return
	}
	switch ev.GetPayload().(type) {
	case *heddlev1.Event_ItemCompleted, *heddlev1.Event_TurnCompleted, *heddlev1.Event_ItemStarted:
		// Checked by their own rules.
	case *heddlev1.Event_OutputAdvanced, *heddlev1.Event_TerminalInteraction, *heddlev1.Event_ActionsResolved, *heddlev1.Event_RangeCompacted:
	default:
		c.bad(ev.GetSeq(), "%T after the end of turn %s", ev.GetPayload(), ev.GetTurnId())
	}
}

func (c *logCheck) accepted(seq uint64, p *heddlev1.TurnAccepted) {
	id := p.GetTurn().GetId()
	if c.turns[id] != nil {
		c.bad(seq, "turn %s is accepted twice", id)
		return
	}
	for _, other := range c.order {
		if c.turns[other].completed == 0 {
			c.bad(seq, "turn %s is accepted while %s is open", id, other)
		}
	}
	t := &turnTrace{accepted: seq, steers: map[string]uint64{}, open: map[string]bool{}}
	if !p.GetNoInput() {
		t.steers[textOf(p.GetInput())] = seq
	}
	c.turns[id], c.order = t, append(c.order, id)
}

func (c *logCheck) itemStarted(ev *heddlev1.Event, item *heddlev1.Item) {
	id, seq := item.GetId(), ev.GetSeq()
	if c.items[id] != nil {
		c.bad(seq, "item %s starts twice", id)
		return
	}
	c.items[id] = &itemTrace{turn: item.GetTurnId(), started: seq}
	t := c.turns[item.GetTurnId()]
	if t == nil || t.completed != 0 {
		c.bad(seq, "item %s starts outside its turn %s", id, item.GetTurnId())
		return
	}
	t.open[id] = true
}

func (c *logCheck) itemCompleted(ev *heddlev1.Event, item *heddlev1.Item) {
	id, seq := item.GetId(), ev.GetSeq()
	it := c.items[id]
	switch {
	case it == nil:
		c.bad(seq, "item %s completes and never started", id)
		return
	case it.completed != 0:
		c.bad(seq, "item %s completes twice", id)
		return
	}
	it.completed = seq
	t := c.turns[it.turn]
	if t == nil {
		return
	}
	delete(t.open, id)
	if t.completed != 0 && !item.GetCommandExecution().GetBackground() {
		c.bad(seq, "item %s completes after turn %s", id, it.turn)
	}
	if m := item.GetUserMessage(); m != nil {
		delete(t.steers, textOf(m))
	}
	if item.GetStatus() == heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS {
		c.bad(seq, "item %s completes as in progress", id)
	}
}

func (c *logCheck) turnCompleted(ev *heddlev1.Event) {
	id, seq := ev.GetTurnCompleted().GetTurn().GetId(), ev.GetSeq()
	t := c.turns[id]
	switch {
	case t == nil:
		c.bad(seq, "turn %s ends and was not accepted", id)
		return
	case t.completed != 0:
		c.bad(seq, "turn %s ends twice", id)
		return
	}
	t.completed = seq
	for text, at := range t.steers {
		c.bad(at, "input %q was accepted and is no item when turn %s ends", text, id)
	}
	interrupted := ev.GetTurnCompleted().GetTurn().GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED
	for item := range t.open {
		if interrupted {
			c.bad(seq, "turn %s ends with item %s open", id, item)
		}
	}
}

func textOf(m *heddlev1.UserMessage) string {
	var text string
	for _, p := range m.GetParts() {
		text += p.GetText()
	}
	return text
}
