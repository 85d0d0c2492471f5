package dispatch

import (
	"context"
	"fmt"
	"strings"

	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Start gives an action to an executor, or queues it until there is one, and
// returns at once. The caller has made the intent durable before.
//
// ctx belongs to the action, not to the call: when it ends, a waiting action
// ends as cancelled and a running process is killed, so that nothing is left
// running that nobody follows. A process that outlives a turn needs the context
// of its thread.
//
// Errors: InvalidArgument for a malformed spec or an id in use, PermissionDenied
// for a scope of another principal, Overloaded for a full queue.
func (d *Dispatcher) Start(ctx context.Context, spec Spec) (*Handle, error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if spec.Action.GetAttempt() == 0 {
		spec.Action.Attempt = 1
	}
	a := newAction(spec.Action.GetActionId(), spec)
	a.claimed = true
	a.output[1].known, a.output[2].known = true, true

	d.mu.Lock()
	defer d.unlock(true)
	if d.stopping {
		return nil, ErrStopped
	}
	if old := d.actions[a.id]; old != nil {
		return nil, errdefs.New(errdefs.InvalidArgument, "action id %s is in use", a.id)
	}
	sc := d.scope(spec.Scope, spec.Principal)
	if sc.principal != spec.Principal {
		return nil, errdefs.New(errdefs.PermissionDenied, "scope %s belongs to another principal", spec.Scope)
	}
	if len(d.waiting) >= d.cfg.QueueLimit {
		d.dropScope(spec.Scope)
		return nil, errdefs.New(errdefs.Overloaded, "%d actions wait for an executor, no more are taken", len(d.waiting))
	}
	d.order++
	a.order, a.enqueued = d.order, d.cfg.Clock()
	d.actions[a.id], sc.actions[a.id] = a, a
	if !d.place(a) {
		d.enqueue(a)
		d.poke()
	}
	if ctx.Done() != nil {
		a.stopCtx = context.AfterFunc(ctx, func() { d.terminate(a) })
	}
	return &Handle{d: d, a: a}, nil
}

func checkSpec(spec Spec) error {
	kind, id, ok := strings.Cut(spec.Scope, "/")
	if !ok || id == "" || (kind != "thread" && kind != "connection" && kind != "task") {
		return errdefs.New(errdefs.InvalidArgument, "scope %q is not thread/ID, connection/ID or task/ID", spec.Scope)
	}
	if spec.Action.GetActionId() == "" || spec.Action.GetKind() == nil {
		return errdefs.New(errdefs.InvalidArgument, "an action needs an id and a kind")
	}
	return nil
}

// Prepare makes the sandbox of a scope ready, so that its first command is fast,
// and waits for it. For labels or a principal, use Start with a Prepare action.
// An ActionError of the executor comes back as NotEnforceable or Internal.
func (d *Dispatcher) Prepare(ctx context.Context, scope string, policy *heddlev1.SandboxPolicy, workspace string) (*executorv1.Prepared, error) {
	h, err := d.Start(ctx, Spec{Scope: scope, Principal: d.principalOf(scope), Action: &executorv1.Action{
		ActionId: d.cfg.NewID(), Policy: policy, Workspace: workspace,
		Kind: &executorv1.Action_Prepare{Prepare: &executorv1.Prepare{}},
	}})
	if err != nil {
		return nil, err
	}
	res, err := h.Result(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare sandbox of %s: %w", scope, err)
	}
	h.Ack()
	if e := res.GetError(); e != nil {
		reason := errdefs.Internal
		if e.GetCode() == "not_enforceable" {
			reason = errdefs.NotEnforceable
		}
		message := e.GetMessage()
		if e.GetFix() != "" {
			message += "; to fix: " + e.GetFix()
		}
		return nil, errdefs.New(reason, "prepare sandbox of %s: %s", scope, message).With("code", e.GetCode()).With("fix", e.GetFix())
	}
	return res.GetPrepared(), nil
}

func (d *Dispatcher) principalOf(scope string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if sc := d.scopes[scope]; sc != nil {
		return sc.principal
	}
	return ""
}

// ReleaseScope ends everything that runs for a scope and gives its lease back.
// It returns when the executor has confirmed the end, when the executor is dead
// or fenced, or when ctx ends; the release goes on then. Handles of the scope end
// with their results or as cancelled.
func (d *Dispatcher) ReleaseScope(ctx context.Context, name string) error {
	released := d.beginRelease(name)
	if released == nil {
		return nil
	}
	select {
	case <-released:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("release scope %s: %w", name, context.Cause(ctx))
	}
}

func (d *Dispatcher) beginRelease(name string) <-chan struct{} {
	d.mu.Lock()
	defer d.unlock(true)
	sc := d.scopes[name]
	if sc == nil {
		return nil
	}
	for _, a := range sc.actions {
		switch a.state {
		case stateWaiting:
			d.conclude(a, a.cancelledResult("the scope was released"), nil)
		case stateDone:
			d.forget(a) // nobody asked for its acknowledgement
		}
	}
	l, held := d.lessor.Scope(name)
	if !held {
		d.dropScope(name)
		return nil
	}
	ch := make(chan struct{})
	sc.released = append(sc.released, ch)
	if !l.Revoked {
		if l, err := d.lessor.Revoke(l.ID); err == nil {
			d.postRevoke(l, "released")
		}
	}
	return ch
}

// endLease frees a scope whose holder is done with it and ends what was left
// under it; mu is held.
func (d *Dispatcher) endLease(id string, epoch uint64, end func(*action)) {
	l, err := d.lessor.Release(id, epoch)
	if err != nil {
		return
	}
	if sc := d.scopes[l.Scope]; sc != nil {
		for _, a := range sc.actions {
			if a.leaseID == id && a.live() {
				end(a)
			}
		}
		for _, ch := range sc.released {
			close(ch)
		}
		sc.released = nil
		d.dropScope(l.Scope)
	}
	d.placeAll()
}

// terminate kills; on an action that has ended it does nothing.
func (d *Dispatcher) terminate(a *action) {
	_ = d.control(a, func(a *action) {
		a.terminated = true
		d.stop(a)
	})
}
