package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/approval"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const unknownText = "the outcome is unknown: the control plane was restarted meanwhile and nothing could be learned of it"

// resumeCall makes the rest of a call that was open at a restart. What may have
// run is never run again (I3): its recorded result is used, it is re-attached, or
// its outcome is unknown. What was only asked for is still asked.
func (t *turn) resumeCall(c *pastCall) *call {
	if k := t.resumeAsked(c); k != nil {
		return k
	}
	k := &call{req: c.req, alone: true}
	switch {
	case c.ended:
		k.do = func(context.Context) result { return text(t.recordedText(c.item, c.decided)) }
	case c.item.GetCommandExecution() != nil && c.intent("process") != nil:
		k.alone = false
		k.do = func(ctx context.Context) result { return t.resumeProcess(ctx, c) }
	case c.item.GetFileChange() != nil && c.intent("patch_commit") != nil:
		k.do = func(ctx context.Context) result { return t.resumeCommit(ctx, c) }
	case c.intent("stdin") != nil || len(c.intents) > 0 && c.item == nil && !c.onlyPlanned():
		k.do = func(context.Context) result {
			t.resolveAll(c)
			return text("write_stdin failed: " + unknownText)
		}
	case c.item != nil:
		k.alone = false
		k.do = func(ctx context.Context) result { return t.resumeQuestion(ctx, c) }
	default:
		k.do = func(ctx context.Context) result { return t.repeat(ctx, c) }
		return k
	}
	t.withPostHooks(k, t.hookView(c.req))
	return k
}

// onlyPlanned is true for a patch of which nothing but the plan was begun.
func (c *pastCall) onlyPlanned() bool {
	for _, i := range c.intents {
		if i.GetKind() != "patch_plan" {
			return false
		}
	}
	return true
}

// repeat runs a call of which nothing with an effect was begun.
func (t *turn) repeat(ctx context.Context, c *pastCall) result {
	if ctx.Err() != nil {
		t.resolveAll(c)
		return result{}
	}
	t.resolveAll(c)
	k := t.hookedCall(c.req)
	if len(k.events) > 0 {
		if err := t.commit(k.events...); err != nil {
			k.discard()
			return text("the call could not be made: " + err.Error())
		}
	}
	return k.do(ctx)
}

