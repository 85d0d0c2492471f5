package agent

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/hook"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// hookReturn bounds the wait for a hook that ran at a restart: its executor has
// its answer soon, or it is ended.
const hookReturn = 2 * time.Second

// hookKey names the last run of a hook for one subject.
func hookKey(id, subject string) string { return id + "\x00" + subject }

// promptSubject stands for an input as its hooks see it.
func promptSubject(in *heddlev1.UserMessage) string {
	return fmt.Sprintf("prompt-%x", sha256.Sum256([]byte(saidIn(in))))
}

func (p *resumption) hook(run *heddlev1.HookRun) {
	p.hooks[hookKey(run.GetId(), run.GetCallId())] = proto.CloneOf(run)
	p.prompted = p.prompted || run.GetEventName() == hook.UserPromptSubmit
}

// inputShown takes an input from those that wait. Inputs are shown in the order in
// which they were accepted, so hooks refused those before it: these are done with
// too, as are the hooks that ran for them. Where no hook ran for an input, one that
// is missing before it was lost with a failed commit, and waits.
func (p *resumption) inputShown(in *heddlev1.UserMessage) {
	maps.DeleteFunc(p.hooks, func(_ string, r *heddlev1.HookRun) bool { return r.GetEventName() == hook.UserPromptSubmit })
	subject := promptSubject(in)
	shown := slices.IndexFunc(p.steers, func(s *heddlev1.UserMessage) bool { return promptSubject(s) == subject })
	if p.first != nil && (shown < 0 || promptSubject(p.first) == subject) {
		p.first = nil
		return
	}
	if shown >= 0 && !p.prompted {
		p.steers = slices.Delete(slices.Clone(p.steers), shown, shown+1)
		return
	}
	p.first, p.steers = nil, p.steers[min(max(shown, 0)+1, len(p.steers)):]
}

// pastHook is how a hook ended before a restart, nil when it did not run for the
// same subject.
func (t *turn) pastHook(id, hash, subject string) *heddlev1.HookRun {
	if t.resume == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	run := t.resume.hooks[hookKey(id, subject)]
	delete(t.resume.hooks, hookKey(id, subject))
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
