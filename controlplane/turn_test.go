package controlplane

import (
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func workspaceWrite(policy string) *heddlev1.ThreadSettings {
	return &heddlev1.ThreadSettings{
		ApprovalPolicy: policy, Model: "gpt-5.5",
		Sandbox: &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, Network: heddlev1.NetworkMode_NETWORK_MODE_OFF},
	}
}

func expect(t *testing.T, f *follower, want string) {
	t.Helper()
	if got := visible(f.seen); got != want {
		t.Fatalf("events\n got: %s\nwant: %s", got, want)
	}
}

func TestPlainTurn(t *testing.T) {
	r := newRig(t)
	r.model.script(speak("msg_1", "Hel", "lo"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "hi")
	if turn.GetStartedAtMs() != 0 || turn.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS {
		t.Fatalf("answer shows %v", turn)
	}
	end := f.turnEnd()
	expect(t, f, "started start:user end:user:completed start:agent delta end:agent:completed usage turn:completed")
	if end.GetId() != turn.GetId() || end.GetLastAgentMessage().GetAgentMessage().GetText() != "Hello" {
		t.Fatalf("end is %v", end)
	}
}

func TestCommandTurn(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "echo one")), speak("m", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	expect(t, f, "started start:user end:user:completed usage start:command output end:command:completed start:agent delta end:agent:completed usage turn:completed")
	if out := r.model.output("c1"); !strings.Contains(out, "one") || !strings.Contains(out, "Process exited with code 0") {
		t.Fatalf("the model was told %q", out)
	}
	for _, e := range f.seen {
		if i := e.GetItemCompleted().GetItem(); i.GetCommandExecution() != nil {
			if string(i.GetCommandExecution().GetAggregatedOutput()) != "one\n" || i.GetId() != "c1" {
				t.Fatalf("item is %v", i)
			}
		}
	}
	page, err := r.threads.ListItems(ctx, &heddlev1.ListItemsRequest{ThreadId: th.GetId()})
	if err != nil || len(page.GetItems()) != 3 {
		t.Fatalf("items %v, %v", page, err)
	}
}

// I3: what may run is durable before it runs.
func TestIntentBeforeStart(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "echo a"), shell("c2", "echo b")), speak("m", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	intents, outputs := 0, 0
	for _, e := range f.seen {
		intents += len(e.GetActionsIntended().GetActions())
		if e.GetOutputAdvanced() != nil {
			outputs++
			if intents != 2 {
				t.Fatal("output before all intents of the step")
			}
		}
	}
	if intents != 2 || outputs != 2 {
		t.Fatalf("%d intents, %d outputs", intents, outputs)
	}
	var order []string
	for _, e := range r.model.asked()[1].Input {
		if o := e.GetToolOutput(); o != nil {
			order = append(order, o.GetCallId())
		}
	}
	if strings.Join(order, " ") != "c1 c2" {
		t.Fatalf("results in order %v", order)
	}
}

// P10: one call id is one run.
func TestP10RepeatedCallRunsOnce(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "echo a"), shell("c1", "echo a"), shell("c1", "echo b")), speak("m", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	if n := r.exec.did(isProcess); n != 1 {
		t.Fatalf("ran %d times", n)
	}
}

func TestBadCallsAreToldToTheModel(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(
		&heddlev1.ToolCall{CallId: "c1", Name: "exec_command", Arguments: "{not json"},
		&heddlev1.ToolCall{CallId: "c2", Name: "no_such_tool", Arguments: "{}"},
		&heddlev1.ToolCall{CallId: "c3", Name: "write_stdin", Arguments: `{"session_id":12,"chars":"x"}`},
	), speak("m", "sorry"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	expect(t, f, "started start:user end:user:completed usage start:agent delta end:agent:completed usage turn:completed")
	for id, want := range map[string]string{"c1": "failed to parse function arguments", "c2": "unsupported call: no_such_tool", "c3": "Unknown process id 12"} {
		if out := r.model.output(id); !strings.Contains(out, want) {
			t.Errorf("%s: %q lacks %q", id, out, want)
		}
	}
}

func TestStreamCut(t *testing.T) {
	r := newRig(t, withConfig(t, "stream_max_retries = 1"))
	r.model.script(cut("m1", "par"), speak("m2", "whole"))
	ctx, th := r.thread(mockProvider())
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	expect(t, f, "started start:user end:user:completed start:agent delta end:agent:completed retry start:agent delta end:agent:completed usage turn:completed")

	r.model.script(cut("m3", "a"), cut("m4", "b"))
	r.startTurn(ctx, th.GetId(), "go")
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_FAILED || !strings.Contains(end.GetError().GetMessage(), "stream disconnected") {
		t.Fatalf("end is %v", end)
	}
	r.model.script(speak("m5", "fine"))
	r.startTurn(ctx, th.GetId(), "again")
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Fatalf("the thread is not usable after: %v", end)
	}
}

