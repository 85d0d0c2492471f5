package dispatch

import (
	"fmt"
	"slices"
	"time"

	"github.com/heddle-dev/heddle/proto/errdefs"
	"github.com/heddle-dev/heddle/proto/failpoint"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// idleTick is how long Run sleeps when nothing is due.
const idleTick = time.Minute

// tick does everything that is due at now and returns when to come back. late
// says that this process itself was held up; a missing answer is then given one
// more round, since it may lie unread on our side.
func (d *Dispatcher) tick(now time.Time, late bool) time.Time {
	d.mu.Lock()
	defer d.unlock(false)
	next := now.Add(idleTick)
	due := func(t time.Time) bool {
		if !t.After(now) {
			return true
		}
		if t.Before(next) {
			next = t
		}
		return false
	}
	for _, ex := range d.executors {
		if s := ex.session; s != nil {
			d.tickSession(s, now, late, due)
		} else {
			d.tickAbsent(ex, due)
		}
	}
	for _, a := range d.actions {
		if a.live() && !a.lostAt.IsZero() && due(a.lostAt) {
			d.lost(a, "it came back without it, and no result followed")
		}
	}
	if at, ok := d.lessor.NextUnblock(); ok && due(at) {
		d.lessor.Unblock(now)
		d.placeAll()
		if at, ok := d.lessor.NextUnblock(); ok {
			due(at)
		}
	}
	for _, a := range slices.Clone(d.waiting) {
		if !a.waitUntil.IsZero() && due(a.waitUntil) {
			d.conclude(a, nil, a.noExecutor(now))
		}
	}
	for _, c := range d.claims {
		if due(c.until) {
			d.failClaim(c, c.unknown())
		}
	}
	if !d.swept && due(d.started.Add(d.cfg.Grace)) {
		d.sweep()
	}
	return next
}

// tickSession renews, and ends a session that does not answer.
func (d *Dispatcher) tickSession(s *session, now time.Time, late bool, due func(time.Time) bool) {
	if s.inFlight {
		if late {
			s.roundAt = now
		}
		if due(s.roundAt.Add(d.cfg.renewBy())) {
			s.end(errdefs.New(errdefs.ExecutorLost, "executor %s did not answer a renewal for %s", s.ex.id, d.cfg.renewBy()))
		}
		return
	}
	if due(s.nextRenew) {
		d.renew(s, now)
		due(s.roundAt.Add(d.cfg.renewBy()))
	}
}

// tickAbsent frees the scopes of an executor that stayed away past its fence.
func (d *Dispatcher) tickAbsent(ex *executor, due func(time.Time) bool) {
	for _, l := range d.lessor.Held(ex.id) {
		if !due(d.lessor.FreeAt(l)) {
			continue
		}
		d.cfg.Logger.Warn("lease ended by its fence", "executor_id", ex.id, "lease_id", l.ID, "scope", l.Scope, "epoch", l.Epoch)
		how := fmt.Sprintf("its commands ended within %s", l.Fence+d.cfg.Skew)
		d.endLease(l.ID, l.Epoch, func(a *action) { d.lost(a, how) })
	}
	if d.swept && d.lessor.Count(ex.id) == 0 {
		// Left from before the start, under leases that were not held any more.
		for _, a := range ex.actions {
			d.lost(a, "it did not come back with it")
		}
	}
	d.dropExecutor(ex)
}

// nextRenewal is the time to the next renewal: the mean, ten percent either way,
// so that many executors do not renew at once.
func (d *Dispatcher) nextRenewal() time.Duration {
	return time.Duration(float64(d.cfg.renewEvery()) * (0.9 + 0.2*d.cfg.Jitter()))
}

// renew sends a round, also without leases, as a sign of life; mu is held.
func (d *Dispatcher) renew(s *session, now time.Time) {
	s.round++
	s.inFlight, s.roundAt = true, now
	m := &executorv1.LeaseRenewal{Round: s.round}
	for _, l := range d.lessor.Renew(s.ex.id, now) {
		m.Leases = append(m.Leases, d.wire(s, l, now))
	}
	s.roundPos = d.post(s, &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Renewal{Renewal: m}})
}

// renewAck ends the round in flight. Everything posted before the round is known
// to be received.
func (d *Dispatcher) renewAck(s *session, round uint64) {
	if !s.inFlight || round != s.round {
		return
	}
	failpoint.Hit("dispatch/renewed")
	now := d.cfg.Clock()
	s.inFlight, s.ackedRound, s.ackedAt = false, round, now
	s.nextRenew = s.roundAt.Add(d.nextRenewal())
	s.out.prove(s.roundPos)
	for _, a := range s.ex.actions {
		if len(a.stdinKept) > 0 && !s.ex.reg.GetReportsInput() {
			a.dropStdin(s, round)
		}
	}
	d.poke()
}

// sweep ends the time in which work from before the start may be asked for:
// what nobody asked for is ended and acknowledged.
func (d *Dispatcher) sweep() {
	d.swept = true
	for _, a := range d.actions {
		if !a.claimed {
			d.cfg.Logger.Info("action from before the start ended: nobody asked for it", "action_id", a.id, "executor_id", a.executorID)
			d.abandon(a)
			d.stop(a)
		}
	}
	clear(d.expected)
}

// ExecutorDied tells that an executor's process is known to be dead, so that its
// sandboxes are gone too: its session ends, its actions end as lost and its
// scopes are free at once, without waiting for a fence.
func (d *Dispatcher) ExecutorDied(executorID string) {
	d.mu.Lock()
	defer d.unlock(false)
	if ex := d.executors[executorID]; ex != nil {
		d.died(ex)
	}
}

func (d *Dispatcher) died(ex *executor) {
	if s := ex.session; s != nil {
		ex.session = nil
		d.requeue(ex, s.out.close())
		s.end(errdefs.New(errdefs.ExecutorLost, "executor %s has died", ex.id))
	}
	for _, l := range d.lessor.Held(ex.id) {
		d.endLease(l.ID, l.Epoch, func(a *action) { d.lost(a, "its process has died and its commands with it") })
	}
	d.dropExecutor(ex)
	d.placeAll()
	d.poke()
}

// ExecutorAbsent notes why the executor that should run on this machine does
// not, until one connects; it is part of the reason why something waits.
func (d *Dispatcher) ExecutorAbsent(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.absence = why
}
