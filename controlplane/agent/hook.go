package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/controlplane/command"
	"github.com/heddle-dev/heddle/controlplane/hook"
	"github.com/heddle-dev/heddle/proto/failpoint"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxHookOutput bounds what is read of each output stream of a hook.
	maxHookOutput = 256 << 10
	// maxHookInput bounds the texts that a hook is given.
	maxHookInput = 256 << 10
	// hookChunk is the size of one write to a hook's standard input.
	hookChunk = 64 << 10
	// maxContinuations bounds how often stop hooks make one turn go on.
	maxContinuations = 64
)

const (
	hookCancelled = "Hook cancelled because the turn was interrupted"
	hookUnknown   = "the outcome of the hook is unknown: the control plane was restarted while it ran; it was not run again"
)

// hooksFor are the hooks that run at a point, for one of some names of its
// subject.
func (t *turn) hooksFor(event string, names ...string) []hook.Hook {
	var out []hook.Hook
	if t.rt == nil {
		return nil
	}
	for _, h := range t.rt.Hooks {
		if h.Event == event && h.Runs() && h.Matches(names...) {
			out = append(out, h)
		}
	}
	return out
}

// warnOfHooks tells once what is wrong with the hooks, and of those that wait for
// the person's trust.
func (t *turn) warnOfHooks() {
	warnings := t.rt.HookWarnings
	waiting := 0
	for _, h := range t.rt.Hooks {
		if h.Enabled && !h.Runs() {
			waiting++
		}
	}
	if waiting > 0 {
		warnings = append(warnings[:len(warnings):len(warnings)], fmt.Sprintf("%d hooks of the config are new or changed and are not run before they are trusted (hooks/list shows them)", waiting))
	}
	for _, w := range warnings {
		if t.lt.warnOnce(w) {
			t.record(warningRaised(t.id(), w))
		}
	}
}

// hookInput is what every hook of the turn is given.
func (t *turn) hookInput(event string) hook.Input {
	s := t.settings()
	mode := "default"
	switch {
	case planning(s):
		mode = "plan"
	case s.GetApprovalPolicy() == approval.Never:
		mode = "bypassPermissions"
	}
	in := hook.Input{SessionID: t.lt.id, TurnID: t.id(), Cwd: s.GetCwd(), EventName: hook.Title(event), Model: cmp.Or(s.GetModel(), t.rt.Model.ID), PermissionMode: mode}
	if event == hook.SessionStart {
		in.TurnID = ""
	}
	return in
}

// runHooks runs the hooks of one point side by side and returns how they ended,
// in order. Their start is durable before any of them runs. What ran before a
// restart is not run again: its recorded end counts, or its outcome is unknown.
func (t *turn) runHooks(ctx context.Context, hooks []hook.Hook, in hook.Input) ([]*heddlev1.HookRun, error) {
	input, err := in.Encode()
	if err != nil {
		return nil, err
	}
	runs := make([]*heddlev1.HookRun, len(hooks))
	var started []*heddlev1.Event
	fresh := make([]bool, len(hooks))
	for i, h := range hooks {
		id := h.RunID(in.ToolUseID)
		if past := t.pastHook(id, h.Hash, in.Subject); past != nil {
			runs[i] = past
			continue
		}
		scope := "turn"
		if h.Event == hook.SessionStart {
			scope = "thread"
		}
		runs[i] = &heddlev1.HookRun{
			Id: id, EventName: h.Event, Scope: scope, SourcePath: h.SourcePath, Source: h.Source, DisplayOrder: h.Order, Status: hook.Running,
			StatusMessage: h.StatusMessage, StartedAtMs: t.agent.now(), ActionId: newID(), CallId: in.Subject, Hash: h.Hash,
		}
		fresh[i] = true
		started = append(started, hookStarted(t.id(), runs[i]))
	}
	if len(started) > 0 {
		if err := t.commit(started...); err != nil {
			return nil, err
		}
		failpoint.Hit("agent/hooks-started")
	}
	var wg sync.WaitGroup
	for i, h := range hooks {
		if fresh[i] {
			wg.Go(func() { t.runHook(ctx, h, runs[i], input) })
		}
	}
	wg.Wait()
	if suspended(ctx) {
		return nil, ErrSuspended
	}
	for i, run := range runs {
		if fresh[i] {
			t.record(hookCompleted(t.id(), run))
		}
	}
	return runs, context.Cause(ctx)
}