func TestSteerDropsTheRequest(t *testing.T) {
	r := newRig(t)
	r.model.script(hang("m1", "par"), speak("m2", "two"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "first")
	f.until(func(e *heddlev1.Event) bool { return e.GetItemDelta() != nil })
	resp, err := r.turns.SteerTurn(ctx, &heddlev1.SteerTurnRequest{ThreadId: th.GetId(), ExpectedTurnId: turn.GetId(), Input: say("more")})
	if err != nil || resp.GetTurnId() != turn.GetId() {
		t.Fatal(resp, err)
	}
	f.turnEnd()
	expect(t, f, "started start:user end:user:completed start:agent delta steer end:agent:completed start:user end:user:completed start:agent delta end:agent:completed usage turn:completed")
}

func TestSteerWhileACommandRuns(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "sleep", `,"yield_time_ms":300`)), speak("m2", "two"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "first")
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	again, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: th.GetId(), Input: say("more")})
	if err != nil || !again.GetSteered() || again.GetTurn().GetId() != turn.GetId() {
		t.Fatal(again, err)
	}
	f.turnEnd()
	expect(t, f, "started start:user end:user:completed usage start:command output steer start:user end:user:completed start:agent delta end:agent:completed usage turn:completed")
	if r.exec.alive() != 1 {
		t.Fatal("the command is no background terminal")
	}
	list, err := r.threads.ListBackgroundTerminals(ctx, &heddlev1.ListBackgroundTerminalsRequest{ThreadId: th.GetId()})
	if err != nil || len(list.GetTerminals()) != 1 || list.GetTerminals()[0].GetItemId() != "c1" {
		t.Fatal(list, err)
	}
	n, err := r.threads.TerminateBackgroundTerminal(ctx, &heddlev1.TerminateBackgroundTerminalRequest{ThreadId: th.GetId(), ProcessId: list.GetTerminals()[0].GetProcessId()})
	if err != nil || n.GetTerminated() != 1 {
		t.Fatal(n, err)
	}
	late := f.until(func(e *heddlev1.Event) bool { return e.GetItemCompleted() != nil }).GetItemCompleted().GetItem()
	if !late.GetCommandExecution().GetBackground() || late.GetTurnId() != turn.GetId() || late.GetStatus() != heddlev1.ItemStatus_ITEM_STATUS_FAILED {
		t.Fatalf("late end is %v", late)
	}
}

func TestSteerErrors(t *testing.T) {
	r := newRig(t)
	r.model.script(hang("m1", "x"))
	ctx, th := r.thread(workspaceWrite("never"))
	steer := func(turn string, in *heddlev1.UserMessage) error {
		_, err := r.turns.SteerTurn(ctx, &heddlev1.SteerTurnRequest{ThreadId: th.GetId(), ExpectedTurnId: turn, Input: in})
		return err
	}
	if err := steer("t", say("x")); !errdefs.Is(err, errdefs.NoActiveTurn) {
		t.Fatal(err)
	}
	turn := r.startTurn(ctx, th.GetId(), "go")
	err := steer("wrong", say("x"))
	if e := errdefs.From(err); e == nil || e.Reason != errdefs.TurnMismatch || e.Meta["expected"] != "wrong" || e.Meta["found"] != turn.GetId() {
		t.Fatal(err)
	}
	if err := steer(turn.GetId(), nil); !errdefs.Is(err, errdefs.InvalidArgument) {
		t.Fatal(err)
	}
	if _, err := r.turns.InterruptTurn(ctx, &heddlev1.InterruptTurnRequest{ThreadId: "01a00000-0000-7000-8000-000000000000"}); !errdefs.Is(err, errdefs.ThreadNotFound) {
		t.Fatal(err)
	}
}

