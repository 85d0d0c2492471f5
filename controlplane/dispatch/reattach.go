package dispatch

import (
	"context"
	"strconv"
	"time"

	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// claim is a Reattach call that waits for its action to be announced.
type claim struct {
	id, scope string
	output    func(*executorv1.OutputChunk) error
	from      int64
	until     time.Time
	// back is set when the holder of the scope came back without the action, epoch
	// when it still holds the scope: that of its lease.
	back    bool
	epoch   uint64
	outcome chan claimed // buffered, answered once
}

type claimed struct {
	action *action
	err    error
}

// failClaim answers a claim with an error; mu is held.
func (d *Dispatcher) failClaim(c *claim, err error) {
	delete(d.claims, c.id)
	c.outcome <- claimed{err: err}
}

// UnderEpoch is a detail of an UnknownOutcome error: the holder of the scope is
// here, under the lease with this epoch, and does not have the action. It never
// had it, or will know it by its id; so it may be sent again, to this holder only
// (Spec.Epoch).
const UnderEpoch = "under_epoch"

// unknown is the error of a claim that nothing answered.
func (c *claim) unknown() error {
	e := errdefs.New(errdefs.UnknownOutcome, "outcome of action %s is unknown: no executor came back with it", c.id).With("action_id", c.id)
	if c.back {
		e = errdefs.New(errdefs.UnknownOutcome, "outcome of action %s is unknown: its executor came back without it", c.id).With("action_id", c.id)
		e = e.With("executor_back", "true")
		if c.epoch != 0 {
			e = e.With(UnderEpoch, strconv.FormatUint(c.epoch, 10))
		}
		return e
	}
	return e
}

// Recovered is a scope with open work from before a restart.
type Recovered struct {
	Scope string
	// ExecutorID that held it, if recorded. When this executor comes back without
	// the lease, the scope is free at once.
	ExecutorID string
	// FenceAfter of its lease if it was not the configured one.
	FenceAfter time.Duration
}

// Recover tells which scopes may still be held from before the start. Such a
// scope is given to another executor only when its holder came back without it
// or its fence has passed, counted from New. Call it before Start for the scope;
// Reattach does it by itself for a scope with the configured fence.
func (d *Dispatcher) Recover(scopes ...Recovered) {
	d.mu.Lock()
	defer d.unlock(false)
	for _, r := range scopes {
		d.block(r.Scope, max(r.FenceAfter, d.cfg.Grace))
		if r.ExecutorID == "" || d.swept {
			continue
		}
		d.expected[r.Scope] = r.ExecutorID
		if ex := d.executors[r.ExecutorID]; ex != nil && ex.session != nil {
			d.resumeClaims(ex, d.cfg.Clock())
		}
	}
	d.poke()
}

func (d *Dispatcher) block(scope string, fence time.Duration) {
	if until := d.started.Add(fence); until.After(d.cfg.Clock()) {
		d.lessor.Block(scope, until)
	}
}

// Reattach takes over an action from before a restart of the control plane: one
// that still runs, or whose result its executor has kept. Output goes on from
// fromOffset of stream 1. It waits until an executor announces the action and
// fails with UnknownOutcome when the executor of the scope came back without it,
// or nobody came until the grace was over. ctx ends the wait only; the process is
// ended by the handle. A result under an epoch that was superseded is refused.
func (d *Dispatcher) Reattach(ctx context.Context, actionID, scope string, output func(*executorv1.OutputChunk) error, fromOffset int64) (*Handle, error) {
	c := &claim{id: actionID, scope: scope, output: output, from: fromOffset, outcome: make(chan claimed, 1)}
	if err := d.openClaim(c); err != nil {
		return nil, err
	}
	select {
	case out := <-c.outcome:
		return d.handleOf(out)
	case <-ctx.Done():
		if d.closeClaim(c) {
			return nil, context.Cause(ctx)
		}
		return d.handleOf(<-c.outcome) // it was answered in the same moment
	}
}

func (d *Dispatcher) handleOf(out claimed) (*Handle, error) {
	if out.err != nil {
		return nil, out.err
	}
	return &Handle{d: d, a: out.action}, nil
}

func (d *Dispatcher) openClaim(c *claim) error {
	d.mu.Lock()
	defer d.unlock(true)
	if d.stopping {
		return ErrStopped
	}
	if a := d.actions[c.id]; a != nil {
		switch {
		case a.claimed || a.spec.Scope != "" && a.spec.Scope != c.scope:
			return errdefs.New(errdefs.InvalidArgument, "action id %s is in use", c.id)
		case d.lessor.Superseded(c.scope, a.epoch):
			d.abandon(a)
			return c.unknown()
		}
		d.claim(c, a)
		return nil
	}
	if d.claims[c.id] != nil {
		return errdefs.New(errdefs.InvalidArgument, "action %s is being re-attached already", c.id)
	}
	now := d.cfg.Clock()
	d.block(c.scope, d.cfg.Grace)
	c.until = d.lessor.BlockedUntil(c.scope)
	if grace := d.started.Add(d.cfg.Grace); c.until.Before(grace) {
		c.until = grace
	}
	if !c.until.After(now) {
		return c.unknown()
	}
	d.claims[c.id] = c
	if l, held := d.lessor.Scope(c.scope); held {
		if ex := d.executors[l.Holder]; ex != nil && ex.session != nil {
			d.shorten(c, now)
		}
	} else if ex := d.executors[d.expected[c.scope]]; ex != nil && ex.session != nil {
		d.shorten(c, now)
	}
	d.poke()
	return nil
}

// closeClaim withdraws a claim and reports whether it was still open.
func (d *Dispatcher) closeClaim(c *claim) bool {
	d.mu.Lock()
	defer d.unlock(true)
	open := d.claims[c.id] == c
	if open {
		delete(d.claims, c.id)
	}
	return open
}

// claim gives an announced action to the one who asked; mu is held.
func (d *Dispatcher) claim(c *claim, a *action) {
	delete(d.claims, c.id)
	a.claimed, a.spec.Output = true, c.output
	if a.spec.Scope == "" {
		a.spec.Scope = c.scope
		sc := d.scopes[c.scope]
		if sc == nil {
			sc = d.scope(c.scope, "")
			sc.unowned = true
		}
		sc.actions[a.id] = a
	}
	a.trim(c.from)
	c.outcome <- claimed{action: a}
	if s := d.sessionOf(a); s != nil && a.live() {
		d.postOutputAcks(s, a)
	}
	d.kick(a)
	if _, err := d.lessor.Check(a.executorID, a.leaseID, a.epoch); err != nil {
		// Its executor shows what was left, and that it does not hold the scope.
		d.unblock(c.scope)
	}
}

func (d *Dispatcher) unblock(scope string) {
	d.lessor.Clear(scope)
	d.placeAll()
}

// resumeClaims looks at the claims and recovered scopes of an executor that came
// back: it has a little time for the results in its outbox, and what it does not
// hold any more is free.
func (d *Dispatcher) resumeClaims(ex *executor, now time.Time) {
	held := map[string]bool{}
	for _, l := range d.lessor.Held(ex.id) {
		held[l.Scope] = true
	}
	for scope, id := range d.expected {
		if id == ex.id && !held[scope] {
			d.unblock(scope)
		}
	}
	for _, c := range d.claims {
		if held[c.scope] || d.expected[c.scope] == ex.id {
			d.shorten(c, now)
		}
	}
}

// shorten ends a claim's wait soon: the holder of its scope is back.
func (d *Dispatcher) shorten(c *claim, now time.Time) {
	c.back = true
	if l, held := d.lessor.Scope(c.scope); held && !l.Revoked {
		c.epoch = l.Epoch
	}
	if t := now.Add(d.cfg.OutboxWait); t.Before(c.until) {
		c.until = t
		d.poke()
	}
}