// runHook runs one hook to its end, in the thread's sandbox, and puts its answer
// into run.
func (t *turn) runHook(ctx context.Context, h hook.Hook, run *heddlev1.HookRun, input []byte) {
	began := time.Now()
	out, res, err := t.hookCommand(ctx, h, run.GetActionId(), input)
	run.CompletedAtMs, run.DurationMs = t.agent.now(), time.Since(began).Milliseconds()
	why := failure(res, err)
	p := res.GetProcess()
	switch {
	case ctx.Err() != nil:
		hook.Fail(run, hookCancelled)
	case why != nil:
		hook.Fail(run, "hook could not be run: "+why.GetMessage())
	case p == nil:
		hook.Fail(run, "hook exited without a status code")
	case p.GetVerdict().GetTimedOut():
		hook.Fail(run, "hook timed out after "+h.Timeout.String())
	case p.GetVerdict().GetSandboxLost():
		hook.Fail(run, sandboxLost().GetMessage())
	case out.cut:
		hook.Fail(run, fmt.Sprintf("hook wrote more than %d bytes", maxHookOutput))
	default:
		hook.Answer(run, p.GetExitCode(), out.stdout, out.stderr)
	}
	if p != nil {
		run.DurationMs = p.GetDurationMs()
		if w := violationWarning(t.id(), h.Command, p.GetVerdict()); len(w) > 0 {
			t.record(w...)
		}
	}
}

// hookOutput is what a hook printed, bounded.
type hookOutput struct {
	mu             sync.Mutex
	stdout, stderr []byte
	cut            bool
}

func (o *hookOutput) take(c *executorv1.OutputChunk) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	buf := &o.stdout
	if c.GetStream() == 2 {
		buf = &o.stderr
	}
	if c.GetOffset() != int64(len(*buf)) {
		// What came before was taken by a control plane that is gone, or was cut.
		o.cut = true
		return nil
	}
	room := maxHookOutput - len(*buf)
	o.cut = o.cut || len(c.GetData()) > room || c.GetDropped() > 0
	*buf = append(*buf, c.GetData()[:min(room, len(c.GetData()))]...)
	return nil
}

// hookCommand runs the command of a hook as those of the thread run: under its
// policy, with its filtered environment. An interrupt of the turn ends it.
func (t *turn) hookCommand(ctx context.Context, h hook.Hook, id string, input []byte) (*hookOutput, *executorv1.ActionResult, error) {
	out := &hookOutput{}
	s := t.settings()
	argv := command.ShellArgv(t.lt.shell(), h.Command, true)
	action := started{argv: argv, cwd: s.GetCwd(), env: t.rt.Env, policy: s.GetSandbox(), workspace: s.GetCwd()}.action(id)
	start := action.GetStartProcess()
	start.Stdin, start.MergeOutput, start.TimeoutMs, start.OutputCap = executorv1.StdinMode_STDIN_MODE_PIPE, false, h.Timeout.Milliseconds(), 2*maxHookOutput
	if err := t.lt.pin(ctx, action); err != nil {
		return out, nil, err
	}
	handle, err := t.agent.cfg.Dispatcher.Start(context.WithoutCancel(ctx), Spec{ThreadID: t.lt.id, Principal: t.lt.principal, Action: action, Output: out.take})
	if err != nil {
		return out, nil, err
	}
	// A hook need not read what it is given.
	writing, stop := context.WithCancel(ctx)
	defer stop()
	t.agent.wg.Go(func() {
		for rest := input; ; rest = rest[hookChunk:] {
			last := len(rest) <= hookChunk
			if handle.Stdin(writing, rest[:min(len(rest), hookChunk)], last) != nil || last {
				return
			}
		}
	})
	res, err := handle.Result(ctx)
	if ctx.Err() != nil && err != nil && !suspended(ctx) {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
		defer cancel()
		// The processes of the turn are gone before its end is.
		_ = handle.Interrupt(after)
		if _, err := handle.Result(after); err != nil {
			t.lt.kill(handle)
		}
	}
	if err == nil {
		time.AfterFunc(settleAfter, handle.Settle)
	}
	return out, res, err
}

