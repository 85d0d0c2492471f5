package controlplane

import (
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/config"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// durable makes a rig that can be restarted on its home.
func durable(t *testing.T) (*rig, func()) {
	t.Helper()
	var cfg Config
	r := newRig(t, func(c *Config) {
		c.Store, c.Grace, c.FenceAfter = "bolt", 300*time.Millisecond, 3*time.Second
		c.Home = config.Home{Dir: t.TempDir()}
		cfg = *c
	})
	r.home = cfg.Home.Dir
	return r, func() {
		t.Helper()
		r.stop()
		r.open(cfg)
	}
}

func once(t *testing.T, f *follower) {
	t.Helper()
	seen := visible(f.seen)
	if strings.Count(seen, "turn:") != 1 || strings.Count(seen, "started") != 1 {
		t.Fatalf("not one end of the turn: %s", seen)
	}
	if a, b := strings.Count(seen, "start:"), strings.Count(seen, "end:"); a != b {
		t.Fatalf("%d items started, %d completed: %s", a, b, seen)
	}
}

func TestRestartInMidCommand(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(shell("c1", "sleep")), speak("m", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f = r.follow(th.GetId(), 1)
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	r.exec.endAll(0)
	f.turnEnd()
	once(t, f)
	if n := r.exec.did(isProcess); n != 1 {
		t.Fatalf("ran %d times", n)
	}
	if out := r.model.output("c1"); !strings.Contains(out, "begun") || !strings.Contains(out, "exited with code 0") {
		t.Fatalf("the model was told %q", out)
	}
	r.model.script(speak("m2", "more"))
	r.startTurn(ctx, th.GetId(), "again")
	f.turnEnd()
}

func TestRestartInMidStream(t *testing.T) {
	r, restart := durable(t)
	r.model.script(hang("m1", "par"), speak("m2", "whole"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "go")
	f.until(func(e *heddlev1.Event) bool { return e.GetItemDelta() != nil })
	if _, err := r.turns.SteerTurn(ctx, &heddlev1.SteerTurnRequest{ThreadId: th.GetId(), ExpectedTurnId: turn.GetId(), Input: say("more")}); err != nil {
		t.Fatal(err)
	}
	restart()
	r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f = r.follow(th.GetId(), 1)
	f.turnEnd()
	once(t, f)
	if seen := visible(f.seen); strings.Count(seen, "start:user") != 2 {
		t.Fatalf("the steer is no item: %s", seen)
	}
}

func TestRestartWhileAsking(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(shell("c1", "echo ran")), speak("m", "ok"))
	ctx, th := r.thread(workspaceWrite("untrusted"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	a := f.approval()
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	load, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: th.GetId()})
	if err != nil || len(load.GetPendingApprovals()) != 1 || load.GetPendingApprovals()[0].GetRequestId() != a.GetRequestId() || load.GetActiveTurn() == nil {
		t.Fatal(load, err)
	}
	if resp := r.answer(ctx, a, heddlev1.Decision_DECISION_ACCEPT); !resp.GetAccepted() {
		t.Fatal(resp)
	}
	f = r.follow(th.GetId(), 1)
	f.turnEnd()
	once(t, f)
	expect(t, f, "started start:user end:user:completed usage start:command ask answer output end:command:completed start:agent delta end:agent:completed usage turn:completed")
}

// The client of the turn does not come back: the turn ends once, interrupted,
// with nothing left open or running.
func TestRestartWithoutTheClient(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		reply  reply
		ready  func(*heddlev1.Event) bool
	}{
		"command": {"never", calls(shell("c1", "sleep")), func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil }},
		"stream":  {"never", hang("m1", "par"), func(e *heddlev1.Event) bool { return e.GetItemDelta() != nil }},
		"asking":  {"untrusted", calls(shell("c1", "echo x")), func(e *heddlev1.Event) bool { return e.GetApprovalRequested() != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			r, restart := durable(t)
			r.model.script(c.reply, speak("m9", "fine"))
			ctx, th := r.thread(workspaceWrite(c.policy))
			f := r.follow(th.GetId(), 1)
			r.startTurn(ctx, th.GetId(), "go")
			f.until(c.ready)
			restart()
			ctx, _ = r.attach("s2", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
			load, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: th.GetId()})
			if err != nil || load.GetActiveTurn() != nil || load.GetThread().GetState() != heddlev1.ThreadState_THREAD_STATE_IDLE || len(load.GetPendingApprovals()) != 0 {
				t.Fatal(load, err)
			}
			f = r.follow(th.GetId(), 1)
			if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED || end.GetInterruptCause() != "session_lost" || end.GetCompletedAtMs() == 0 {
				t.Fatal(end)
			}
			once(t, f)
			if r.exec.alive() != 0 {
				t.Fatal("a command still runs")
			}
			r.startTurn(ctx, th.GetId(), "again")
			if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
				t.Fatal(end)
			}
		})
	}
}

