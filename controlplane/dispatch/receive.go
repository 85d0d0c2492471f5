package dispatch

import (
	"fmt"

	"github.com/heddle-dev/heddle/controlplane/lease"
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
func (d *Dispatcher) admit(s *session, m fenced) (lease.Lease, error) {
	if s.ex.session != s || s.ended() {
		return lease.Lease{}, errdefs.New(errdefs.StaleEpoch, "session %s of executor %s is over", s.id, s.ex.id)
	}
	l, err := d.lessor.Check(s.ex.id, m.GetLeaseId(), m.GetEpoch())
	if err != nil {
		return lease.Lease{}, errdefs.New(errdefs.StaleEpoch, "%w", err)
	}
	return l, nil
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
		if _, err := d.admit(s, k.LeaseReleased); err != nil {
			d.refuse(s, "lease_released", "", err)
			return nil
		}
		d.released(s, k.LeaseReleased)
	case *executorv1.ConnectRequest_ActionStarted:
		if _, err := d.admit(s, k.ActionStarted); err != nil {
			d.refuse(s, "action_started", k.ActionStarted.GetActionId(), err)
			return nil
		}
		d.actionStarted(s, k.ActionStarted)
	case *executorv1.ConnectRequest_Output:
		if _, err := d.admit(s, k.Output); err != nil {
			d.refuse(s, "output", k.Output.GetActionId(), err)
			return nil
		}
		return d.outputChunk(s, k.Output)
	case *executorv1.ConnectRequest_Result:
		_, err := d.admit(s, k.Result)
		d.actionResult(s, k.Result, err)
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

// own finds the action a message is about: known, of this executor, under this
// lease.
func (d *Dispatcher) own(s *session, id, leaseID string) *action {
	a := d.actions[id]
	if a == nil || a.executorID != s.ex.id || a.leaseID != leaseID {
		return nil
	}
	return a
}

func (d *Dispatcher) actionStarted(s *session, m *executorv1.ActionStarted) {
	if a := d.own(s, m.GetActionId(), m.GetLeaseId()); a != nil {
		a.prove(s)
		a.markStarted(m.GetPid())
	}
}

func (d *Dispatcher) outputChunk(s *session, c *executorv1.OutputChunk) error {
	a := d.own(s, c.GetActionId(), c.GetLeaseId())
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

// actionResult ends an action, once. stale is what admit found. A result under a
// lease that is over counts when it is asked for (Reattach) and no higher epoch
// was granted for the scope: the clock has no say.
func (d *Dispatcher) actionResult(s *session, res *executorv1.ActionResult, stale error) {
	a := d.actions[res.GetActionId()]
	switch {
	case a != nil && a.executorID == s.ex.id && a.epoch == res.GetEpoch() && (stale == nil || !d.lessor.Superseded(a.spec.Scope, a.epoch)):
	case a != nil:
		d.refuse(s, "result", res.GetActionId(), staleOr(stale, "another executor or epoch has the action"))
		d.postResultAck(s, res.GetActionId())
		return
	default:
		d.unknownResult(s, res, stale)
		return
	}
	switch {
	case a.live():
		a.prove(s)
		d.endAction(a, res)
	case a.acked:
		d.postResultAck(s, a.id)
	}
	// Else it was shown before and its consumer has not made it durable yet.
}

func staleOr(err error, text string) error {
	if err != nil {
		return err
	}
	return errdefs.New(errdefs.StaleEpoch, "%s", text)
}

// unknownResult takes a result from an outbox that no open action waits for.
func (d *Dispatcher) unknownResult(s *session, res *executorv1.ActionResult, stale error) {
	id := res.GetActionId()
	if c := d.claims[id]; c != nil {
		if d.lessor.Superseded(c.scope, res.GetEpoch()) {
			d.refuse(s, "result", id, staleOr(stale, "a higher epoch was granted"))
			d.postResultAck(s, id)
			return
		}
		d.claimResult(c, s.ex.id, res)
		return
	}
	if d.swept {
		// Nobody asks for it any more; let the executor forget it.
		d.refuse(s, "result", id, staleOr(stale, "no open action has this id"))
		d.postResultAck(s, id)
		return
	}
	// Soon after a start its owner may not have asked yet.
	if _, again := d.strays[id]; again || len(d.strays) < maxOrphans {
		d.strays[id] = stray{executorID: s.ex.id, result: res}
	}
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
