package agent

import (
	"bytes"
	"context"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// UndeliveredError says that the executor that holds a thread came back after a
// restart without an action. It never had it, or knows its id and will not do it
// twice, so the action may be sent again under the lease with this epoch (I3).
type UndeliveredError struct {
	Epoch uint64
	Err   error
}

func (u *UndeliveredError) Error() string { return u.Err.Error() }

func (u *UndeliveredError) Unwrap() error { return u.Err }

// late is how a process whose action was never delivered gets it from its turn,
// which alone knows whether and with what it may go on.
type late struct {
	// wanted is closed when the action is needed.
	wanted chan struct{}
	// action is answered once: nil when it is not to be sent.
	action chan *executorv1.Action
}

func newLate() *late {
	return &late{wanted: make(chan struct{}), action: make(chan *executorv1.Action, 1)}
}

// deliver sends the action of a process for the first time, if its turn gives it.
func (p *process) deliver(ctx context.Context, u *UndeliveredError) (Handle, error) {
	p.mu.Lock()
	background := p.background
	p.mu.Unlock()
	if background {
		return nil, neverStarted()
	}
	close(p.late.wanted)
	select {
	case action := <-p.late.action:
		if action == nil {
			return nil, neverStarted()
		}
		p.mu.Lock()
		p.action = action
		p.mu.Unlock()
	case <-ctx.Done():
		return nil, ErrSuspended
	}
	spec := p.spec(p.lt.principal)
	spec.Epoch = u.Epoch
	return p.lt.agent.cfg.Dispatcher.Start(context.WithoutCancel(ctx), spec)
}

func neverStarted() error {
	return errdefs.New(errdefs.NoExecutor, "the command was not started: the control plane was restarted before its executor had it")
}

// offer gives a process that was never delivered its action, while the turn goes
// on and the action is the one that was intended.
func (t *turn) offer(c *pastCall, p *process, args *tool.ExecCommand) {
	select {
	case <-p.late.wanted:
	case <-p.done:
		t.dropEnv(t.ctx, c.decided.GetId())
		return
	case <-t.ctx.Done():
		if !suspended(t.ctx) {
			p.late.action <- nil
		}
		return
	}
	p.late.action <- t.intended(c, p.intent, args)
	t.dropEnv(t.ctx, c.decided.GetId())
}

// intended is the action of an intent; nil when it cannot be made as it was.
func (t *turn) intended(c *pastCall, intent *heddlev1.ActionIntent, args *tool.ExecCommand) *executorv1.Action {
	s, ce := t.settings(), c.item.GetCommandExecution()
	policy := s.GetSandbox()
	if args.Escalated {
		policy = unsandboxed(policy)
	}
	env := t.keptEnv(c.decided.GetId())
	if env == nil {
		env = t.rt.Env
	}
	a := started{argv: ce.GetArgv(), cwd: ce.GetCwd(), env: env, tty: args.TTY, policy: policy, workspace: s.GetCwd()}.action(intent.GetActionId())
	if t.ctx.Err() != nil || !bytes.Equal(a.GetActionHash(), intent.GetActionHash()) {
		return nil
	}
	return a
}

// writeLate writes a patch whose write was never delivered, if it is still the
// one that was intended. nil means that it is not.
func (t *turn) writeLate(ctx context.Context, c *pastCall, intent *heddlev1.ActionIntent, u *UndeliveredError) *result {
	parsed, err := tool.Parse(c.req)
	if err != nil || ctx.Err() != nil {
		return nil
	}
	p := t.patchingOf(c.req, parsed)
	if p == nil {
		return nil
	}
	p.item, p.commit, p.epoch = c.item, intent, u.Epoch
	if refused := p.makePlan(ctx); refused != nil || !bytes.Equal(p.plan.GetPlanHash(), intent.GetActionHash()) {
		return nil
	}
	r := p.write(ctx, t.agent.cfg.Clock())
	return &r
}