// I3: a command whose executor lost it is not run again.
func TestRestartUnknownOutcome(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(shell("c1", "sleep")), speak("m", "ok"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	r.exec.forget()
	restart()
	r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f = r.follow(th.GetId(), 1)
	f.turnEnd()
	once(t, f)
	if out := r.model.output("c1"); !strings.Contains(out, "outcome") || r.exec.did(isProcess) != 1 {
		t.Fatalf("the model was told %q, ran %d times", out, r.exec.did(isProcess))
	}
}

func TestSessionLossInterrupts(t *testing.T) {
	for _, c := range []struct {
		name   string
		gone   heddlev1.OnDisconnect
		detach bool
		want   heddlev1.TurnStatus
	}{
		{"lost", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT, false, heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED},
		{"detached", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT, true, heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED},
		{"continue", heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE, true, heddlev1.TurnStatus_TURN_STATUS_COMPLETED},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.Grace = 200 * time.Millisecond })
			r.model.script(calls(shell("c1", "sleep")), speak("m", "ok"))
			ctx, drop := r.attach("s1", c.gone)
			resp, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: workspaceWrite("never")})
			if err != nil {
				t.Fatal(err)
			}
			f := r.follow(resp.GetThread().GetId(), 1)
			r.startTurn(ctx, resp.GetThread().GetId(), "go")
			f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
			if c.detach {
				if _, err := r.sessions.Detach(ctx, &heddlev1.DetachRequest{SessionId: "s1"}); err != nil {
					t.Fatal(err)
				}
			} else {
				drop()
			}
			if c.want == heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
				time.AfterFunc(400*time.Millisecond, func() { r.exec.endAll(0) })
			}
			if end := f.turnEnd(); end.GetStatus() != c.want {
				t.Fatal(end)
			}
			once(t, f)
		})
	}
}

func TestSessionComesBackWithinItsGrace(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Grace = 2 * time.Second })
	r.model.script(calls(shell("c1", "sleep")), speak("m", "ok"))
	ctx, drop := r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	resp, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: workspaceWrite("never")})
	if err != nil {
		t.Fatal(err)
	}
	f := r.follow(resp.GetThread().GetId(), 1)
	r.startTurn(ctx, resp.GetThread().GetId(), "go")
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	drop()
	time.Sleep(50 * time.Millisecond)
	r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	time.AfterFunc(2500*time.Millisecond, func() { r.exec.endAll(0) })
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Fatal(end)
	}
}

// The model of a thread that is resumed under other settings is told of them.
func TestResumedModelIsToldOfNewSettings(t *testing.T) {
	r, restart := durable(t)
	r.model.script(speak("m1", "one"), speak("m2", "two"))
	ctx, th := r.thread(workspaceWrite("never"))
	r.turn(ctx, r.follow(th.GetId(), 1), th.GetId(), "q1")
	restart()
	ctx, _ = r.attach("s2", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	full := workspaceWrite("on-request")
	full.Sandbox.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
	if _, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: th.GetId(), Settings: full}); err != nil {
		t.Fatal(err)
	}
	f := r.follow(th.GetId(), 1)
	f.turnEnd()
	r.turn(ctx, f, th.GetId(), "q2")
	told := 0
	for _, e := range r.model.asked()[1].Input {
		if m := e.GetMessage(); m.GetRole() == "developer" {
			for _, p := range m.GetParts() {
				if strings.Contains(p.GetText(), "danger-full-access") || strings.Contains(strings.ToLower(p.GetText()), "full access") {
					told++
				}
			}
		}
	}
	if told == 0 {
		t.Fatal("the model does not know that its sandbox changed")
	}
}
