package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/approval"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// finishAttempts are the tries to record a turn's end after which who waits for
// it is told that the store fails. The tries go on, finishRetry apart at most:
// an end that was given up would keep the thread busy until a restart.
const (
	finishAttempts = 5
	finishRetry    = time.Second
)

// ending is the end of a turn on its way into the log.
type ending struct {
	// events end the turn; before them go those that make up for what was lost with
	// failed commits.
	events, made []*heddlev1.Event
	// lost is the last failure of a commit, nil while there was none. unclaimed is true
	// from then on until the thread is claimed anew: its log takes nothing before.
	lost      error
	unclaimed bool
}

// recordEnd makes the end durable, the patch of the turn before it. It goes on
// until it is, or the control plane stops; the next start ends the turn then.
func (t *turn) recordEnd(events []*heddlev1.Event) {
	e := &ending{events: events}
	for i := 0; ; i++ {
		err := t.tryEnd(e, i+1 < finishAttempts)
		if err == nil {
			if i >= finishAttempts {
				t.notify("the store takes writes again: the end of the turn is recorded")
			}
			return
		}
		t.agent.cfg.Logger.Error("record the end of a turn", "thread", t.lt.id, "turn", t.id(), "attempt", i+1, "error", err)
		if i+1 == finishAttempts {
			close(t.stuck)
			t.notify(fmt.Sprintf("the end of the turn cannot be recorded, since the store of %s takes no writes: %v. It is tried again every second until it can be; free space, or stop the control plane.", t.agent.where(), err))
		}
		select {
		case <-time.After(min(100*time.Millisecond<<min(i, finishAttempts), finishRetry)):
		case <-t.agent.ctx.Done():
			return
		}
	}
}

// tryEnd tries once to record the end. With patchToo unset the end does not wait
// for a patch that cannot be kept.
func (t *turn) tryEnd(e *ending, patchToo bool) error {
	ctx := context.WithoutCancel(t.agent.ctx)
	for {
		// One that completed may end as failed: then what it left running ends before it.
		if t.snapshot().GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
			t.endProcesses()
		}
		// Whoever claimed the thread anew, a commit had failed, and what was lost with it may be ours.
		if e.unclaimed || t.lt.claims() != t.claimed {
			ended, err := t.makeUp(ctx, e)
			if ended || err != nil {
				return err
			}
			continue // it may end as failed now
		}
		if err := t.keepDiff(e.events, patchToo); err != nil {
			return err
		}
		p, same := t.lt.appendSince(t.claimed, slices.Concat(e.made, e.events)...)
		if !same {
			continue
		}
		err := p.Wait(ctx)
		if err != nil {
			e.lost, e.unclaimed, e.events = err, true, t.failed(copies(e.events), err)
		}
		return err
	}
}

// makeUp looks at what the store holds of the turn after a commit failed, and
// prepares what makes up for the rest. It reports whether the end is there already.
func (t *turn) makeUp(ctx context.Context, e *ending) (ended bool, err error) {
	// The claim waits for what is queued: what the store holds then, it keeps.
	claimed, err := t.lt.reclaim(ctx)
	if err != nil {
		return false, fmt.Errorf("claim the thread again: %w", err)
	}
	row, err := t.agent.store.Turn(ctx, t.lt.id, t.id())
	if err != nil {
		return false, err
	}
	if row.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS {
		return true, nil
	}
	if !e.unclaimed && t.lostAnswer(ctx) {
		e.events = t.failed(copies(e.events), errAnswerLost)
	}
	e.unclaimed, t.claimed = false, claimed
	e.made = t.missing(ctx, row, e.lost)
	return false, nil
}

// lostAnswer reports whether what the model said last is not in the store.
func (t *turn) lostAnswer(ctx context.Context) bool {
	if t.last == nil {
		return false
	}
	row, err := t.agent.store.Item(ctx, t.lt.id, t.last.GetId())
	return err != nil || row.Open()
}

// missing makes up for what was lost with failed commits: it closes what is open
// in the log, and shows the accepted inputs that are no items.
func (t *turn) missing(ctx context.Context, row *heddlev1.Turn, lost error) []*heddlev1.Event {
	events := t.missingInputs(ctx, row)
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
func (t *turn) missingInputs(ctx context.Context, row *heddlev1.Turn) []*heddlev1.Event {
	p, err := t.agent.readPast(ctx, t.lt.id, row)
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
		begun := proto.CloneOf(t.snapshot())
		begun.Status, begun.CompletedAtMs, begun.DurationMs, begun.Error, begun.LastAgentMessage, begun.InterruptCause = heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS, 0, 0, nil, nil, ""
		events = append(events, turnStarted(begun))
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
