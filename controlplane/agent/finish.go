package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	"github.com/heddle-dev/heddle/proto/failpoint"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// finishAttempts are the tries to record a turn's end after which who waits for
// it is told that the store fails. The tries go on, finishRetry apart at most:
// an end that was given up would keep the thread busy until a restart.
const (
	finishAttempts = 5
	finishRetry    = time.Second
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

// mend prepares another try to record the end. After a failed commit the log
// takes nothing before the thread is claimed anew.
func (t *turn) mend(end []*heddlev1.Event, lost error) []*heddlev1.Event {
	if err := t.lt.reclaim(context.WithoutCancel(t.agent.ctx)); err != nil {
		t.agent.cfg.Logger.Error("claim a thread again", "thread", t.lt.id, "error", err)
	}
	return t.failed(copies(end), lost)
}

// missing makes up for what was lost with failed commits: it closes what is open
// in the log, and shows the accepted inputs that are no items.
func (t *turn) missing(lost error) []*heddlev1.Event {
	ctx := context.WithoutCancel(t.agent.ctx)
	events := t.missingInputs(ctx)
	pending, err := t.agent.store.PendingApprovals(ctx, t.lt.id)
	if err != nil {
		t.agent.cfg.Logger.Error("read approvals", "thread", t.lt.id, "error", err)
	}
	for _, a := range pending {
		if a.GetTurnId() != t.id() {
			continue
		}
		a = proto.CloneOf(a)
		a.Decision, a.DecidedBy, a.DecidedAtMs = heddlev1.Decision_DECISION_CANCEL, approval.ByInterrupt, t.agent.now()
		events = append(events, &heddlev1.Event{TurnId: t.id(), Payload: &heddlev1.Event_ApprovalResolved{ApprovalResolved: &heddlev1.ApprovalResolved{Approval: a}}})
	}
	open, err := t.agent.store.OpenItems(ctx, t.lt.id)
	if err != nil {
		t.agent.cfg.Logger.Error("read open items", "thread", t.lt.id, "error", err)
	}
	for _, item := range open {
		if item.GetTurnId() != t.id() || item.GetCommandExecution() != nil && t.runs(item.GetId()) {
			continue
		}
		item = proto.CloneOf(item)
		item.Status, item.CompletedAtMs = heddlev1.ItemStatus_ITEM_STATUS_FAILED, t.agent.now()
		setError(item, &heddlev1.ActionError{Code: "not_recorded", Message: lostText(lost)})
		events = append(events, itemCompleted(item))
	}
	return events
}

// missingInputs shows the accepted inputs of which the log has no item, after the
// turn's start.
func (t *turn) missingInputs(ctx context.Context) []*heddlev1.Event {
	row, err := t.agent.store.Turn(ctx, t.lt.id, t.id())
	var p *resumption
	if err == nil {
		p, err = t.agent.readPast(ctx, t.lt.id, row)
	}
	if err != nil {
		t.agent.cfg.Logger.Error("read a turn's events", "thread", t.lt.id, "turn", t.id(), "error", err)
		return nil
	}
	inputs := p.steers
	if p.first != nil {
		inputs = append([]*heddlev1.UserMessage{p.first}, inputs...)
	}
	var events []*heddlev1.Event
	if !p.started {
		row := proto.CloneOf(t.snapshot())
		row.Status, row.CompletedAtMs, row.DurationMs, row.Error, row.LastAgentMessage, row.InterruptCause = heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS, 0, 0, nil, nil, ""
		events = append(events, turnStarted(row))
	}
	for _, in := range inputs {
		events = append(events, t.shown(in)...)
	}
	return events
}

// runs reports whether a process of the item still runs.
func (t *turn) runs(itemID string) bool {
	return len(t.lt.processes(func(p *process) bool { return p.item.GetId() == itemID && p.isRunning() })) > 0
}

// copies are the events as they were before a log numbered them. Those that do
// not end the turn are left out: they may be what the log refused.
func copies(end []*heddlev1.Event) []*heddlev1.Event {
	var out []*heddlev1.Event
	for _, ev := range end {
		if ev.GetTurnCompleted() != nil || ev.GetErrorRaised() != nil {
			c := proto.CloneOf(ev)
			c.Seq, c.TimeMs = 0, 0
			out = append(out, c)
		}
	}
	return out
}

// failed makes the end of a completed turn that of a failed one: what the model
// said last was lost with the commit, so that the end would promise an answer
// that nobody can read.
func (t *turn) failed(end []*heddlev1.Event, lost error) []*heddlev1.Event {
	completed := slices.ContainsFunc(end, func(ev *heddlev1.Event) bool {
		return ev.GetTurnCompleted().GetTurn().GetStatus() == heddlev1.TurnStatus_TURN_STATUS_COMPLETED
	})
	if !completed {
		return end
	}
	row := t.change(func(r *heddlev1.Turn) {
		r.Status, r.Error, r.LastAgentMessage = heddlev1.TurnStatus_TURN_STATUS_FAILED, turnError(lost), nil
	})
	return []*heddlev1.Event{errorRaised(row.GetId(), row.GetError(), false), turnCompleted(row)}
}

// recordEnd makes the end durable, the patch of the turn before it. It goes on
// until it is, or the control plane stops; the next start ends the turn then.
func (t *turn) recordEnd(end []*heddlev1.Event) {
	var made []*heddlev1.Event // makes up for what was lost with failed commits
	var lost error
	for i := 0; ; i++ {
		// One that completed may end as failed: then what it left running ends before it.
		if t.snapshot().GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
			t.endProcesses()
		}
		// Whoever claimed the thread anew, a commit had failed, and what was lost with it may be ours.
		if n := t.lt.claims(); n != t.claimed {
			made, t.claimed = t.missing(lost), n
		}
		err := t.keepDiff(end, i+1 < finishAttempts)
		kept := err == nil
		if kept {
			p, same := t.lt.appendSince(t.claimed, slices.Concat(made, end)...)
			if !same {
				i--
				continue
			}
			if err = p.Wait(context.WithoutCancel(t.agent.ctx)); err == nil {
				if i >= finishAttempts {
					t.notify("the store takes writes again: the end of the turn is recorded")
				}
				return
			}
		}
		t.agent.cfg.Logger.Error("record the end of a turn", "thread", t.lt.id, "turn", t.id(), "attempt", i+1, "error", err)
		if i+1 == finishAttempts {
			close(t.stuck)
			t.notify(fmt.Sprintf("the end of the turn cannot be recorded, since the store of %s takes no writes: %v. It is tried again every second until it can be; free space, or stop the control plane.", t.agent.where(), err))
		}
		if kept {
			end, lost = t.mend(end, err), err
		}
		select {
		case <-time.After(min(100*time.Millisecond<<min(i, finishAttempts), finishRetry)):
		case <-t.agent.ctx.Done():
			return
		}
	}
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