func (t *turn) resolveAll(c *pastCall) {
	var ids []string
	for id := range c.intents {
		if !c.resolved[id] {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		t.record(actionsResolved(t.id(), ids...))
	}
}

// recordedText is what the model is told of an item that ended before the
// restart.
func (t *turn) recordedText(item *heddlev1.Item, a *heddlev1.Approval) string {
	if item.GetStatus() == heddlev1.ItemStatus_ITEM_STATUS_DECLINED {
		if item.GetFileChange() != nil {
			return "patch " + refusedBy(a)
		}
		return fmt.Sprintf("exec_command failed for `%s`: %q", item.GetCommandExecution().GetCommand(), refusedBy(a))
	}
	if f := item.GetFileChange(); f != nil {
		if f.GetError() != nil {
			return "apply_patch failed: " + f.GetError().GetMessage()
		}
		return patchText(summaryOf(f.GetChanges()), 0)
	}
	ce := item.GetCommandExecution()
	if ce.GetError() != nil {
		return failureText(ce.GetCommand(), ce.GetError(), ce.GetAggregatedOutput())
	}
	return tool.FormatExec(tool.ExecResult{
		ChunkID: tool.NewChunkID(), Wall: time.Duration(ce.GetDurationMs()) * time.Millisecond, Exit: ce.ExitCode,
		Output: ce.GetAggregatedOutput(), Total: ce.GetOutputBytes(),
	})
}

// summaryOf lists changes as the tool's answer does.
func summaryOf(changes []*heddlev1.FileUpdate) string {
	var b strings.Builder
	for _, group := range []struct{ kind, letter string }{{"add", "A"}, {"update", "M"}, {"delete", "D"}} {
		for _, c := range changes {
			if c.GetKind() != group.kind {
				continue
			}
			path := c.GetPath()
			if c.GetMovePath() != "" {
				path = c.GetMovePath()
			}
			fmt.Fprintf(&b, "%s %s\n", group.letter, path)
		}
	}
	return b.String()
}

// resumeProcess waits for a process that was re-attached.
func (t *turn) resumeProcess(ctx context.Context, c *pastCall) result {
	intent := c.intent("process")
	var p *process
	for _, q := range t.lt.processes(func(q *process) bool { return q.intent != nil && q.intent.GetActionId() == intent.GetActionId() }) {
		p = q
	}
	if p == nil {
		return text("exec_command failed: " + unknownText)
	}
	e := &execution{t: t, req: c.req, args: &tool.ExecCommand{Yield: 10 * time.Second}, proc: p}
	if parsed, err := tool.Parse(c.req); err == nil {
		if args, ok := parsed.(*tool.ExecCommand); ok {
			e.args = args
		}
	}
	t.agent.wg.Go(func() { t.offer(c, p, e.args) })
	return e.wait(ctx, time.Now())
}

// resumeCommit learns what became of a patch that may have been written.
func (t *turn) resumeCommit(ctx context.Context, c *pastCall) result {
	intent := c.intent("patch_commit")
	wait, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if ctx.Err() != nil {
		// A turn that is being ended does not wait for the executor's return.
		wait, cancel = context.WithTimeout(wait, endWait)
		defer cancel()
	}
	h, err := t.agent.cfg.Dispatcher.Reattach(wait, Spec{ThreadID: t.lt.id, Principal: t.lt.principal, Action: &executorv1.Action{ActionId: intent.GetActionId()}}, 0)
	if u, ok := errors.AsType[*UndeliveredError](err); ok {
		if r := t.writeLate(ctx, c, intent, u); r != nil {
			return *r
		}
	}
	var res *executorv1.ActionResult
	if err == nil {
		res, err = h.Result(wait)
	}
	if t.agent.ctx.Err() != nil {
		return result{}
	}
	item := c.item
	item.CompletedAtMs = t.agent.now()
	item.Status = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
	if why := failure(res, err); why != nil {
		item.Status, item.GetFileChange().Error = heddlev1.ItemStatus_ITEM_STATUS_FAILED, why
		t.diff.doubt(intent.GetActionId(), why.GetCode())
	} else {
		done := res.GetPatchCommitted()
		if len(done.GetChanges()) > 0 {
			item.GetFileChange().Changes = done.GetChanges()
		}
		t.endPatch(intent.GetActionId(), done)
	}
	t.record(itemCompleted(item), actionsResolved(t.id(), intent.GetActionId()))
	t.showDiff()
	if h != nil && err == nil {
		time.AfterFunc(settleAfter, h.Settle)
	}
	return text(t.recordedText(item, c.decided))
}

// resumeQuestion goes on with a call that was asked for: pending, or decided
// while nobody could act on it. What is run now must be what was shown.
func (t *turn) resumeQuestion(ctx context.Context, c *pastCall) result {
	asked := t.resume.asked[c.item.GetId()]
	if ctx.Err() != nil && !suspended(ctx) {
		t.cancelQuestion(asked)
		t.dropEnv(ctx, asked.Approval().GetId())
		t.failItem(c.item, &heddlev1.ActionError{Code: "cancelled", Message: "the turn was interrupted before an answer"})
		return result{}
	}
	parsed, err := tool.Parse(c.req)
	if err != nil {
		t.cancelQuestion(asked)
		t.failItem(c.item, &heddlev1.ActionError{Code: "refused", Message: err.Error()})
		return text(err.Error())
	}
	if args, ok := parsed.(*tool.ExecCommand); ok && c.item.GetCommandExecution() != nil {
		return t.resumeAskedCommand(ctx, c, args, asked)
	}
	return t.resumeAskedPatch(ctx, c, parsed, asked)
}

func (t *turn) resumeAskedCommand(ctx context.Context, c *pastCall, args *tool.ExecCommand, asked *approval.Pending) (r result) {
	settings := t.settings()
	shown := c.decided
	if asked != nil {
		shown = asked.Approval()
	}
	e := &execution{t: t, req: c.req, args: args, argv: c.item.GetCommandExecution().GetArgv(), asked: asked, env: t.keptEnv(shown.GetId())}
	defer t.dropEnv(ctx, shown.GetId())
	policy := settings.GetSandbox()
	if args.Escalated {
		policy = unsandboxed(policy)
	}
	if err := e.build(settings, c.item.GetCommandExecution().GetCwd(), policy); err != nil {
		t.cancelQuestion(asked)
		t.failItem(c.item, &heddlev1.ActionError{Code: "refused", Message: err.Error()})
		return text("exec_command failed: " + err.Error())
	}
	e.item = c.item
	e.proc.item = c.item
	e.intent.ItemId = c.item.GetId()
	if !bytes.Equal(shown.GetActionHash(), e.action.GetActionHash()) {
		t.cancelQuestion(asked)
		t.lt.dropProcess(e.proc)
		why := "the command is not what was asked for any more, since its environment or policy changed"
		t.failItem(c.item, &heddlev1.ActionError{Code: "refused", Message: why})
		return text("exec_command failed: " + why)
	}
	if asked != nil {
		refused, after := e.await(ctx)
		defer func() { r.after = after }()
		if refused != nil {
			t.lt.dropProcess(e.proc)
			return *refused
		}
	} else if refused := e.apply(c.decided); refused != nil {
		t.lt.dropProcess(e.proc)
		return *refused
	}
	if err := t.commit(actionsIntended(t.id(), e.intent)); err != nil {
		t.lt.dropProcess(e.proc)
		return text("exec_command failed: " + err.Error())
	}
	e.setProcessID()
	began := time.Now()
	e.proc.start(t.lt.principal)
	return e.wait(ctx, began)
}

func (t *turn) resumeAskedPatch(ctx context.Context, c *pastCall, parsed tool.Call, asked *approval.Pending) result {
	p := t.patchingOf(c.req, parsed)
	if p == nil {
		t.cancelQuestion(asked)
		t.failItem(c.item, &heddlev1.ActionError{Code: "refused", Message: "the call is no patch any more"})
		return text("apply_patch failed: the call is no patch any more")
	}
	began := time.Now()
	p.item = c.item
	shown := c.decided
	if asked != nil {
		shown = asked.Approval()
	}
	refused := p.makePlan(ctx)
	if suspended(ctx) {
		return result{}
	}
	if refused != nil || !bytes.Equal(p.plan.GetPlanHash(), shown.GetActionHash()) {
		t.cancelQuestion(asked)
		why := "the files are not what they were when it was asked"
		t.failItem(c.item, &heddlev1.ActionError{Code: "refused", Message: why})
		if refused != nil {
			return *refused
		}
		return text("apply_patch failed: " + why)
	}
	p.commit = p.commitIntent()
	paths := touched(p.plan.GetChanges())
	if asked != nil {
		refused = p.await(ctx, asked, paths)
	} else {
		refused = p.apply(c.decided, paths)
	}
	if refused != nil {
		return *refused
	}
	if err := t.commit(actionsIntended(t.id(), p.commit)); err != nil {
		return text("apply_patch failed: " + err.Error())
	}
	return p.write(ctx, began)
}

// patchingOf makes the patch of a call, in whichever form it came.
func (t *turn) patchingOf(c *heddlev1.ToolCall, parsed tool.Call) *patching {
	switch a := parsed.(type) {
	case *tool.ApplyPatch:
		return t.newPatching(c, a.Patch, a.Workdir)
	case *tool.ExecCommand:
		if patch, workdir, ok := patchIn(a); ok {
			return t.newPatching(c, patch, workdir)
		}
	}
	return nil
}

// failItem completes an item of which nothing ran.
func (t *turn) failItem(item *heddlev1.Item, why *heddlev1.ActionError) {
	item.Status, item.CompletedAtMs = heddlev1.ItemStatus_ITEM_STATUS_FAILED, t.agent.now()
	if ce := item.GetCommandExecution(); ce != nil {
		ce.Error = why
	}
	if f := item.GetFileChange(); f != nil {
		f.Error = why
	}
	t.record(itemCompleted(item))
}
