package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (r *rig) turn(ctx contextType, f *follower, thread, text string) *heddlev1.Turn {
	r.t.Helper()
	r.startTurn(ctx, thread, text)
	return f.turnEnd()
}

func TestArchiveEndsTheThreadsWork(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "sleep", `,"yield_time_ms":250`)), speak("m", "left it running"), calls(shell("c2", "sleep")))
	ctx, th := r.thread(workspaceWrite("never"))
	id := th.GetId()
	f := r.follow(id, 1)
	r.turn(ctx, f, id, "go")
	r.startTurn(ctx, id, "again")
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	if n := r.exec.alive(); n != 2 {
		t.Fatalf("%d commands run", n)
	}
	if _, err := r.threads.ArchiveThread(ctx, &heddlev1.ArchiveThreadRequest{ThreadId: id}); err != nil {
		t.Fatal(err)
	}
	if n := r.exec.alive(); n != 0 {
		t.Fatalf("%d commands still run", n)
	}
	if end := f.turnEnd(); end.GetInterruptCause() != "thread_closed" {
		t.Fatal(end)
	}
	if _, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: id, Input: say("x")}); !errdefs.Is(err, errdefs.ThreadArchived) {
		t.Fatal(err)
	}
	if _, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: id}); !errdefs.Is(err, errdefs.ThreadArchived) {
		t.Fatal(err)
	}
	if _, err := r.threads.UnarchiveThread(ctx, &heddlev1.UnarchiveThreadRequest{ThreadId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.threads.UnarchiveThread(ctx, &heddlev1.UnarchiveThreadRequest{ThreadId: id}); !errdefs.Is(err, errdefs.ThreadNotArchived) {
		t.Fatal(err)
	}
	r.model.script(speak("m2", "back"))
	if end := r.turn(ctx, f, id, "and on"); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Fatal(end)
	}
}

