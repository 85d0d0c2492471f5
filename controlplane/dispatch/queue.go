package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/lease"
	"github.com/heddle-dev/heddle/proto/errdefs"
	"github.com/heddle-dev/heddle/proto/failpoint"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// enqueue puts an action into the queue; mu is held.
func (d *Dispatcher) enqueue(a *action) {
	a.state = stateWaiting
	i := sort.Search(len(d.waiting), func(i int) bool {
		w := d.waiting[i]
		return w.spec.Priority < a.spec.Priority || w.spec.Priority == a.spec.Priority && w.order > a.order
	})
	d.waiting = slices.Insert(d.waiting, i, a)
}

func (d *Dispatcher) unqueue(a *action) {
	if a.state != stateWaiting {
		return
	}
	if i := slices.Index(d.waiting, a); i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
	}
}

// placeAll tries every waiting action in order; mu is held.
func (d *Dispatcher) placeAll() {
	if len(d.waiting) == 0 || d.stopping {
		return
	}
	for _, a := range slices.Clone(d.waiting) {
		if a.state == stateWaiting && d.place(a) {
			if i := slices.Index(d.waiting, a); i >= 0 {
				d.waiting = slices.Delete(d.waiting, i, i+1)
			}
		}
	}
}

// place gives an action to an executor if one can take it now, else it notes
// why not; mu is held.
func (d *Dispatcher) place(a *action) bool {
	now := d.cfg.Clock()
	l, held := d.lessor.Scope(a.spec.Scope)
	if only := a.spec.Epoch; only != 0 && (!held || l.Epoch != only) {
		d.conclude(a, nil, errdefs.New(errdefs.UnknownOutcome, "outcome of action %s is unknown: the lease that it may have run under has ended", a.id).With("action_id", a.id))
		return true
	}
	if held {
		ex := d.executors[l.Holder]
		reason := d.whyNotHolder(a, l, ex)
		if reason != "" {
			d.wait(a, now, false, reason)
			return false
		}
		d.deliver(ex, l, a)
		return true
	}
	if err := d.lessor.Free(a.spec.Scope, now); err != nil {
		d.wait(a, now, false, heldReason(err))
		return false
	}
	ex, absent, reason := d.choose(a)
	if ex == nil {
		d.wait(a, now, absent, reason)
		return false
	}
	l, err := d.grant(ex, a, now)
	if err != nil {
		d.cfg.Logger.Error("grant a lease", "scope", a.spec.Scope, "executor_id", ex.id, "err", err)
		d.wait(a, now, true, err.Error())
		return false
	}
	d.deliver(ex, l, a)
	return true
}

func heldReason(err error) string {
	var held *lease.HeldError
	if errors.As(err, &held) {
		return fmt.Sprintf("%s; it is free at the latest at %s", held.Error(), held.Until.Format(time.RFC3339))
	}
	return err.Error()
}

// wait notes why an action waits. Only the absence of a fitting executor is
// limited in time.
func (d *Dispatcher) wait(a *action, now time.Time, absent bool, reason string) {
	a.reason = reason
	limit := a.spec.Wait
	if limit == 0 {
		limit = d.cfg.Wait
	}
	switch {
	case !absent || limit < 0:
		a.waitUntil = time.Time{}
	case a.waitUntil.IsZero():
		a.waitUntil = now.Add(limit)
		d.poke()
	}
}

// whyNotHolder says why the holder of a scope cannot take an action now.
func (d *Dispatcher) whyNotHolder(a *action, l lease.Lease, ex *executor) string {
	switch {
	case l.Revoked:
		return fmt.Sprintf("executor %s is ending its lease of %s", l.Holder, l.Scope)
	case ex == nil || ex.session == nil:
		return fmt.Sprintf("executor %s, which holds %s, is disconnected", l.Holder, l.Scope)
	case d.full(ex):
		return fmt.Sprintf("executor %s is at its capacity of %d actions", ex.id, d.capacity(ex))
	}
	if missing := missingLabels(a.spec.Labels, ex.reg.GetLabels()); missing != "" {
		return fmt.Sprintf("%s is leased to executor %s, which lacks label %s", l.Scope, ex.id, missing)
	}
	return ""
}

