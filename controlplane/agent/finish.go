package agent

import (
	"context"
	"errors"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// finishAttempts bounds the tries to record a turn's end in a store that fails;
// past it, the next start of a control plane ends the turn.
const finishAttempts = 5

// finish ends the turn, once: processes, inputs that came too late for the
// model, then TurnCompleted.
func (t *turn) finish(err error) {
	leftover := t.close()
	status, interrupted := statusOf(err)
	if status == heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.keepProcesses()
	} else {
		t.lt.endProcesses(func(p *process) bool { return p.turnID == t.id() })
	}
	var events []*heddlev1.Event
	if t.first != nil {
		// The input belongs to the thread even where the turn could not begin.
		leftover = append([]*heddlev1.UserMessage{t.first}, leftover...)
	}
	for _, in := range leftover {
		t.takeInput(in)
	}
	if interrupted != nil {
		events = append(events, t.remember(prompt.Aborted()))
	}
	if d := t.diff.text(); d != "" {
		events = append(events, diffUpdated(t.id(), d))
	}
	row := t.change(func(r *heddlev1.Turn) {
		r.Status = status
		r.CompletedAtMs = t.agent.now()
		r.DurationMs = max(0, r.CompletedAtMs-r.StartedAtMs)
		r.LastAgentMessage = t.last
		if interrupted != nil {
			r.InterruptCause = interrupted.cause
		}
		if status == heddlev1.TurnStatus_TURN_STATUS_FAILED {
			r.Error = turnError(err)
		}
	})
	if row.GetError() != nil {
		events = append(events, errorRaised(row.GetId(), row.GetError(), false))
	}
	events = append(events, turnCompleted(row))
	t.recordEnd(events)
	t.lt.mu.Lock()
	if t.lt.turn == t {
		t.lt.turn = nil
	}
	t.lt.mu.Unlock()
	close(t.done)
	t.agent.turnEnded(t.lt)
}

// recordEnd makes the end durable.
func (t *turn) recordEnd(events []*heddlev1.Event) {
	for i := range finishAttempts {
		err := t.lt.append(events...).Wait(context.WithoutCancel(t.agent.ctx))
		if err == nil {
			return
		}
		t.agent.cfg.Logger.Error("record the end of a turn", "thread", t.lt.id, "turn", t.id(), "attempt", i+1, "error", err)
		select {
		case <-time.After(100 * time.Millisecond << i):
		case <-t.agent.ctx.Done():
			return
		}
	}
}

// keepProcesses makes what still runs background terminals.
func (t *turn) keepProcesses() {
	for _, p := range t.lt.processes(func(p *process) bool { return p.turnID == t.row.GetId() }) {
		p.mu.Lock()
		p.background = !p.finished
		p.mu.Unlock()
	}
}

func statusOf(err error) (heddlev1.TurnStatus, *interruption) {
	if err == nil {
		return heddlev1.TurnStatus_TURN_STATUS_COMPLETED, nil
	}
	var i *interruption
	if errors.As(err, &i) {
		return heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED, i
	}
	return heddlev1.TurnStatus_TURN_STATUS_FAILED, nil
}
