package agent

import (
	"context"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/command"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
)

// sourceUser marks a command that the person ran.
const sourceUser = "userShell"

// Shell runs a command of the person without the sandbox: beside the turn that
// runs, or in one of its own. It returns the turn's id at once.
func (a *Agent) Shell(ctx context.Context, r TurnRequest, task *heddlev1.ShellTask) (string, error) {
	lt, err := a.acquired(ctx, r.ThreadID)
	if err != nil {
		return "", err
	}
	defer lt.release()
	if t := lt.current(); t != nil && !t.ending() {
		return t.id(), a.shellBeside(ctx, lt, t, task)
	}
	if err := lt.idle(ctx); err != nil {
		return "", err
	}
	r.kind, r.task = kindShell, &heddlev1.TurnTask{Task: &heddlev1.TurnTask_Shell{Shell: task}}
	ans, err := a.begin(ctx, lt, r)
	if err != nil {
		return "", err
	}
	return ans.Turn.GetId(), nil
}

// shellBeside runs the command while a turn works. Its model is told as soon as
// the command has ended.
func (a *Agent) shellBeside(ctx context.Context, lt *live, t *turn, task *heddlev1.ShellTask) error {
	row := t.snapshot()
	if !steerable(row.GetKind()) {
		return errdefs.New(errdefs.Busy, "a %s turn is running in thread %s", row.GetKind(), lt.id)
	}
	rt, err := a.cfg.Resolver.Resolve(ctx, lt.currentSettings(), row.GetSessionId())
	if err != nil {
		return err
	}
	p, events, err := lt.shellProcess(rt, row.GetId(), task)
	if err != nil {
		return err
	}
	if err := lt.persist(ctx, events...); err != nil {
		lt.dropProcess(p)
		return err
	}
	p.start(lt.principal)
	a.wg.Go(func() {
		select {
		case <-p.done:
		case <-a.ctx.Done():
			return
		}
		if err := a.tell(a.ctx, lt, p.shellEntry()); err != nil {
			a.cfg.Logger.Error("tell the model of a shell command", "thread", lt.id, "error", err)
		}
		lt.dropProcess(p)
	})
	return nil
}

// shellProcess makes the process of a command and the events that must be
// durable before it starts.
func (lt *live) shellProcess(rt *Runtime, turnID string, task *heddlev1.ShellTask) (*process, []*heddlev1.Event, error) {
	settings := lt.currentSettings()
	policy := unsandboxed(settings.GetSandbox())
	argv := command.ShellArgv(lt.shell(), task.GetCommand(), true)
	start := &executorv1.StartProcess{
		Argv: argv, Cwd: settings.GetCwd(), Env: rt.Env, Stdin: executorv1.StdinMode_STDIN_MODE_NONE, MergeOutput: true, TimeoutMs: task.GetTimeoutMs(),
	}
	action := &executorv1.Action{
		ActionId: newID(), Attempt: 1, Policy: proto.CloneOf(policy), Workspace: settings.GetCwd(),
		ActionHash: actionhash.Process(start.Argv, start.Cwd, start.Env, start.Tty, policy, settings.GetCwd()),
		Kind:       &executorv1.Action_StartProcess{StartProcess: start},
	}
	ce := &heddlev1.CommandExecution{
		Command: command.Join(argv), Argv: argv, Cwd: settings.GetCwd(), Source: sourceUser, Actions: command.Actions(task.GetCommand(), settings.GetCwd()),
	}
	item := &heddlev1.Item{
		Id: newID(), TurnId: turnID, StartedAtMs: lt.agent.now(), Status: heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS,
		Content: &heddlev1.Item_CommandExecution{CommandExecution: ce},
	}
	p, err := lt.newProcess(item, action, task.GetCommand())
	if err != nil {
		return nil, nil, err
	}
	ce.ProcessId = strconv.FormatInt(p.id, 10)
	intent := &heddlev1.ActionIntent{ActionId: action.GetActionId(), ItemId: item.GetId(), Kind: "process", ActionHash: action.GetActionHash(), Attempt: 1}
	return p, []*heddlev1.Event{itemStarted(item), actionsIntended(turnID, intent)}, nil
}

// shellEntry is what the model is told of the command, which has ended.
func (p *process) shellEntry() *heddlev1.HistoryEntry {
	p.mu.Lock()
	cmd, exit, total, failure := p.command, p.exit, p.total, p.failure
	p.mu.Unlock()
	output, _ := tool.Truncate(p.excerpt(0, total, 0), tool.DefaultMaxTokens)
	if failure != nil {
		output += failure.GetMessage()
	}
	return prompt.ShellCommand(cmd, exit, output)
}

// shellTurn runs the command that is the turn, or waits for it after a restart.
func (t *turn) shellTurn() error {
	p, err := t.shellOf()
	if err != nil {
		return err
	}
	if p != nil {
		select {
		case <-p.done:
		case <-t.ctx.Done():
			if suspended(t.ctx) {
				return ErrSuspended
			}
			p.end()
		}
		events := t.tellSurroundings()
		t.record(append(events, t.remember(p.shellEntry()))...)
		t.lt.dropProcess(p)
	}
	return context.Cause(t.ctx)
}

// shellOf is the turn's process. It is started unless it was before a restart;
// nil when it also ended before.
func (t *turn) shellOf() (*process, error) {
	if t.resume != nil && t.resume.shell {
		for _, p := range t.lt.processes(func(p *process) bool { return p.turnID == t.id() }) {
			// It may end meanwhile, and be told of then.
			p.mu.Lock()
			p.command = t.row.GetTask().GetShell().GetCommand()
			p.mu.Unlock()
			return p, nil
		}
		return nil, nil
	}
	p, events, err := t.lt.shellProcess(t.rt, t.id(), t.row.GetTask().GetShell())
	if err != nil {
		return nil, err
	}
	if err := t.commit(events...); err != nil {
		t.lt.dropProcess(p)
		return nil, err
	}
	p.start(t.lt.principal)
	return p, nil
}