// choose picks the executor of a new lease: connected, of the principal, with
// the labels and a free place; among those the one that says it enforces the
// level, with the fewest leases, then actions. absent is true when no connected
// executor fits at all.
func (d *Dispatcher) choose(a *action) (best *executor, absent bool, reason string) {
	var lacking, full []string
	connected := 0
	for _, id := range slices.Sorted(maps.Keys(d.executors)) {
		ex := d.executors[id]
		if ex.session == nil || ex.principal != "" && ex.principal != a.spec.Principal {
			continue
		}
		connected++
		if missing := missingLabels(a.spec.Labels, ex.reg.GetLabels()); missing != "" {
			lacking = append(lacking, fmt.Sprintf("%s lacks %s", id, missing))
			continue
		}
		if d.full(ex) {
			full = append(full, fmt.Sprintf("%s (%d)", id, d.capacity(ex)))
			continue
		}
		if best == nil || d.less(a, ex, best) {
			best = ex
		}
	}
	switch {
	case best != nil:
		return best, false, ""
	case len(full) > 0:
		return nil, false, "every fitting executor is at its capacity: " + strings.Join(full, ", ")
	case connected == 0 && d.absence != "":
		return nil, true, "no executor is connected: the one of this machine ended: " + d.absence
	case connected == 0:
		return nil, true, "no executor is connected"
	}
	if len(lacking) > 8 {
		lacking = append(lacking[:8], fmt.Sprintf("and %d more", len(lacking)-8))
	}
	return nil, true, "no connected executor has the labels asked for: " + strings.Join(lacking, ", ")
}

func (d *Dispatcher) less(a *action, x, y *executor) bool {
	if ex, ey := enforces(x, a), enforces(y, a); ex != ey {
		return ex
	}
	if lx, ly := d.lessor.Count(x.id), d.lessor.Count(y.id); lx != ly {
		return lx < ly
	}
	return len(x.actions) < len(y.actions)
}

// enforces reports whether the executor's report lists the action's level. One
// that does not is still better than none: it answers with cause and fix.
func enforces(ex *executor, a *action) bool {
	return slices.Contains(ex.reg.GetSandboxReport().GetLevels(), a.msg.GetPolicy().GetLevel())
}

func (d *Dispatcher) capacity(ex *executor) int {
	if c := int(ex.reg.GetCapacity()); c > 0 {
		return c
	}
	return d.cfg.Capacity
}

func (d *Dispatcher) full(ex *executor) bool { return len(ex.actions) >= d.capacity(ex) }

// missingLabels names the first label that have lacks, in order of name.
func missingLabels(want, have map[string]string) string {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if v, ok := have[k]; !ok || v != want[k] {
			return k + "=" + want[k]
		}
	}
	return ""
}

func (d *Dispatcher) grant(ex *executor, a *action, now time.Time) (lease.Lease, error) {
	epoch, err := d.cfg.Epochs.Next(context.Background(), a.spec.Scope)
	if err != nil {
		return lease.Lease{}, err
	}
	fence := a.spec.FenceAfter
	if fence <= d.cfg.Skew {
		fence = d.cfg.FenceAfter
	}
	failpoint.Hit("dispatch/lease-grant")
	l, err := d.lessor.Grant(lease.Lease{
		ID: d.cfg.NewID(), Scope: a.spec.Scope, Holder: ex.id, Principal: a.spec.Principal,
		Epoch: epoch, Fence: fence - d.cfg.Skew,
	}, now)
	if err != nil {
		return lease.Lease{}, err
	}
	d.post(ex.session, &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Grant{
		Grant: &executorv1.LeaseGrant{Lease: d.wire(ex.session, l, now)},
	}})
	return l, nil
}

// deliver queues the action on its executor's session; mu is held.
func (d *Dispatcher) deliver(ex *executor, l lease.Lease, a *action) {
	a.state, a.reason, a.waitUntil = stateSent, "", time.Time{}
	a.executorID, a.leaseID, a.epoch = ex.id, l.ID, l.Epoch
	if a.msg.GetLeaseId() != "" {
		// An earlier session may still be encoding the message.
		a.msg = proto.CloneOf(a.msg)
	}
	a.msg.LeaseId, a.msg.Epoch = l.ID, l.Epoch
	ex.actions[a.id] = a
	d.postAction(ex.session, a)
}

// postAction sends the action and the controls that belong to it.
func (d *Dispatcher) postAction(s *session, a *action) {
	a.sentOn = s
	a.sentPos = d.post(s, &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Action{Action: a.msg}})
	d.resendControls(s, a, 0)
}

// noExecutor is the error of an action that waited too long.
func (a *action) noExecutor(now time.Time) error {
	return errdefs.New(errdefs.NoExecutor, "no executor took the action within %s: %s",
		now.Sub(a.enqueued).Round(time.Millisecond), a.reason).With("action_id", a.id).With("why", a.reason)
}
