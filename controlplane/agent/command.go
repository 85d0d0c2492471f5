package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/controlplane/command"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
)

// Sources of a command item, as clients know them.
const (
	sourceStartup = "unifiedExecStartup"
	sourceAgent   = "agent"
)

// Size of a terminal that nobody has sized.
const (
	defaultRows = 24
	defaultCols = 80
)

// execution is one exec_command call.
type execution struct {
	t    *turn
	req  *heddlev1.ToolCall
	args *tool.ExecCommand
	argv []string
	// env is the environment; nil for that of the turn.
	env    []string
	item   *heddlev1.Item
	action *executorv1.Action
	// intent is durable before the process may start.
	intent *heddlev1.ActionIntent
	proc   *process
	asked  *approval.Pending
}

// commandCall decides whether a command runs, asks or is refused.
func (t *turn) commandCall(c *heddlev1.ToolCall, args *tool.ExecCommand) *call {
	settings := t.settings()
	e := &execution{t: t, req: c, args: args}
	shell := args.Shell
	if shell == "" {
		shell = t.lt.shell()
	}
	e.argv = command.ShellArgv(shell, args.Cmd, args.Login)
	cwd := join(settings.GetCwd(), args.Workdir)
	verdict := t.decideCommand(settings, args, e.argv, cwd)
	if verdict.Outcome == approval.Refuse {
		return said(c, verdict.Refusal)
	}
	policy := settings.GetSandbox()
	if args.Escalated {
		policy = unsandboxed(policy)
	}
	if err := e.build(settings, cwd, policy); err != nil {
		return said(c, "exec_command failed: "+err.Error())
	}
	k := &call{req: c, do: e.run, undo: e.undo, skip: e.skip}
	if verdict.Outcome == approval.Ask {
		events, err := e.ask(cwd, policy)
		if err != nil {
			return said(c, "exec_command failed: approval request failed: "+err.Error())
		}
		k.events = events
		return k
	}
	e.setProcessID()
	k.events = []*heddlev1.Event{itemStarted(e.item), actionsIntended(t.id(), e.intent)}
	return k
}

func (t *turn) decideCommand(settings *heddlev1.ThreadSettings, args *tool.ExecCommand, argv []string, cwd string) approval.Verdict {
	_, dangerous := command.Dangerous(args.Cmd)
	f := approval.CommandFacts{
		Policy: settings.GetApprovalPolicy(), Granular: settings.GetGranularApproval(), Level: settings.GetSandbox().GetLevel(),
		Escalated: args.Escalated, Dangerous: dangerous, Shown: args.Cmd,
		Remembered: t.lt.remembered().CommandAllowed(argv, cwd, args.Escalated),
	}
	if t.rt.IgnoreRules {
		return approval.DecideCommand(f)
	}
	verdict, rule := t.agent.cfg.Rules.Decide(args.Cmd)
	switch verdict {
	case command.Allow:
		f.Rule = approval.RuleAllow
		f.RuleEscalates = rule == nil || !t.agent.plainRule(rule.Pattern)
	case command.Prompt:
		f.Rule = approval.RulePrompt
	case command.Forbid:
		f.Rule = approval.RuleForbid
	}
	return approval.DecideCommand(f)
}

// unsandboxed is the policy of an escalated command.
func unsandboxed(p *heddlev1.SandboxPolicy) *heddlev1.SandboxPolicy {
	if p.GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL {
		return p
	}
	return &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS, Network: heddlev1.NetworkMode_NETWORK_MODE_FULL, HostTmp: true}
}

// build makes the item, the action and its intent.
func (e *execution) build(settings *heddlev1.ThreadSettings, cwd string, policy *heddlev1.SandboxPolicy) error {
	t := e.t
	if e.env == nil {
		e.env = t.rt.Env
	}
	id := newID()
	e.action = started{argv: e.argv, cwd: cwd, env: e.env, tty: e.args.TTY, policy: policy, workspace: settings.GetCwd()}.action(id)
	e.item = t.begunItem(e.req.GetCallId())
	e.item.Content = &heddlev1.Item_CommandExecution{CommandExecution: &heddlev1.CommandExecution{
		Command: command.Join(e.argv), Argv: e.argv, Cwd: cwd, Source: sourceStartup, Actions: command.Actions(e.args.Cmd, cwd)}}
	e.intent = &heddlev1.ActionIntent{ActionId: id, ItemId: e.item.GetId(), CallId: e.req.GetCallId(), Kind: "process", ActionHash: e.action.GetActionHash(), Attempt: 1}
	proc, err := t.lt.newProcess(e.item, e.action, e.args.Cmd)
	if err != nil {
		return err
	}
	proc.tty, proc.escalated = e.args.TTY, e.args.Escalated
	e.proc = proc
	return nil
}

