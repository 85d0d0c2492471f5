package dispatch

import (
	"fmt"

	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// fenced is what every message after register carries, but for renewal answers.
type fenced interface {
	GetLeaseId() string
	GetEpoch() uint64
}

// admit is the one place where a message is checked: it must come over the
// executor's current session, under a lease that this executor holds and under
// that lease's epoch. mu is held.
func (d *Dispatcher) admit(s *session, m fenced) error {
	if s.ex.session != s || s.ended() {
		return errdefs.New(errdefs.StaleEpoch, "session %s of executor %s is over", s.id, s.ex.id)
	}
	if _, err := d.lessor.Check(s.ex.id, m.GetLeaseId(), m.GetEpoch()); err != nil {
		return errdefs.New(errdefs.StaleEpoch, "%w", err)
	}
	return nil
}

// handle takes one message. An error ends the session; a stale message is
// refused without harm to it.
func (d *Dispatcher) handle(s *session, m *executorv1.ConnectRequest) error {
	d.mu.Lock()
	defer d.unlock(false)
	if s.ex.session != s || s.ended() {
		return fmt.Errorf("session %s is over", s.id)
	}
	switch k := m.GetMessage().(type) {
	case *executorv1.ConnectRequest_RenewAck:
		d.renewAck(s, k.RenewAck.GetRound())
	case *executorv1.ConnectRequest_LeaseReleased:
		if err := d.admit(s, k.LeaseReleased); err != nil {
			d.refuse(s, "lease_released", "", err)
			return nil
		}
		d.released(s, k.LeaseReleased)
	case *executorv1.ConnectRequest_ActionStarted:
		a, err := d.follow(s, k.ActionStarted)
		if err != nil {
			d.refuse(s, "action_started", k.ActionStarted.GetActionId(), err)
		} else if a != nil {
			a.prove(s)
			a.markStarted(k.ActionStarted.GetPid())
		}
	case *executorv1.ConnectRequest_Output:
		a, err := d.follow(s, k.Output)
		if err != nil {
			d.refuse(s, "output", k.Output.GetActionId(), err)
			return nil
		}
		return d.outputChunk(s, a, k.Output)
	case *executorv1.ConnectRequest_Result:
		a, err := d.follow(s, k.Result)
		d.actionResult(s, a, k.Result, err)
	case *executorv1.ConnectRequest_NetworkRequest:
		a, err := d.follow(s, k.NetworkRequest)
		if err != nil {
			d.refuse(s, "network_request", k.NetworkRequest.GetActionId(), err)
			return nil
		}
		d.networkRequest(a, k.NetworkRequest)
	case *executorv1.ConnectRequest_NetworkDecision:
		a, err := d.follow(s, k.NetworkDecision)
		if err != nil {
			d.refuse(s, "network_decision", k.NetworkDecision.GetActionId(), err)
			return nil
		}
		d.networkDecision(a, k.NetworkDecision)
	case *executorv1.ConnectRequest_InputTaken:
		a, err := d.follow(s, k.InputTaken)
		if err != nil {
			d.refuse(s, "input_taken", k.InputTaken.GetActionId(), err)
		} else if a != nil {
			a.dropInput(func(w sentStdin) bool { return w.msg.GetWriteSeq() <= k.InputTaken.GetWriteSeq() })
		}
	case *executorv1.ConnectRequest_Register:
		return errdefs.New(errdefs.InvalidArgument, "a session registers once")
	case nil:
		// A message of a newer protocol; nothing here depends on it.
	}
	return nil
}

func (d *Dispatcher) refuse(s *session, what, actionID string, err error) {
	d.cfg.Logger.Warn("message of an executor refused", "what", what, "executor_id", s.ex.id,
		"session_id", s.id, "action_id", actionID, "err", err)
}

// released ends a lease that the executor confirmed to have ended, asked or not.
func (d *Dispatcher) released(s *session, m *executorv1.LeaseReleased) {
	end := d.cancelled
	if l, ok := d.lessor.Check(s.ex.id, m.GetLeaseId(), m.GetEpoch()); ok == nil && !l.Revoked {
		end = func(a *action) { d.lost(a, "it gave the lease back, its commands have ended") }
	}
	d.endLease(m.GetLeaseId(), m.GetEpoch(), end)
}

// about is a message about one action.
type about interface {
	fenced
	GetActionId() string
}

// follow admits a message about an action and finds the action. It returns nil
// without an error for an action under a current lease that nobody waits for.
//
// What comes from an outbox may be under a lease that its executor does not hold
// any more. It counts as long as the action is asked for, or may still be asked
// for after a start, and no higher epoch was granted for its scope: the clock
// has no say.
func (d *Dispatcher) follow(s *session, m about) (*action, error) {
	stale := d.admit(s, m)
	a := d.actions[m.GetActionId()]
	switch {
	case a == nil && (!d.swept || d.claims[m.GetActionId()] != nil):
		return d.announce(s.ex, m)
	case a == nil:
		return nil, stale
	case a.executorID != s.ex.id || a.leaseID != m.GetLeaseId() || a.epoch != m.GetEpoch():
		if stale == nil {
			stale = errdefs.New(errdefs.StaleEpoch, "another executor or lease has action %s", a.id)
		}
		return nil, stale
	case stale != nil && d.lessor.Superseded(a.spec.Scope, a.epoch):
		return nil, stale
	}
	return a, nil
}

func (d *Dispatcher) outputChunk(s *session, a *action, c *executorv1.OutputChunk) error {
	if c.GetStream() != 1 && c.GetStream() != 2 || c.GetOffset() < 0 {
		return errdefs.New(errdefs.InvalidArgument, "output of action %s: stream %d, offset %d", c.GetActionId(), c.GetStream(), c.GetOffset())
	}
	if a == nil || !a.live() {
		// Nobody follows this action; credits keep the executor from stalling.
		d.postOutputAck(s, c.GetActionId(), c.GetStream(), c.GetOffset()+int64(len(c.GetData())))
		return nil
	}
	st := &a.output[c.GetStream()]
	if st.known && c.GetOffset() > st.next {
		d.cfg.Logger.Warn("output with a gap", "action_id", a.id, "stream", c.GetStream(), "expected", st.next, "got", c.GetOffset())
	}
	c = a.accept(c)
	if c == nil {
		d.postOutputAcks(s, a)
		return nil
	}
	a.queue, a.queued = append(a.queue, c), a.queued+int64(len(c.GetData()))
	if a.queued > 2*d.cfg.Window {
		return errdefs.New(errdefs.Overloaded, "action %s sent %d bytes without credit, the window is %d", a.id, a.queued, d.cfg.Window)
	}
	d.kick(a)
	return nil
}

// actionResult ends an action, once. A result that counts for nobody is
// acknowledged all the same, so that its executor can forget it.
func (d *Dispatcher) actionResult(s *session, a *action, res *executorv1.ActionResult, err error) {
	switch {
	case err != nil:
		d.refuse(s, "result", res.GetActionId(), err)
		d.postResultAck(s, res.GetActionId())
	case a == nil:
		d.postResultAck(s, res.GetActionId())
	case a.live():
		a.prove(s)
		d.endAction(a, res)
	case a.acked:
		d.postResultAck(s, a.id)
	}
	// Else it was shown before and its consumer has not made it durable yet.
}

// prove notes what a message about an action proves: its receipt, and that of
// everything before it.
func (a *action) prove(s *session) {
	if a.sentOn == s {
		s.out.prove(a.sentPos)
	}
}

// endAction takes the result; the handle ends when the output before it was
// consumed.
func (d *Dispatcher) endAction(a *action, res *executorv1.ActionResult) {
	a.markStarted(0)
	a.reported = true
	d.conclude(a, res, nil)
}
