package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// shown is everything that a request shows to the model, as one text.
func shown(r model.Request) string { return fmt.Sprint(r.Input) }

func (r *rig) last() model.Request {
	r.t.Helper()
	reqs := r.model.asked()
	if len(reqs) == 0 {
		r.t.Fatal("the model was not asked")
	}
	return reqs[len(reqs)-1]
}

func wantShown(t *testing.T, r model.Request, has []string, lacks ...string) {
	t.Helper()
	all := shown(r)
	for _, s := range has {
		if !strings.Contains(all, s) {
			t.Errorf("the model is not shown %q in %s", s, all)
		}
	}
	for _, s := range lacks {
		if strings.Contains(all, s) {
			t.Errorf("the model is shown %q in %s", s, all)
		}
	}
}

// gated waits for the end of the channel before it answers.
func gated(open <-chan struct{}, then reply) reply {
	return func(ctx context.Context, yield func(model.Event) error) error {
		select {
		case <-open:
			return then(ctx, yield)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func toolList(t *testing.T, tools ...any) *structpb.ListValue {
	t.Helper()
	l, err := structpb.NewList(tools)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func lookupTool() any {
	return map[string]any{"type": "function", "name": "lookup", "description": "Look up", "inputSchema": map[string]any{"type": "object"}}
}

func TestCompactionTakesNoInput(t *testing.T) {
	r := newRig(t)
	open := make(chan struct{})
	r.model.script(speak("m1", "one"), gated(open, speak("m2", "SUMMARY")), speak("m3", "three"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "first question")
	f.turnEnd()
	resp, err := r.turns.CompactThread(ctx, &heddlev1.CompactThreadRequest{ThreadId: th.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	f.until(func(e *heddlev1.Event) bool { return e.GetItemStarted().GetItem().GetContextCompaction() != nil })
	_, err = r.turns.SteerTurn(ctx, &heddlev1.SteerTurnRequest{ThreadId: th.GetId(), ExpectedTurnId: resp.GetTurn().GetId(), Input: say("x")})
	if !errdefs.Is(err, errdefs.TurnNotSteerable) {
		t.Errorf("steer: %v", err)
	}
	if _, err = r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: th.GetId(), Input: say("x")}); !errdefs.Is(err, errdefs.TurnNotSteerable) {
		t.Errorf("start: %v", err)
	}
	if _, err = r.turns.CompactThread(ctx, &heddlev1.CompactThreadRequest{ThreadId: th.GetId()}); !errdefs.Is(err, errdefs.Busy) {
		t.Errorf("compact again: %v", err)
	}
	if _, err = r.threads.InjectItems(ctx, &heddlev1.InjectItemsRequest{ThreadId: th.GetId(), Entries: []*heddlev1.HistoryEntry{assistant("a", "x")}}); !errdefs.Is(err, errdefs.Busy) {
		t.Errorf("inject: %v", err)
	}
	close(open)
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED || end.GetKind() != "compact" {
		t.Fatalf("%v", end)
	}
	r.startTurn(ctx, th.GetId(), "second question")
	f.turnEnd()
	wantShown(t, r.last(), []string{"first question", "SUMMARY", "second question"}, `"one"`)
}

// A compaction that the stop of the control plane cut is done again, once.
func TestRestartInMidCompaction(t *testing.T) {
	r, restart := durable(t)
	r.model.script(speak("m1", "one"), hang("m2", "part"), speak("m3", "SUMMARY"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	if _, err := r.turns.CompactThread(ctx, &heddlev1.CompactThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Fatal(err)
	}
	f.until(func(e *heddlev1.Event) bool { return e.GetItemStarted().GetItem().GetContextCompaction() != nil })
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f = r.follow(th.GetId(), 1)
	f.turnEnd()
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Fatalf("%v", end)
	}
	r.model.script(speak("m4", "after"))
	r.startTurn(ctx, th.GetId(), "more")
	f.turnEnd()
	wantShown(t, r.last(), []string{"SUMMARY", "more"})
	if n := strings.Count(shown(r.last()), "SUMMARY"); n != 1 {
		t.Errorf("%d summaries", n)
	}
}

func TestReviewIsPrivate(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "echo looked")), speak("m1", `{"findings":[],"overall_explanation":"All fine"}`), speak("m2", "ok"))
	ctx, th := r.thread(workspaceWrite("untrusted"))
	f := r.follow(th.GetId(), 1)
	_, err := r.turns.StartReview(ctx, &heddlev1.StartReviewRequest{ThreadId: th.GetId(), Target: &heddlev1.StartReviewRequest_Custom{Custom: "LOOK-HERE"}})
	if err != nil {
		t.Fatal(err)
	}
	f.turnEnd()
	// Nobody is asked, and the reviewer's own message is not shown.
	expect(t, f, "started start:item end:item:completed usage start:command output end:command:completed usage start:item end:item:completed start:agent end:agent:completed turn:completed")
	wantShown(t, r.model.asked()[0], []string{"LOOK-HERE", "You review changes"})
	r.startTurn(ctx, th.GetId(), "and now")
	f.turnEnd()
	wantShown(t, r.last(), []string{"All fine", "and now", "environment_context"}, "You review changes", "looked")
}

// A question to the client's tool is asked again after a restart, with the same
// id, and the answer counts once.
func TestRestartWhileAClientToolRuns(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(&heddlev1.ToolCall{CallId: "c1", Name: "lookup", Arguments: `{"id":1}`}), speak("m", "ok"))
	s := workspaceWrite("never")
	s.DynamicTools = toolList(t, lookupTool())
	ctx, th := r.thread(s)
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	a := f.approval()
	if row := r.row(th.GetId()); row.GetWaitingOnApproval() || row.GetWaitingOnUserInput() {
		t.Error("a tool of the client counts as a question to a person")
	}
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	load, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: th.GetId()})
	if err != nil || len(load.GetPendingApprovals()) != 1 || load.GetPendingApprovals()[0].GetRequestId() != a.GetRequestId() {
		t.Fatal(load, err)
	}
	answer, err := structpb.NewValue(map[string]any{"contentItems": []any{map[string]any{"type": "inputText", "text": "FOUND"}}, "success": true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.approvals.ResolveApproval(ctx, &heddlev1.ResolveApprovalRequest{
		ThreadId: th.GetId(), ApprovalId: a.GetId(), Decision: heddlev1.Decision_DECISION_ACCEPT, Answer: answer,
	}); err != nil {
		t.Fatal(err)
	}
	f = r.follow(th.GetId(), 1)
	f.turnEnd()
	once(t, f)
	if out := r.model.output("c1"); out != "FOUND" {
		t.Errorf("the model was told %q", out)
	}
}

func (r *rig) row(id string) *heddlev1.Thread {
	r.t.Helper()
	resp, err := r.threads.GetThread(context.Background(), &heddlev1.GetThreadRequest{ThreadId: id})
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.GetThread()
}

// Questions in plan mode survive a restart too; they have no item.
func TestRestartWhileAskingThePerson(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(&heddlev1.ToolCall{CallId: "c1", Name: "request_user_input", Arguments: `{"questions":[{"id":"q","question":"Which?"}]}`}), speak("m", "ok"))
	s := workspaceWrite("never")
	mode, err := structpb.NewStruct(map[string]any{"mode": "plan", "settings": map[string]any{"model": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	s.CollaborationMode = mode
	ctx, th := r.thread(s)
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	a := f.approval()
	if row := r.row(th.GetId()); row.GetWaitingOnApproval() || !row.GetWaitingOnUserInput() {
		t.Error("the thread does not wait for input")
	}
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	answer, err := structpb.NewValue(map[string]any{"answers": map[string]any{"q": map[string]any{"answers": []any{"Red"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err := r.approvals.ResolveApproval(ctx, &heddlev1.ResolveApprovalRequest{ThreadId: th.GetId(), ApprovalId: a.GetId(), Decision: heddlev1.Decision_DECISION_ACCEPT, Answer: answer})
		if err == nil {
			break
		}
		if !errdefs.Is(err, errdefs.Busy) {
			t.Fatal(err)
		}
	}
	f = r.follow(th.GetId(), 1)
	f.turnEnd()
	if n := len(f.seen); strings.Count(visible(f.seen), "ask") != 1 || n == 0 {
		t.Errorf("asked more than once: %s", visible(f.seen))
	}
	if out := r.model.output("c1"); out != `{"answers":{"q":{"answers":["Red"]}}}` {
		t.Errorf("the model was told %q", out)
	}
}

func TestShellCommandSurvivesARestart(t *testing.T) {
	r, restart := durable(t)
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	if _, err := r.turns.RunShellCommand(ctx, &heddlev1.RunShellCommandRequest{ThreadId: th.GetId(), Command: "sleep"}); err != nil {
		t.Fatal(err)
	}
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f = r.follow(th.GetId(), 1)
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	r.exec.endAll(0)
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Fatalf("%v", end)
	}
	once(t, f)
	if n := r.exec.did(isProcess); n != 1 {
		t.Errorf("ran %d times", n)
	}
	if n := len(r.model.asked()); n != 0 {
		t.Errorf("the model was asked %d times", n)
	}
	r.model.script(speak("m", "ok"))
	r.startTurn(ctx, th.GetId(), "next")
	f.turnEnd()
	wantShown(t, r.last(), []string{"user_shell_command", "begun", "next"})
}

// Input during a shell command goes to the model when the command has ended.
func TestShellCommandTakesInput(t *testing.T) {
	r := newRig(t)
	r.model.script(speak("m", "ok"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	ran, err := r.turns.RunShellCommand(ctx, &heddlev1.RunShellCommandRequest{ThreadId: th.GetId(), Command: "sleep"})
	if err != nil {
		t.Fatal(err)
	}
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	if turn := r.startTurn(ctx, th.GetId(), "meanwhile"); turn.GetId() != ran.GetTurnId() {
		t.Errorf("turn %s, want that of the command", turn.GetId())
	}
	r.exec.endAll(3)
	f.turnEnd()
	once(t, f)
	wantShown(t, r.last(), []string{"Exit code: 3", "meanwhile"})
}

func TestRevertWhileATurnRuns(t *testing.T) {
	r := newRig(t)
	r.model.script(speak("m1", "one"), hang("m2", "par"), speak("m3", "three"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "q-one")
	f.turnEnd()
	second := r.startTurn(ctx, th.GetId(), "q-two")
	f.until(func(e *heddlev1.Event) bool { return e.GetItemDelta() != nil })
	if _, err := r.threads.RevertThread(ctx, &heddlev1.RevertThreadRequest{ThreadId: th.GetId(), BeforeTurnId: "none"}); !errdefs.Is(err, errdefs.TurnNotFound) {
		t.Errorf("unknown turn: %v", err)
	}
	resp, err := r.threads.RevertThread(ctx, &heddlev1.RevertThreadRequest{ThreadId: th.GetId(), BeforeTurnId: second.GetId()})
	if err != nil || resp.GetThread().GetPreview() != "q-one" {
		t.Fatal(resp, err)
	}
	cut := f.turnEnd()
	if cut.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED {
		t.Errorf("%v", cut)
	}
	r.startTurn(ctx, th.GetId(), "q-three")
	f.turnEnd()
	wantShown(t, r.last(), []string{"q-one", "q-three"}, "q-two", "turn_aborted")
}

// What is injected while the model works is shown with the next request, once.
func TestInjectWhileATurnRuns(t *testing.T) {
	r := newRig(t)
	open := make(chan struct{})
	r.model.script(gated(open, calls(shell("c1", "echo x"))), speak("m1", "one"), speak("m2", "two"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.until(func(e *heddlev1.Event) bool { return e.GetItemCompleted().GetItem().GetUserMessage() != nil })
	if _, err := r.threads.InjectItems(ctx, &heddlev1.InjectItemsRequest{ThreadId: th.GetId(), Entries: []*heddlev1.HistoryEntry{assistant("i", "INJECTED")}}); err != nil {
		t.Fatal(err)
	}
	close(open)
	f.turnEnd()
	for range 2 {
		if n := strings.Count(shown(r.last()), "INJECTED"); n != 1 {
			t.Errorf("shown %d times", n)
		}
		if len(r.model.asked()) == 2 {
			r.startTurn(ctx, th.GetId(), "more")
			f.turnEnd()
		}
	}
}

// An active goal goes on by itself until its budget is used.
func TestGoalStopsAtItsBudget(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "echo a")), speak("m1", "one"), calls(shell("c2", "echo b")), speak("m2", "two"), speak("m3", "never"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	budget := int64(40)
	if _, err := r.threads.SetGoal(ctx, &heddlev1.SetGoalRequest{ThreadId: th.GetId(), Objective: "win", TokenBudget: &budget}); err != nil {
		t.Fatal(err)
	}
	f.turnEnd()
	f.turnEnd()
	g := r.row(th.GetId()).GetGoal()
	if g.GetStatus() != "budgetLimited" || g.GetTokensUsed() != 40 {
		t.Errorf("goal %v", g)
	}
	if n := len(r.model.asked()); n != 4 || r.row(th.GetId()).GetActiveTurnId() != "" {
		t.Errorf("the model was asked %d times, and turn %q runs", n, r.row(th.GetId()).GetActiveTurnId())
	}
}

func TestPlanIsAnItem(t *testing.T) {
	r := newRig(t)
	r.model.script(speak("m", "before\n<propo", "sed_plan>\n- a\n</proposed_plan>\nafter"))
	s := workspaceWrite("never")
	mode, err := structpb.NewStruct(map[string]any{"mode": "plan", "settings": map[string]any{"model": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	s.CollaborationMode = mode
	ctx, th := r.thread(s)
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	end := f.turnEnd()
	once(t, f)
	if text := end.GetLastAgentMessage().GetAgentMessage().GetText(); text != "before\nafter" {
		t.Errorf("message %q", text)
	}
	items, err := r.threads.ListItems(ctx, &heddlev1.ListItemsRequest{ThreadId: th.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	plan := ""
	for _, it := range items.GetItems() {
		plan += it.GetPlan().GetText()
	}
	if plan != "- a\n" {
		t.Errorf("plan %q", plan)
	}
	wantShown(t, r.last(), []string{"Plan mode is on"})
}