func TestP13ForkNameDelete(t *testing.T) {
	r := newRig(t)
	r.model.script(speak("m1", "one"), speak("m2", "two"))
	ctx, th := r.thread(workspaceWrite("never"))
	id := th.GetId()
	f := r.follow(id, 1)
	first := r.turn(ctx, f, id, "q1")
	r.turn(ctx, f, id, "q2")
	fork, err := r.threads.ForkThread(ctx, &heddlev1.ForkThreadRequest{ThreadId: id, LastTurnId: first.GetId()})
	if err != nil || fork.GetThread().GetForkedFromId() != id {
		t.Fatal(fork, err)
	}
	fid := fork.GetThread().GetId()
	// What it has used is what was used up to its cut, also for a fork of a fork.
	whole, err := r.threads.ForkThread(ctx, &heddlev1.ForkThreadRequest{ThreadId: id})
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.threads.ForkThread(ctx, &heddlev1.ForkThreadRequest{ThreadId: whole.GetThread().GetId(), LastTurnId: first.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	all := whole.GetThread().GetTokenUsage().GetTotal().GetTotalTokens()
	for _, f := range []*heddlev1.Thread{fork.GetThread(), again.GetThread()} {
		if used := f.GetTokenUsage().GetTotal().GetTotalTokens(); used == 0 || 2*used != all {
			t.Errorf("the fork has used %d tokens of the %d of its source", used, all)
		}
	}
	for _, f := range []string{again.GetThread().GetId(), whole.GetThread().GetId()} {
		if _, err := r.threads.DeleteThread(ctx, &heddlev1.DeleteThreadRequest{ThreadId: f}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := r.threads.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: fid})
	if err != nil || len(page.GetTurns()) != 1 || page.GetTurns()[0].GetTurn().GetId() != first.GetId() {
		t.Fatal(page, err)
	}
	// P13: the fork knows nothing of what came after its cut.
	r.model.script(speak("m3", "three"))
	r.turn(ctx, r.follow(fid, 0), fid, "q3")
	reqs := r.model.asked()
	var told []string
	for _, e := range reqs[len(reqs)-1].Input {
		for _, p := range e.GetMessage().GetParts() {
			told = append(told, p.GetText())
		}
	}
	if all := strings.Join(told, "|"); !strings.Contains(all, "q1") || strings.Contains(all, "q2") || !strings.Contains(all, "q3") {
		t.Fatal(all)
	}
	if _, err := r.threads.DeleteThread(ctx, &heddlev1.DeleteThreadRequest{ThreadId: id}); !errdefs.Is(err, errdefs.ThreadHasForks) {
		t.Fatal(err)
	}
	if _, err := r.threads.SetThreadName(ctx, &heddlev1.SetThreadNameRequest{ThreadId: fid, Name: "  "}); !errdefs.Is(err, errdefs.InvalidArgument) {
		t.Fatal(err)
	}
	if named, err := r.threads.SetThreadName(ctx, &heddlev1.SetThreadNameRequest{ThreadId: fid, Name: " x "}); err != nil || named.GetThread().GetName() != "x" {
		t.Fatal(named, err)
	}
	if _, err := r.threads.DeleteThread(ctx, &heddlev1.DeleteThreadRequest{ThreadId: fid}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.threads.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: fid}); !errdefs.Is(err, errdefs.ThreadNotFound) {
		t.Fatal(err)
	}
	if _, err := r.threads.DeleteThread(ctx, &heddlev1.DeleteThreadRequest{ThreadId: id}); err != nil {
		t.Fatal(err)
	}
}

func TestForkOfARunningTurn(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "sleep")), speak("m", "fork answers"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "q1")
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	fork, err := r.threads.ForkThread(ctx, &heddlev1.ForkThreadRequest{ThreadId: th.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	fid := fork.GetThread().GetId()
	r.turn(ctx, r.follow(fid, 0), fid, "q2")
	if out := r.model.output("c1"); !strings.Contains(out, "aborted") {
		t.Fatalf("the fork's model was told %q", out)
	}
	if r.exec.alive() != 1 {
		t.Fatal("the source does not run on")
	}
}

func TestUnloadEndsBackgroundTerminals(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "sleep", `,"yield_time_ms":250`)), speak("m", "left it running"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.turn(ctx, f, th.GetId(), "go")
	if _, err := r.threads.UnloadThread(ctx, &heddlev1.UnloadThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Fatal(err)
	}
	if r.exec.alive() != 0 {
		t.Fatal("the command still runs")
	}
	f.until(func(e *heddlev1.Event) bool { return e.GetItemCompleted() != nil })
	r.model.script(speak("m2", "back"))
	r.turn(ctx, f, th.GetId(), "again")
}

