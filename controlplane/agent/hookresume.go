package agent

import (
	"context"
	"time"

	"github.com/heddle-dev/heddle/controlplane/hook"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// hookReturn bounds the wait for a hook that ran at a restart: its executor has
// its answer soon, or it is ended.
const hookReturn = 2 * time.Second

// pastHook is how a hook ended before a restart, nil when it did not run.
func (t *turn) pastHook(id, hash string) *heddlev1.HookRun {
	if t.resume == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	run := t.resume.hooks[id]
	delete(t.resume.hooks, id)
	// A turn that goes on asks its model again, and then stops anew.
	if run.GetHash() != hash || run.GetEventName() == hook.Stop {
		return nil
	}
	return run
}

// closeHooks ends the runs that a restart cut off: with the answer that their
// executor has kept whole, else as of unknown outcome. They are not run again
// (I3), and what of them still runs is ended.
func (t *turn) closeHooks() {
	for _, run := range t.resume.hooks {
		if run.GetStatus() != hook.Running {
			continue
		}
		t.closeHook(run)
		if suspended(t.ctx) {
			return
		}
		run.CompletedAtMs = t.agent.now()
		t.record(hookCompleted(t.id(), run))
	}
}

// kill ends a process that nobody waits for any more, and gives it a moment to be
// gone.
func (lt *live) kill(h Handle) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(lt.agent.ctx), endWait)
	defer cancel()
	err := h.Terminate(ctx)
	if err == nil {
		_, err = h.Result(ctx)
	}
	if err != nil {
		lt.agent.cfg.Logger.Warn("end a hook", "thread", lt.id, "error", err)
	}
}

func (t *turn) closeHook(run *heddlev1.HookRun) {
	wait := hookReturn
	if t.ctx.Err() != nil {
		wait = endWait
	}
	ctx, cancel := context.WithTimeout(t.agent.ctx, wait)
	defer cancel()
	out := &hookOutput{}
	h, err := t.agent.cfg.Dispatcher.Reattach(ctx, Spec{
		ThreadID: t.lt.id, Principal: t.lt.principal, Action: &executorv1.Action{ActionId: run.GetActionId()}, Output: out.take}, 0)
	if err != nil {
		hook.Fail(run, hookUnknown)
		return
	}
	res, err := h.Result(ctx)
	if err != nil {
		t.lt.kill(h)
		hook.Fail(run, hookUnknown)
		return
	}
	time.AfterFunc(settleAfter, h.Settle)
	p := res.GetProcess()
	out.mu.Lock()
	defer out.mu.Unlock()
	whole := !out.cut && int64(len(out.stdout)) == p.GetStdoutBytes() && int64(len(out.stderr)) == p.GetStderrBytes()
	if p == nil || !whole || p.GetVerdict().GetTimedOut() || p.GetVerdict().GetSandboxLost() {
		hook.Fail(run, hookUnknown)
		return
	}
	run.DurationMs = p.GetDurationMs()
	hook.Answer(run, p.GetExitCode(), out.stdout, out.stderr)
}