// started is a command as the action that starts it names it.
type started struct {
	argv, env []string
	cwd       string
	tty       bool
	policy    *heddlev1.SandboxPolicy
	workspace string
}

// action starts the command.
func (c started) action(id string) *executorv1.Action {
	start := &executorv1.StartProcess{Argv: c.argv, Cwd: c.cwd, Env: c.env, Tty: c.tty, Stdin: executorv1.StdinMode_STDIN_MODE_NONE, MergeOutput: true}
	if c.tty {
		start.Stdin, start.Rows, start.Cols = executorv1.StdinMode_STDIN_MODE_PIPE, defaultRows, defaultCols
		start.MergeOutput = false
	}
	return &executorv1.Action{
		ActionId: id, Attempt: 1, Policy: proto.CloneOf(c.policy), Workspace: c.workspace,
		ActionHash: actionhash.Process(c.argv, c.cwd, c.env, c.tty, c.policy, c.workspace),
		Kind:       &executorv1.Action_StartProcess{StartProcess: start},
	}
}

func (e *execution) setProcessID() {
	e.item.GetCommandExecution().ProcessId = strconv.FormatInt(e.proc.id, 10)
}

func (e *execution) undo() {
	if e.asked != nil {
		e.asked.Suspend()
	}
	e.t.lt.dropProcess(e.proc)
}

// skip closes the item of a command that an interrupt kept from running.
func (e *execution) skip() {
	e.t.cancelQuestion(e.asked)
	e.t.dropEnv(context.WithoutCancel(e.t.ctx), e.asked.Approval().GetId())
	e.t.lt.dropProcess(e.proc)
	e.close(heddlev1.ItemStatus_ITEM_STATUS_FAILED, &heddlev1.ActionError{Code: "cancelled", Message: "the turn was interrupted before the command ran"})
}

// ask makes the question; its events are part of the step's commit.
func (e *execution) ask(cwd string, policy *heddlev1.SandboxPolicy) ([]*heddlev1.Event, error) {
	e.item.GetCommandExecution().Source = sourceAgent
	a, err := e.t.newApproval(e.item, e.args.Justification, command.Risk(e.args.Cmd), e.action.GetActionHash())
	if err != nil {
		e.t.lt.dropProcess(e.proc)
		return nil, err
	}
	a.Subject = &heddlev1.Approval_Command{Command: &heddlev1.CommandApproval{
		Command: e.item.GetCommandExecution().GetCommand(), Argv: e.argv, Cwd: cwd, Actions: e.item.GetCommandExecution().GetActions(),
		ProposedAmendment: command.ProposedAmendment(e.args.Cmd, e.args.PrefixRule), Escalated: e.args.Escalated, Policy: policy,
	}}
	e.t.keepEnv(a.GetId(), e.env)
	e.asked = e.t.open(a, e.intent)
	return []*heddlev1.Event{itemStarted(e.item), approvalRequested(a)}, nil
}

// run waits for the answer where one is needed, then runs the command until it
// ends or its yield time is over.
func (e *execution) run(ctx context.Context) result {
	var after []*heddlev1.HistoryEntry
	if e.asked != nil {
		defer e.t.dropEnv(ctx, e.asked.Approval().GetId())
		refused, entries := e.await(ctx)
		if refused != nil {
			e.t.lt.dropProcess(e.proc)
			return *refused
		}
		after = entries
		e.setProcessID()
	}
	if ctx.Err() != nil {
		if !suspended(ctx) {
			e.asked = nil
			e.skip()
		}
		return result{after: after}
	}
	if e.tightened() {
		r := e.refuseTightened()
		r.after = after
		return r
	}
	began := time.Now()
	e.proc.start(e.t.lt.principal)
	r := e.wait(ctx, began)
	r.after = after
	return r
}