// hookContexts are what hooks tell the model besides.
func hookContexts(runs []*heddlev1.HookRun) []*heddlev1.HistoryEntry {
	var out []*heddlev1.HistoryEntry
	for _, run := range runs {
		for _, c := range hook.Said(run, "context") {
			out = append(out, prompt.HookContext(clipTold(c)))
		}
	}
	return out
}

// hookRefusal is why hooks that blocked or stopped did; ok is false when none did.
func hookRefusal(runs []*heddlev1.HookRun) (why string, ok bool) {
	var all []string
	for _, run := range runs {
		switch run.GetStatus() {
		case hook.Blocked:
			all = append(all, hook.Said(run, "feedback")...)
		case hook.Stopped:
			all = append(all, hook.Said(run, "stop")...)
		}
	}
	return clipTold(strings.Join(all, "\n\n")), len(all) > 0
}

// clipTold bounds what hooks tell the model, as outputs of tools are.
func clipTold(s string) string {
	told, _ := tool.Truncate([]byte(s), tool.DefaultMaxTokens)
	return told
}

func clipHookInput(s string) string {
	if len(s) <= maxHookInput {
		return s
	}
	return strings.ToValidUTF8(s[:maxHookInput], "")
}

// stopHooks runs the hooks of a turn's end; it reports whether they give the
// model something to go on with.
func (t *turn) stopHooks() (bool, error) {
	hooks := t.hooksFor(hook.Stop)
	if len(hooks) == 0 || t.private {
		return false, nil
	}
	in := t.hookInput(hook.Stop)
	active := t.continued > 0
	in.StopActive = &active
	if m := t.last.GetAgentMessage(); m != nil {
		said := clipHookInput(m.GetText())
		in.LastMessage = &said
	}
	runs, err := t.runHooks(t.ctx, hooks, in)
	if err != nil {
		return false, err
	}
	p := &heddlev1.HookPrompt{}
	for _, run := range runs {
		if run.GetStatus() == hook.Stopped {
			return false, nil
		}
		if run.GetStatus() == hook.Blocked {
			p.Fragments = append(p.Fragments, &heddlev1.HookFragment{Text: clipTold(strings.Join(hook.Said(run, "feedback"), "\n")), HookRunId: run.GetId()})
		}
	}
	if len(p.Fragments) == 0 {
		return false, nil
	}
	if t.continued >= maxContinuations {
		t.record(warningRaised(t.id(), fmt.Sprintf("stop hooks made this turn go on %d times, which is the limit; it ends", t.continued)))
		return false, nil
	}
	t.continued++
	now := t.agent.now()
	item := &heddlev1.Item{Id: newID(), TurnId: t.id(), StartedAtMs: now, Status: heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, Content: &heddlev1.Item_HookPrompt{HookPrompt: p}}
	started := itemStarted(item)
	item.CompletedAtMs = now
	t.record(started, itemCompleted(item), t.remember(prompt.HookPrompt(p)))
	return true, nil
}

func hookStarted(turnID string, run *heddlev1.HookRun) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_HookStarted{HookStarted: &heddlev1.HookStarted{Run: proto.CloneOf(run)}}}
}

func hookCompleted(turnID string, run *heddlev1.HookRun) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_HookCompleted{HookCompleted: &heddlev1.HookCompleted{Run: proto.CloneOf(run)}}}
}

// errHooks says that a call could not be made because its hooks could not run.
func errHooks(err error) result {
	if errors.Is(err, ErrSuspended) {
		return result{}
	}
	return text("the call was not made: its hooks could not be run: " + err.Error())
}
