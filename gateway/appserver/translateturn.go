package appserver

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type turnNote struct {
	ThreadID string        `json:"threadId"`
	Turn     protocol.Turn `json:"turn"`
}

func (tr *translator) turnCompleted(e *heddlev1.Event, t *heddlev1.Turn, emit func(note) error) error {
	clear(tr.pending)
	clear(tr.inputs)
	tr.turn = nil
	tr.state = heddlev1.ThreadState_THREAD_STATE_IDLE
	if t.GetStatus() == heddlev1.TurnStatus_TURN_STATUS_FAILED {
		tr.state = heddlev1.ThreadState_THREAD_STATE_SYSTEM_ERROR
	}
	wire := protocol.FromTurn(t)
	if m := t.GetLastAgentMessage(); m != nil && t.GetStatus() == heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		wire.Items, wire.ItemsView = []any{protocol.FromItem(m, tr.opts)}, protocol.ViewSummary
	}
	next := &heddlev1.ReadState{Revision: e.GetSeq(), FirstUnreadTurnId: tr.unread.GetFirstUnreadTurnId(), FromStart: tr.unread.GetFromStart()}
	if next.FirstUnreadTurnId == "" {
		next.FirstUnreadTurnId = t.GetId()
	}
	tr.unread = next
	if err := emit(readNote(tr.thread, next, 0)); err != nil {
		return err
	}
	if err := tr.showStatus(emit); err != nil {
		return err
	}
	return tr.local(emit, note{method: "turn/completed", seq: e.GetSeq(), params: turnNote{tr.thread, wire}})
}

func (tr *translator) errorRaised(e *heddlev1.Event, p *heddlev1.ErrorRaised, emit func(note) error) error {
	if !p.GetWillRetry() {
		tr.state = heddlev1.ThreadState_THREAD_STATE_SYSTEM_ERROR
		clear(tr.pending)
		clear(tr.inputs)
		if err := tr.showStatus(emit); err != nil {
			return err
		}
	}
	return tr.local(emit, note{method: "error", seq: e.GetSeq(), params: struct {
		turnRef
		Error     *protocol.TurnError `json:"error"`
		WillRetry bool                `json:"willRetry"`
	}{turnRef{tr.thread, e.GetTurnId()}, protocol.FromError(p.GetError()), p.GetWillRetry()}})
}

func (tr *translator) approvalRequested(e *heddlev1.Event, a *heddlev1.Approval, emit func(note) error) error {
	if a.GetReviewer() != "" {
		return tr.local(emit, reviewStarted(e, a))
	}
	tr.asked(a)
	if err := tr.showStatus(emit); err != nil {
		return err
	}
	return tr.local(emit, note{ask: a, seq: e.GetSeq()})
}

func (tr *translator) approvalResolved(e *heddlev1.Event, a *heddlev1.Approval, emit func(note) error) error {
	if a.GetReviewer() != "" {
		return tr.local(emit, reviewCompleted(e, a))
	}
	delete(tr.pending, a.GetId())
	delete(tr.inputs, a.GetId())
	id := a.GetRequestId()
	err := tr.local(emit, note{method: "serverRequest/resolved", seq: e.GetSeq(), resolved: &id, params: map[string]any{
		"threadId": tr.thread, "requestId": id,
	}})
	if err != nil {
		return err
	}
	return tr.showStatus(emit)
}

// reverted tells that turns were taken back. Everything is read then, since
// what was not may be gone.
func (tr *translator) reverted(e *heddlev1.Event, emit func(note) error) error {
	tr.state = heddlev1.ThreadState_THREAD_STATE_IDLE
	tr.unread = &heddlev1.ReadState{Revision: e.GetSeq()}
	if err := tr.showStatus(emit); err != nil {
		return err
	}
	if err := emit(note{method: "thread/reverted", all: true, seq: e.GetSeq(), params: threadID{tr.thread}}); err != nil {
		return err
	}
	return emit(readNote(tr.thread, tr.unread, 0))
}

// lost ends what was open in a thread that is no more, so that every item and
// turn that was started is also completed.
func (tr *translator) lost(emit func(note) error) error {
	now := time.Now().UnixMilli()
	for _, id := range slices.Sorted(maps.Keys(tr.items)) {
		o := tr.items[id]
		if o.item == nil {
			continue
		}
		it := proto.CloneOf(o.item)
		it.Status, it.CompletedAtMs = heddlev1.ItemStatus_ITEM_STATUS_FAILED, now
		switch {
		case it.GetAgentMessage() != nil:
			it.GetAgentMessage().Text = string(o.text)
		case it.GetPlan() != nil:
			it.GetPlan().Text = string(o.text)
		}
		if err := tr.itemCompleted(&heddlev1.Event{ThreadId: tr.thread, TurnId: it.GetTurnId()}, it, emit); err != nil {
			return err
		}
	}
	if tr.turn == nil {
		return nil // a background terminal was all that was open
	}
	e := &heddlev1.Event{ThreadId: tr.thread, TurnId: tr.turn.GetId()}
	turn := proto.CloneOf(tr.turn)
	turn.Status, turn.CompletedAtMs = heddlev1.TurnStatus_TURN_STATUS_FAILED, now
	turn.DurationMs = now - turn.GetStartedAtMs()
	turn.Error = &heddlev1.TurnError{Message: "the thread was lost: it is gone from the control plane", Kind: "other"}
	if err := tr.errorRaised(e, &heddlev1.ErrorRaised{Error: turn.GetError()}, emit); err != nil {
		return err
	}
	return tr.turnCompleted(e, turn, emit)
}
