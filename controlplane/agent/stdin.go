package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/approval"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
)

// stdinWait is how long a write waits at least for the process to read what was
// written before.
const stdinWait = 5 * time.Second

var errUnread = errors.New("the process does not read its input")

// stdinCall writes to a running process, or only waits for its output. It makes
// no item. Writing to a process outside the thread's sandbox is an action that
// asks, unless the policy is never (I7). One that is outside because the thread
// lost permissions since is not written to then.
func (t *turn) stdinCall(c *heddlev1.ToolCall, args *tool.WriteStdin) *call {
	p := t.lt.process(args.SessionID)
	if p == nil {
		return said(c, fmt.Sprintf("write_stdin failed: Unknown process id %d", args.SessionID))
	}
	if args.Chars == "" {
		return &call{req: c, do: func(ctx context.Context) result { return t.poll(ctx, p, args) }}
	}
	if !p.tty {
		return said(c, "write_stdin failed: stdin is closed for this session; rerun exec_command with tty=true to keep stdin open")
	}
	never := t.settings().GetApprovalPolicy() == approval.Never
	outside := p.outside(t.settings())
	if outside && never && !p.escalated {
		return said(c, "write_stdin failed: the process was started with more permissions than the thread has now, and nobody may be asked; start it again")
	}
	intent := &heddlev1.ActionIntent{
		ActionId: newID(), ItemId: p.item.GetId(), CallId: c.GetCallId(), Kind: "stdin", Attempt: 1,
		ActionHash: actionhash.Stdin(p.action.GetActionId(), []byte(args.Chars)),
	}
	k := &call{req: c}
	var asked *approval.Pending
	if outside && !never {
		a, err := t.stdinApproval(p, args, intent)
		if err != nil {
			return said(c, "write_stdin failed: approval request failed: "+err.Error())
		}
		asked = t.open(a, intent)
		k.undo = asked.Suspend
		k.events = []*heddlev1.Event{approvalRequested(a)}
	} else {
		k.events = []*heddlev1.Event{actionsIntended(t.id(), intent)}
	}
	k.skip = func() {
		t.cancelQuestion(asked)
		t.record(actionsResolved(t.id(), intent.GetActionId()))
	}
	k.do = func(ctx context.Context) result {
		defer t.record(actionsResolved(t.id(), intent.GetActionId()))
		if asked != nil {
			if refused := t.awaitStdin(ctx, asked); refused != nil {
				return *refused
			}
		}
		return t.write(ctx, p, args)
	}
	return k
}

func (t *turn) stdinApproval(p *process, args *tool.WriteStdin, intent *heddlev1.ActionIntent) (*heddlev1.Approval, error) {
	a, err := t.newApproval(p.item, "write to a process that runs outside the sandbox", heddlev1.Risk_RISK_HIGH, intent.GetActionHash())
	if err != nil {
		return nil, err
	}
	ce := p.item.GetCommandExecution()
	a.Subject = &heddlev1.Approval_Command{Command: &heddlev1.CommandApproval{
		Command: fmt.Sprintf("write_stdin %d %s", p.id, strconv.Quote(args.Chars)), Argv: ce.GetArgv(), Cwd: ce.GetCwd(),
		Actions: []*heddlev1.CommandAction{{Kind: "unknown", Command: args.Chars}}, Escalated: true, Policy: p.action.GetPolicy(),
		Stdin: &heddlev1.StdinContext{ProcessId: strconv.FormatInt(p.id, 10), Text: args.Chars},
	}}
	return a, nil
}

func (t *turn) awaitStdin(ctx context.Context, asked *approval.Pending) *result {
	a, _, ok := t.awaitDecision(ctx, asked)
	switch {
	case !ok:
		return &result{}
	case accepts(a.GetDecision()):
		return nil
	case a.GetDecision() == heddlev1.Decision_DECISION_UNUSABLE:
		r := text("write_stdin failed: approval request failed")
		return &r
	}
	r := text(fmt.Sprintf("write_stdin failed: %q", refusedBy(a)))
	r.cancel = a.GetDecision() == heddlev1.Decision_DECISION_CANCEL
	return &r
}

func (t *turn) write(ctx context.Context, p *process, args *tool.WriteStdin) result {
	p.mu.Lock()
	h := p.handle
	p.mu.Unlock()
	t.record(terminalInteraction(t.id(), p.item.GetId(), strconv.FormatInt(p.id, 10), args.Chars))
	if h != nil && !p.ended() {
		// A process that does not read holds up its writer, for a while.
		soon, cancel := context.WithTimeoutCause(ctx, max(args.Yield, stdinWait), errUnread)
		err := h.Stdin(soon, []byte(args.Chars), false)
		cancel()
		if err != nil && ctx.Err() == nil {
			return text("write_stdin failed: " + err.Error())
		}
	}
	return t.poll(ctx, p, args)
}

// poll waits for the end of the process or of the yield time. An interrupt ends
// the processes of this turn; those of earlier turns stay.
func (t *turn) poll(ctx context.Context, p *process, args *tool.WriteStdin) result {
	began := time.Now()
	timer := time.NewTimer(args.Yield)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	case <-ctx.Done():
		return result{}
	}
	return text(p.tell(time.Since(began), args.MaxOutputTokens))
}
