package agent

import (
	"errors"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	"github.com/heddle-dev/heddle/proto/failpoint"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// errEndNotRecorded is the answer to who wants a new turn meanwhile.
func errEndNotRecorded() error {
	return errdefs.New(errdefs.StoreUnavailable, "the end of the thread's last turn cannot be recorded: the store takes no writes; free space and try again")
}

// finish ends the turn, once: processes, inputs that came too late for the
// model, then TurnCompleted.
func (t *turn) finish(err error) {
	leftover := t.close()
	t.closeHosts()
	status, interrupted := statusOf(err)
	if status == heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.endGranted()
		t.keepProcesses()
	} else {
		t.endProcesses()
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
		events = append(events, diffUpdated(t.id(), d, t.diff.baseCommit()))
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
	events = append(events, t.accountGoal(row, err)...)
	if row.GetError() != nil {
		events = append(events, errorRaised(row.GetId(), row.GetError(), false))
	}
	events = append(events, turnCompleted(row))
	failpoint.Hit("agent/before-turn-end")
	t.recordEnd(events)
	t.dropDraft()
	t.lt.mu.Lock()
	if t.lt.turn == t {
		t.lt.turn = nil
	}
	t.lt.grants = thread.AfterTurn(t.lt.grants, t.id())
	t.lt.mu.Unlock()
	close(t.done)
	if t.lt.goesOn() || t.lt.currentGoal().GetStatus() == goalActive {
		t.agent.wg.Go(func() { t.agent.follow(t.lt, t) })
		return
	}
	t.agent.turnEnded(t.lt)
	t.agent.reportAgent(t.lt, row)
}

// endProcesses ends what the turn started and what still runs.
func (t *turn) endProcesses() {
	t.lt.endProcesses(func(p *process) bool { return p.turnID == t.id() })
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
