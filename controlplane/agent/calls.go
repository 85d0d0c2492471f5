package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// call is one tool call of a model step on its way to a result.
type call struct {
	req *heddlev1.ToolCall
	// events belong to the durable commit of the step: the item's start and the
	// intent, or the question.
	events []*heddlev1.Event
	// alone is true for calls that must not run beside others.
	alone bool
	// do runs the call and returns its result. It runs after the commit.
	do func(ctx context.Context) result
	// undo gives back what newCall took, when the commit failed.
	undo func()
	// skip closes what events opened, when the turn was interrupted before the
	// call ran.
	skip func()
}

func (c *call) discard() {
	if c.undo != nil {
		c.undo()
	}
}

// result is what the model is told about a call.
type result struct {
	parts []*heddlev1.HistoryPart
	// after are further entries behind all results of the step.
	after []*heddlev1.HistoryEntry
	// cancel is true when the person ended the turn with the answer.
	cancel bool
}

func text(s string) result {
	return result{parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: s}}}}
}

// said is a call whose result is known before anything runs.
func said(c *heddlev1.ToolCall, output string) *call {
	return &call{req: c, do: func(context.Context) result { return text(output) }}
}

// newCall decides what a call needs. It runs before the step's commit.
func (t *turn) newCall(c *heddlev1.ToolCall) *call {
	if t.isDynamic(c) {
		return t.dynamicCall(c)
	}
	if m := t.mcpTool(c); m != nil {
		return t.mcpCall(c, m)
	}
	parsed, err := tool.Parse(c)
	if err != nil {
		var te *tool.Error
		if errors.As(err, &te) {
			return said(c, te.Output)
		}
		return said(c, err.Error())
	}
	switch parsed.(type) {
	case *tool.ExecCommand, *tool.WriteStdin, *tool.ApplyPatch, *tool.ViewImage:
		if t.rt != nil && t.rt.Tools.NoEnvironment {
			return said(c, "unsupported call: "+c.GetName())
		}
	}
	switch p := parsed.(type) {
	case *tool.ExecCommand:
		if patch, workdir, ok := patchIn(p); ok {
			return t.patchCall(c, patch, workdir)
		}
		return t.commandCall(c, p)
	case *tool.WriteStdin:
		return t.stdinCall(c, p)
	case *tool.ApplyPatch:
		return t.patchCall(c, p.Patch, p.Workdir)
	case *tool.UpdatePlan:
		if planning(t.settings()) {
			return said(c, "update_plan is a list of work in progress and is not available in Plan mode")
		}
		return &call{req: c, do: func(context.Context) result {
			t.record(planUpdated(t.id(), p.Explanation, p.Steps))
			return text("Plan updated")
		}}
	case *tool.ViewImage:
		return t.imageCall(c, p)
	case *tool.RequestUserInput:
		return t.inputCall(c, p)
	case *tool.RequestPermissions:
		return t.permissionsCall(c, p)
	case *tool.Goal:
		return t.goalCall(c, p)
	case *tool.Agents:
		return t.agentCall(c, p)
	}
	return said(c, "unsupported call: "+c.GetName())
}

// patchIn finds a patch in a command, and the folder it refers to.
func patchIn(p *tool.ExecCommand) (patch, workdir string, ok bool) {
	patch, workdir, ok = tool.PatchInCommand(p.Cmd)
	switch {
	case workdir == "":
		workdir = p.Workdir
	case p.Workdir != "":
		workdir = join(p.Workdir, workdir)
	}
	return patch, workdir, ok
}

// runCalls runs the calls of a step and records their results in call order.
// It returns the cause when the turn was interrupted meanwhile.
func (t *turn) runCalls(calls []*call) error {
	results := make([]result, len(calls))
	for i := 0; i < len(calls); {
		n := 1
		for !calls[i].alone && i+n < len(calls) && !calls[i+n].alone {
			n++
		}
		t.runTogether(calls[i:i+n], results[i:i+n])
		i += n
	}
	cause := context.Cause(t.ctx)
	if errors.Is(cause, ErrSuspended) {
		// What ended is recorded in its item; the rest is picked up later.
		return ErrSuspended
	}
	var entries, after []*heddlev1.HistoryEntry
	cancelled := false
	for i, c := range calls {
		entries = append(entries, outputEntry(c.req, results[i].parts))
		after = append(after, results[i].after...)
		cancelled = cancelled || results[i].cancel
	}
	t.record(t.remember(append(entries, after...)...))
	if cause == nil && cancelled {
		t.interrupt(causeApprovalCancelled)
		cause = context.Cause(t.ctx)
	}
	return cause
}

func (t *turn) runTogether(calls []*call, results []result) {
	began := time.Now()
	var wg sync.WaitGroup
	for i, c := range calls {
		run := func() {
			if t.ctx.Err() == nil || t.resume != nil {
				results[i] = c.do(t.ctx)
			} else if c.skip != nil && !suspended(t.ctx) {
				c.skip()
			}
			if results[i].parts == nil {
				results[i] = text(abortedText(time.Since(began)))
			}
		}
		if len(calls) == 1 {
			run()
			return
		}
		wg.Go(run)
	}
	wg.Wait()
}

// abortedText is what the model is told of a call that an interrupt ended.
func abortedText(after time.Duration) string {
	return fmt.Sprintf("aborted by user after %.1fs", after.Seconds())
}

func outputEntry(c *heddlev1.ToolCall, parts []*heddlev1.HistoryPart) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolOutput{ToolOutput: &heddlev1.ToolOutput{
		CallId: c.GetCallId(), Parts: parts, Freeform: c.GetFreeform()}}}
}