// P17: an ephemeral thread leaves neither rows nor files.
func TestEphemeral(t *testing.T) {
	r, _ := durable(t)
	r.model.script(calls(shell("c1", "echo x")), speak("m", "ok"))
	before := files(t, r.home)
	ctx, drop := r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	th, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: workspaceWrite("never"), Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	id := th.GetThread().GetId()
	f := r.follow(id, 1)
	r.turn(ctx, f, id, "go")
	list, err := r.threads.ListThreads(ctx, &heddlev1.ListThreadsRequest{})
	if err != nil || len(list.GetThreads()) != 0 {
		t.Fatal(list, err)
	}
	drop()
	deadline := time.Now().Add(5 * time.Second)
	for {
		if _, err := r.threads.GetThread(t.Context(), &heddlev1.GetThreadRequest{ThreadId: id}); errdefs.Is(err, errdefs.ThreadNotFound) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the thread outlives its session")
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.stop()
	for name, data := range files(t, r.home) {
		if before[name] != data {
			t.Errorf("%s changed", name)
		}
	}
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAutoCompaction(t *testing.T) {
	r := newRig(t)
	r.model.script(speak("m1", "one"), speak("sum", "SUMMARY"), speak("m2", "two"))
	ctx, th := r.thread(&heddlev1.ThreadSettings{ApprovalPolicy: "never", Model: "gpt-5.5", Config: limits(t, 5)})
	f := r.follow(th.GetId(), 1)
	r.turn(ctx, f, th.GetId(), "q1")
	f.seen = nil
	r.turn(ctx, f, th.GetId(), "q2")
	expect(t, f, "started start:item end:item:completed usage start:user end:user:completed start:agent delta end:agent:completed usage turn:completed")
	reqs := r.model.asked()
	all := ""
	for _, e := range reqs[2].Input {
		for _, p := range e.GetMessage().GetParts() {
			all += p.GetText() + "|"
		}
	}
	if !strings.Contains(all, "SUMMARY") || !strings.Contains(all, "q1") || !strings.Contains(all, "q2") || strings.Contains(all, "|one|") {
		t.Fatal(all)
	}
	if len(reqs[1].Tools) != 0 {
		t.Fatal("tools are offered for the summary")
	}
}

func TestTokenUsageAddsUp(t *testing.T) {
	r := newRig(t)
	r.model.script(speak("m1", "a"), speak("m2", "b"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.turn(ctx, f, th.GetId(), "one")
	r.turn(ctx, f, th.GetId(), "two")
	row, err := r.threads.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: th.GetId()})
	u := row.GetThread().GetTokenUsage()
	if err != nil || u.GetTotal().GetTotalTokens() != 20 || u.GetLast().GetTotalTokens() != 10 || u.GetModelContextWindow() == 0 {
		t.Fatal(u, err)
	}
}

func TestModelFailureIsTyped(t *testing.T) {
	r := newRig(t)
	status := 503
	r.model.script(func(contextType, yieldType) error {
		return &model.Error{Kind: model.KindConnectionFailed, HTTPStatus: status, Message: "unexpected status 503"}
	})
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	end := r.turn(ctx, f, th.GetId(), "go")
	expect(t, f, "started start:user end:user:completed error turn:failed")
	if e := end.GetError(); e.GetKind() != model.KindConnectionFailed || e.GetHttpStatus() != 503 {
		t.Fatal(e)
	}
	row, err := r.threads.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: th.GetId()})
	if err != nil || row.GetThread().GetState() != heddlev1.ThreadState_THREAD_STATE_SYSTEM_ERROR {
		t.Fatal(row, err)
	}
}

func TestTurnsAreBounded(t *testing.T) {
	for _, file := range []string{"max_turns = 1", "max_turns_per_principal = 1"} {
		t.Run(file, func(t *testing.T) { turnsAreBounded(t, file) })
	}
}

func turnsAreBounded(t *testing.T, file string) {
	t.Helper()
	r := newRig(t, func(c *Config) {
		if err := os.WriteFile(filepath.Join(c.Home.Dir, "config.toml"), []byte("[control_plane]\n"+file+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	r.model.script(hang("m", "x"), speak("m2", "y"))
	ctx, th := r.thread(workspaceWrite("never"))
	r.startTurn(ctx, th.GetId(), "go")
	other, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: workspaceWrite("never")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: other.GetThread().GetId(), Input: say("x")}); !errdefs.Is(err, errdefs.Overloaded) {
		t.Fatal(err)
	}
	// The end of a turn makes room.
	f := r.follow(th.GetId(), 1)
	f.until(func(e *heddlev1.Event) bool { return e.GetTurnStarted() != nil })
	row, err := r.threads.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: th.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	r.interrupt(ctx, th.GetId(), row.GetThread().GetActiveTurnId())
	f.turnEnd()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: other.GetThread().GetId(), Input: say("x")})
		if err == nil {
			break
		}
		if !errdefs.Is(err, errdefs.Overloaded) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestThreadsAreBounded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Limits.Threads = 1 })
	ctx, th := r.thread(workspaceWrite("never"))
	if _, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: workspaceWrite("never")}); !errdefs.Is(err, errdefs.Overloaded) {
		t.Errorf("a second thread: %v", err)
	}
	if _, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Errorf("the open one: %v", err)
	}
	if _, err := r.threads.UnloadThread(ctx, &heddlev1.UnloadThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: workspaceWrite("never")})
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestUnknownSessionIsRefused(t *testing.T) {
	r := newRig(t)
	ctx, _ := r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	if _, err := r.sessions.Detach(ctx, &heddlev1.DetachRequest{SessionId: "s1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{}); !errdefs.Is(err, errdefs.SessionUnknown) {
		t.Fatal(err)
	}
}