func TestInterruptStream(t *testing.T) {
	r := newRig(t)
	r.model.script(hang("m1", "par"), speak("m2", "fine"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "go")
	f.until(func(e *heddlev1.Event) bool { return e.GetItemDelta() != nil })
	r.interrupt(ctx, th.GetId(), turn.GetId())
	end := f.turnEnd()
	expect(t, f, "started start:user end:user:completed start:agent delta end:agent:completed turn:interrupted")
	if end.GetInterruptCause() != "client" || end.GetError() != nil {
		t.Fatalf("end is %v", end)
	}
	r.startTurn(ctx, th.GetId(), "again")
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Fatal(end)
	}
}

// S5: nothing of the turn is left running when its end is seen.
func TestInterruptCommand(t *testing.T) {
	for _, cmd := range []string{"sleep", "stubborn"} {
		t.Run(cmd, func(t *testing.T) {
			r := newRig(t)
			r.model.script(calls(shell("c1", cmd)), speak("m", "fine"))
			ctx, th := r.thread(workspaceWrite("never"))
			f := r.follow(th.GetId(), 1)
			turn := r.startTurn(ctx, th.GetId(), "go")
			f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
			began := time.Now()
			r.interrupt(ctx, th.GetId(), turn.GetId())
			f.turnEnd()
			if took := time.Since(began); took > 1500*time.Millisecond {
				t.Fatalf("took %v", took)
			}
			if r.exec.alive() != 0 {
				t.Fatal("the command still runs")
			}
			expect(t, f, "started start:user end:user:completed usage start:command output end:command:failed turn:interrupted")
			r.startTurn(ctx, th.GetId(), "again")
			f.turnEnd()
			if out := r.model.output("c1"); !strings.Contains(out, "aborted by user after") || !strings.Contains(out, "begun") {
				t.Fatalf("the model was told %q", out)
			}
		})
	}
}

func TestWriteStdin(t *testing.T) {
	r := newRig(t)
	var session string
	r.model.script(calls(shell("c1", "cat", `,"tty":true,"yield_time_ms":250`)),
		func(ctx contextType, yield yieldType) error {
			out := r.model.output("c1")
			_, rest, _ := strings.Cut(out, "session ID ")
			session, _, _ = strings.Cut(rest, "\n")
			return calls(&heddlev1.ToolCall{CallId: "c2", Name: "write_stdin", Arguments: `{"session_id":` + session + `,"chars":"quit\n","yield_time_ms":1000}`})(ctx, yield)
		}, speak("m", "end"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	if out := r.model.output("c2"); !strings.Contains(out, "quit") || !strings.Contains(out, "exited with code 0") {
		t.Fatalf("the model was told %q", out)
	}
	seen := visible(f.seen)
	if !strings.Contains(seen, "stdin") || !strings.Contains(seen, "end:command:completed start:agent") {
		t.Fatal(seen)
	}
}

// P10: a model that goes on repeating one id is told so, and bounded.
func TestP10RepeatedCallInLaterSteps(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "echo a")), calls(shell("c1", "echo b")), speak("m", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED || r.exec.did(isProcess) != 1 {
		t.Fatal(end, r.exec.did(isProcess))
	}
	if out := r.model.output("c1-again-1"); !strings.Contains(out, "was not run again") {
		t.Fatalf("the model was told %q", out)
	}
	for range 200 {
		r.model.script(calls(shell("c2", "echo a")))
	}
	r.startTurn(ctx, th.GetId(), "go")
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_FAILED || r.exec.did(isProcess) != 2 {
		t.Fatal(end, r.exec.did(isProcess))
	}
}