// wait gives the model what there is at the end of the process or of the yield
// time. An interrupt ends the process.
func (e *execution) wait(ctx context.Context, began time.Time) result {
	timer := time.NewTimer(e.args.Yield)
	defer timer.Stop()
	var answered <-chan struct{}
	for {
		select {
		case <-answered: // the command goes on: its time begins anew
			answered = nil
			timer.Reset(e.args.Yield)
			continue
		case <-e.proc.done:
		case <-timer.C:
			// A command that waits for an answer about a host is not slow.
			if answered = e.proc.hosts.asking(); answered != nil {
				continue
			}
		case <-ctx.Done():
			if suspended(ctx) {
				return result{}
			}
			e.proc.end()
			return text(e.proc.aborted(time.Since(began)))
		}
		return text(e.proc.tell(time.Since(began), e.args.MaxOutputTokens))
	}
}

// await waits for the decision. A nil result means that the command may run.
func (e *execution) await(ctx context.Context) (*result, []*heddlev1.HistoryEntry) {
	a, amendment, ok := e.t.awaitDecision(ctx, e.asked)
	if !ok {
		if suspended(ctx) {
			return &result{}, nil
		}
		e.close(heddlev1.ItemStatus_ITEM_STATUS_FAILED, &heddlev1.ActionError{Code: "cancelled", Message: "the turn was interrupted before an answer"})
		return &result{}, nil
	}
	if a.GetDecision() == heddlev1.Decision_DECISION_ACCEPT_WITH_AMENDMENT {
		after := e.t.amend(a, amendment)
		return nil, after
	}
	return e.apply(a), nil
}

// apply does what was decided; nil means that the command may run.
func (e *execution) apply(a *heddlev1.Approval) *result {
	switch a.GetDecision() {
	case heddlev1.Decision_DECISION_ACCEPT, heddlev1.Decision_DECISION_ACCEPT_WITH_AMENDMENT:
		return nil
	case heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION:
		e.t.lt.remember(func(m *approval.Memory) { m.AllowCommand(e.argv, a.GetCommand().GetCwd(), e.args.Escalated) })
		return nil
	case heddlev1.Decision_DECISION_DECLINE, heddlev1.Decision_DECISION_CANCEL:
		e.close(heddlev1.ItemStatus_ITEM_STATUS_DECLINED, nil)
		r := text(fmt.Sprintf("exec_command failed for `%s`: %q", e.item.GetCommandExecution().GetCommand(), refusedBy(a)))
		r.cancel = a.GetDecision() == heddlev1.Decision_DECISION_CANCEL
		return &r
	}
	e.close(heddlev1.ItemStatus_ITEM_STATUS_FAILED, &heddlev1.ActionError{Code: "refused", Message: "approval request failed"})
	r := text(fmt.Sprintf("exec_command failed for `%s`: approval request failed", e.item.GetCommandExecution().GetCommand()))
	return &r
}

// close completes the item of a command that never ran.
func (e *execution) close(status heddlev1.ItemStatus, why *heddlev1.ActionError) {
	e.item.Status = status
	e.item.CompletedAtMs = e.t.agent.now()
	e.item.GetCommandExecution().Error = why
	e.t.record(itemCompleted(e.item), actionsResolved(e.t.id(), e.intent.GetActionId()))
}

// amend keeps a rule that came with an acceptance and tells the model.
func (t *turn) amend(a *heddlev1.Approval, prefix []string) []*heddlev1.HistoryEntry {
	if len(prefix) == 0 {
		prefix = a.GetCommand().GetProposedAmendment()
	}
	if len(prefix) == 0 {
		return nil
	}
	if err := t.agent.addRule(t.ctx, prefix, a.GetCommand().GetEscalated()); err != nil {
		t.record(warningRaised(t.id(), "the rule could not be kept: "+err.Error()))
		return nil
	}
	return []*heddlev1.HistoryEntry{prompt.RuleAdded(prefix)}
}

func suspended(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrSuspended) }

// join resolves a path against a folder.
func join(dir, path string) string {
	if path == "" {
		return dir
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}
