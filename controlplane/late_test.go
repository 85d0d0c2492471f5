package controlplane

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// losing makes the executor miss one action of a kind: the control plane dies
// between the commit of the intent and its delivery.
func (r *rig) losing(kind func(*executorv1.Action) bool) *atomic.Bool {
	lost := &atomic.Bool{}
	r.exec.mu.Lock()
	defer r.exec.mu.Unlock()
	r.exec.lose = func(a *executorv1.Action) bool { return kind(a) && lost.CompareAndSwap(false, true) }
	return lost
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// I3: what was never delivered is not of unknown outcome. Its executor is there
// and does not have it, so it runs, once.
func TestRestartBeforeDelivery(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(shell("c1", "echo ran")), speak("m", "ok"))
	ctx, th := r.thread(workspaceWrite("never"))
	lost := r.losing(isProcess)
	r.startTurn(ctx, th.GetId(), "go")
	eventually(t, "the command was not sent", lost.Load)
	restart()
	r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f := r.follow(th.GetId(), 1)
	f.turnEnd()
	once(t, f)
	if out := r.model.output("c1"); !strings.Contains(out, "ran") || r.exec.did(isProcess) != 1 {
		t.Fatalf("the model was told %q, ran %d times", out, r.exec.did(isProcess))
	}
}

// The client does not come back: the command that was never delivered is not run
// for nobody.
func TestRestartBeforeDeliveryWithoutTheClient(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(shell("c1", "echo ran")))
	ctx, th := r.thread(workspaceWrite("never"))
	lost := r.losing(isProcess)
	r.startTurn(ctx, th.GetId(), "go")
	eventually(t, "the command was not sent", lost.Load)
	restart()
	f := r.follow(th.GetId(), 1)
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED {
		t.Fatal(end)
	}
	once(t, f)
	if n := r.exec.did(isProcess); n != 0 {
		t.Fatalf("ran %d times", n)
	}
}

// I7: what was shown is what runs, also when the control plane and the client's
// environment are other ones by the time of the answer.
func TestRestartWhileAskingWithAnotherEnvironment(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(shell("c1", "echo ran")), speak("m", "ok"))
	ctx, th := r.thread(workspaceWrite("untrusted"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	a := f.approval()
	restart()
	ctx, _ = r.attachWith("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT, map[string]string{"PATH": "/elsewhere", "NEW": "1"})
	if resp := r.answer(ctx, a, heddlev1.Decision_DECISION_ACCEPT); !resp.GetAccepted() {
		t.Fatal(resp)
	}
	f = r.follow(th.GetId(), 1)
	f.turnEnd()
	once(t, f)
	if out := r.model.output("c1"); !strings.Contains(out, "ran") {
		t.Fatalf("the model was told %q", out)
	}
	r.exec.mu.Lock()
	defer r.exec.mu.Unlock()
	for _, act := range r.exec.actions {
		if s := act.GetStartProcess(); s != nil {
			if !slices.Contains(s.GetEnv(), "PATH=/bin") || slices.Contains(s.GetEnv(), "NEW=1") || string(act.GetActionHash()) != string(a.GetActionHash()) {
				t.Errorf("ran in %v", s.GetEnv())
			}
		}
	}
	if v, err := r.cp.store.Meta(t.Context(), "asked/env/"+th.GetId()+"/"+a.GetId()); v != nil || err != nil {
		t.Errorf("the environment is kept after the command: %q, %v", v, err)
	}
}

// Section 10: what was accepted for the session belongs to the thread.
func TestAcceptForSessionOutlivesARestart(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(shell("c1", "echo a")), speak("m1", "1"), calls(shell("c2", "echo a")), calls(shell("c3", "echo b")), speak("m2", "2"))
	ctx, th := r.thread(workspaceWrite("untrusted"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	r.answer(ctx, f.approval(), heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION)
	f.turnEnd()
	restart()
	ctx, _ = r.attach("s2", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	load, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: th.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	f = r.follow(th.GetId(), load.GetThread().GetLastSeq()+1)
	r.startTurn(ctx, th.GetId(), "go")
	a := f.approval()
	if a.GetItemId() != "c3" {
		t.Fatalf("asked for %s", a.GetItemId())
	}
	r.answer(ctx, a, heddlev1.Decision_DECISION_DECLINE)
	f.turnEnd()
	if _, err := r.threads.DeleteThread(ctx, &heddlev1.DeleteThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Fatal(err)
	}
	if v, err := r.cp.store.Meta(t.Context(), "accepted/"+th.GetId()); v != nil || err != nil {
		t.Errorf("kept after the thread was deleted: %d bytes, %v", len(v), err)
	}
}

// The same for a patch: planned, its write intended, the write never delivered.
func TestRestartBeforeThePatchIsWritten(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(patchOf("c1", "a.txt")), speak("m", "ok"))
	ctx, th := r.thread(workspaceWrite("never"))
	isCommit := func(a *executorv1.Action) bool { return a.GetCommitPatch() != nil }
	lost := r.losing(isCommit)
	r.startTurn(ctx, th.GetId(), "go")
	eventually(t, "the patch was not sent", lost.Load)
	restart()
	r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f := r.follow(th.GetId(), 1)
	f.turnEnd()
	once(t, f)
	if out := r.model.output("c1"); !strings.Contains(out, "Success") || r.exec.did(isCommit) != 1 {
		t.Fatalf("the model was told %q, written %d times", out, r.exec.did(isCommit))
	}
}
