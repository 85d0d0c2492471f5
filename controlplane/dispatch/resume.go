package dispatch

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/controlplane/lease"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

func tokenEqual(want, got string) bool {
	if want == "" {
		return true
	}
	w, g := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
	return subtle.ConstantTimeCompare(w[:], g[:]) == 1
}

// resume brings the executor's announcement and our record together and sends
// the first messages of the session; mu is held.
func (d *Dispatcher) resume(s *session, now time.Time) {
	ex := s.ex
	d.post(s, &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Registered{Registered: &executorv1.Registered{
		SessionId: s.id, Protocol: min(MaxProtocol, ex.reg.GetMaxProtocol()),
		ServerVersion: d.cfg.Version, OutputWindow: d.cfg.Window,
	}}})
	announced := map[string]bool{}
	for _, l := range ex.reg.GetLeases() {
		announced[l.GetLeaseId()] = true
		d.adopt(ex, l, now)
	}
	for _, l := range d.lessor.Held(ex.id) {
		if l.Revoked && !announced[l.ID] {
			d.endLease(l.ID, l.Epoch, d.cancelled)
		}
	}
	// A lease that the executor does not announce although we gave it (the grant
	// was lost, or its process is a new one) stays with it: the same holder under
	// the same epoch, and nobody else can have started anything.
	// One that is revoked is left out: that ends it, and its end is confirmed.
	full := &executorv1.Assignments{}
	for _, l := range d.lessor.Renew(ex.id, now) {
		full.Leases = append(full.Leases, d.wire(s, l, now))
	}
	d.post(s, &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Assignments{Assignments: full}})
	d.resumeActions(s, now)
	d.resumeClaims(ex, now)
}

// adopt takes over an announced lease if nobody else was granted its scope.
func (d *Dispatcher) adopt(ex *executor, w *executorv1.Lease, now time.Time) {
	l := lease.Lease{
		ID: w.GetLeaseId(), Scope: w.GetScope(), Holder: ex.id, Principal: w.GetPrincipal(), Epoch: w.GetEpoch(),
		Fence: min(time.Duration(w.GetFenceAfterMs())*time.Millisecond, maxFence),
	}
	log := d.cfg.Logger.With("executor_id", ex.id, "lease_id", l.ID, "scope", l.Scope, "epoch", l.Epoch)
	if _, err := d.lessor.Check(ex.id, l.ID, l.Epoch); err == nil {
		return // ours already; Renew moves its deadline
	}
	if l.ID == "" || l.Scope == "" || l.Fence <= 0 || l.Epoch >= d.base || ex.principal != "" && ex.principal != l.Principal {
		log.Warn("announced lease refused")
		return
	}
	if sc := d.scopes[l.Scope]; sc != nil && sc.principal != l.Principal {
		log.Warn("announced lease of another principal refused")
		return
	}
	l, err := d.lessor.Adopt(l, now)
	if err != nil {
		log.Warn("announced lease refused", "err", err)
		return
	}
	d.scope(l.Scope, l.Principal)
	if strings.HasPrefix(l.Scope, "connection/") {
		// Connection-scoped work ended with the control plane that relayed it; the
		// scope stays in the way until the executor has ended what runs there.
		if _, err := d.lessor.Revoke(l.ID); err != nil {
			log.Error("revoke an adopted lease", "err", err)
		}
		return
	}
	log.Info("lease adopted after a restart")
}

// resumeActions brings the announced running actions and our open ones together.
func (d *Dispatcher) resumeActions(s *session, now time.Time) {
	ex := s.ex
	running := map[string]bool{}
	for _, r := range ex.reg.GetRunning() {
		if _, err := d.lessor.Check(ex.id, r.GetLeaseId(), r.GetEpoch()); err != nil {
			continue
		}
		a := d.actions[r.GetActionId()]
		if a == nil {
			var err error
			if a, err = d.announce(ex, r); err != nil {
				d.refuse(s, "running", r.GetActionId(), err)
				continue
			}
			a.stdinSeq = r.GetStdinSeq()
		}
		if !a.live() || a.executorID != ex.id {
			continue
		}
		running[a.id] = true
		a.lostAt = time.Time{}
		a.markStarted(r.GetPid())
		d.postOutputAcks(s, a)
		d.resendControls(s, a, r.GetStdinSeq())
	}
	for _, a := range ex.actions {
		switch {
		case running[a.id] || !a.live():
		case a.state == stateSent:
			d.postAction(s, a)
		default:
			// Started once, not running now: its result is on the way or lost.
			a.lostAt = now.Add(d.cfg.OutboxWait)
		}
	}
}

// announce records an action that an executor has and we do not know: after a
// start it waits for Reattach, later it is ended. Without a lease that we know,
// its scope is that of the one who asks for it.
func (d *Dispatcher) announce(ex *executor, m about) (*action, error) {
	if len(d.actions) >= maxOrphans {
		return nil, errdefs.New(errdefs.Overloaded, "%d actions are open, no more are taken over", len(d.actions))
	}
	l, err := d.lessor.Check(ex.id, m.GetLeaseId(), m.GetEpoch())
	known := err == nil
	c := d.claims[m.GetActionId()]
	if c != nil && d.lessor.Superseded(c.scope, m.GetEpoch()) {
		return nil, errdefs.New(errdefs.StaleEpoch, "a higher epoch than %d was granted for %s", m.GetEpoch(), c.scope)
	}
	a := newAction(m.GetActionId(), Spec{Scope: l.Scope, Principal: l.Principal})
	a.state, a.executorID, a.leaseID, a.epoch = stateSent, ex.id, m.GetLeaseId(), m.GetEpoch()
	d.actions[a.id], ex.actions[a.id] = a, a
	if known {
		d.scope(l.Scope, l.Principal).actions[a.id] = a
	}
	if c != nil {
		d.claim(c, a)
	} else if d.swept || l.Revoked {
		d.abandon(a)
	}
	return a, nil
}

// abandon marks an action that nobody will ask for: its process is to be killed
// (the caller says so to the executor), its output dropped, its result
// acknowledged when it comes.
func (d *Dispatcher) abandon(a *action) {
	a.claimed, a.terminated, a.acked = true, true, true
	a.spec.Output = nil
	d.kick(a)
}

// cancelled ends an action together with its scope.
func (d *Dispatcher) cancelled(a *action) {
	d.conclude(a, a.cancelledResult("the scope was released while it ran"), nil)
}

// lost ends an action whose executor is gone; how says what that means for its
// processes.
func (d *Dispatcher) lost(a *action, how string) {
	verb := "was lost while running"
	if a.state == stateSent {
		verb = "was lost before it confirmed the start of"
	}
	err := errdefs.New(errdefs.ExecutorLost, "executor %s %s %s; %s", a.executorID, verb, a.describe(), how).
		With("executor_id", a.executorID).With("action_id", a.id).With("started", fmt.Sprint(a.state == stateStarted))
	d.conclude(a, nil, err)
}
