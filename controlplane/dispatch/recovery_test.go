package dispatch_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// reannounce is a registration that brings a lease and running actions back.
func reannounce(id string, l *executorv1.Lease, running ...*executorv1.Action) *executorv1.Register {
	reg := executor(id)
	if l != nil {
		reg.Leases = []*executorv1.Lease{l}
	}
	for _, a := range running {
		reg.Running = append(reg.Running, &executorv1.RunningAction{ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(), Pid: 5})
	}
	return reg
}

// Invariant I4 and the design's table: the loss of an executor ends the item
// with a typed error within fence_after, and only then is the scope granted again.
func TestI4ExecutorLossTiming(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "sleep", "100")})
		l := x.grant()
		x.started(x.action(), 4)
		<-h.Started()
		y := r.connect(executor("y"))
		time.Sleep(12 * time.Second) // renewals at 5 and 10 s
		x.drop()
		lost := time.Now()
		next := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("2", "true")})
		y.nothing()
		if w := r.d.Waiting(); len(w) != 1 || !strings.Contains(w[0], "executor x, which holds thread/a, is disconnected") {
			t.Errorf("waiting: %q, want the reason", w)
		}
		err := wantReason(t, h, errdefs.ExecutorLost)
		if d := time.Since(lost); d != 28*time.Second {
			t.Errorf("lost after %v, want 30 s after the last renewal, 28 s after the loss", d)
		}
		if want := `executor x was lost while running "sleep 100"; its commands ended within 30s`; err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		l2 := y.grant()
		if l2.GetEpoch() <= l.GetEpoch() {
			t.Errorf("epoch %d after %d, want a higher one", l2.GetEpoch(), l.GetEpoch())
		}
		a2 := y.action()

		// The old holder comes back: its lease is not assigned, its result refused.
		back := r.connect(reannounce("x", l))
		if len(back.held) != 0 {
			t.Errorf("superseded lease assigned again: %v", back.held)
		}
		old := process("2")
		old.LeaseId, old.Epoch = l.GetLeaseId(), l.GetEpoch()
		back.exit(old, 99)
		if m := back.next(); m.GetResultAck().GetActionId() != "2" {
			t.Fatalf("got %v, want the superseded result acknowledged away", m)
		}
		pending(t, next)
		y.exit(a2, 0)
		wantExit(t, next, 0)
		back.drop()
		y.drop()
	})
}

func TestExecutorDiedFreesAtOnce(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "sleep")})
		x.grant()
		x.started(x.action(), 4)
		<-h.Started()
		y := r.connect(executor("y"))
		now := time.Now()
		r.d.ExecutorDied("x")
		err := wantReason(t, h, errdefs.ExecutorLost)
		if !strings.Contains(err.Error(), "its process has died") {
			t.Errorf("error %q does not say how", err)
		}
		h2 := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("2", "true")})
		y.grant()
		y.exit(y.action(), 0)
		wantExit(t, h2, 0)
		if d := time.Since(now); d != 0 {
			t.Errorf("took %v, want no wait", d)
		}
		<-x.ended
		x.drop()
		y.drop()
	})
}

func TestProbeTellsDeathOfALocalPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var died time.Time
		r := newRigPeer(t, dispatch.Config{}, dispatch.Peer{Probe: func(int64) func() bool {
			return func() bool { return !died.IsZero() && time.Now().After(died) }
		}})
		defer r.close()
		reg := executor("x")
		reg.Pid = 77
		x := r.connect(reg)
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "sleep")})
		x.grant()
		x.started(x.action(), 4)
		<-h.Started()
		cut := time.Now()
		died = cut.Add(500 * time.Millisecond)
		x.drop()
		wantReason(t, h, errdefs.ExecutorLost)
		if d := time.Since(cut); d > time.Second {
			t.Errorf("death known after %v, want soon after it", d)
		}
	})
}

// A short cut: the lease stays, an action whose start is not known is sent again,
// a started one goes on, output that comes twice is delivered once.
func TestReconnect(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		var got strings.Builder
		out := func(c *executorv1.OutputChunk) error { got.Write(c.GetData()); return nil }
		h1 := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "a"), Output: out})
		l := x.grant()
		a1 := x.action()
		x.started(a1, 5)
		x.output(a1, 1, 0, "hello ")
		<-h1.Started()
		h2 := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("2", "b")})
		var a2 *executorv1.Action
		for a2 == nil {
			a2 = x.next().GetAction()
		}
		x.drop()
		time.Sleep(20 * time.Second)
		x = r.connect(reannounce("x", l, a1))
		if len(x.held) != 1 || x.held[0].GetEpoch() != l.GetEpoch() {
			t.Fatalf("assignments %v, want the lease kept under its epoch", x.held)
		}
		var resent *executorv1.Action
		var credit int64
		for range 2 {
			m := x.next()
			if m.GetAction() != nil {
				resent = m.GetAction()
			}
			if m.GetOutputAck() != nil {
				credit = m.GetOutputAck().GetOffset()
			}
		}
		if resent.GetActionId() != "2" || credit != 6 {
			t.Errorf("after the reconnect: action %v, credit %d, want action 2 again and 6 bytes", resent, credit)
		}
		x.output(a1, 1, 0, "hello ")
		x.output(a1, 1, 4, "o world")
		x.exit(a1, 0)
		x.exit(a2, 0)
		wantExit(t, h1, 0)
		wantExit(t, h2, 0)
		if got.String() != "hello world" {
			t.Errorf("output %q, want each byte once", got.String())
		}
		x.drop()
	})
}

// Invariant I4: a result under the still-current epoch is accepted, however late.
func TestI4LateResultAccepted(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "a"), FenceAfter: 15 * time.Minute})
		l := x.grant()
		a := x.action()
		x.started(a, 5)
		<-h.Started()
		x.drop()
		time.Sleep(5 * time.Minute)
		x = r.connect(reannounce("x", l))
		time.Sleep(3 * time.Second)
		x.exit(a, 7)
		wantExit(t, h, 7)
		h.Ack()
		if m := x.next(); m.GetResultAck() == nil {
			t.Fatalf("got %v, want the acknowledgement", m)
		}
		x.drop()
	})
}

// An executor that came back without a started action and shows no result has
// lost it.
func TestLostByItsExecutor(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "a")})
		l := x.grant()
		x.started(x.action(), 5)
		<-h.Started()
		x.drop()
		x = r.connect(reannounce("x", nil))
		if len(x.held) != 1 || x.held[0].GetLeaseId() != l.GetLeaseId() {
			t.Errorf("assignments %v, want the lease to stay with its executor", x.held)
		}
		now := time.Now()
		wantReason(t, h, errdefs.ExecutorLost)
		if d := time.Since(now); d != 5*time.Second {
			t.Errorf("known after %v, want the outbox wait", d)
		}
		x.drop()
	})
}

// A result that was shown and not acknowledged is shown again after a reconnect
// and counts once.
func TestResultShownTwice(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "a")})
		l := x.grant()
		a := x.action()
		x.exit(a, 1)
		wantExit(t, h, 1)
		x.drop()
		x = r.connect(reannounce("x", l))
		x.exit(a, 1)
		x.nothing() // not durable here yet
		h.Ack()
		if m := x.next(); m.GetResultAck().GetActionId() != "1" {
			t.Fatalf("got %v, want the acknowledgement", m)
		}
		x.drop()
	})
}

// D3: a frozen executor. Its session ends when it does not answer, its action
// within the fence, and what it says afterwards is refused.
func TestD3FrozenExecutor(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "loop")})
		l := x.grant()
		a := x.action()
		x.started(a, 4)
		<-h.Started()
		y := r.connect(executor("y"))
		time.Sleep(12 * time.Second)
		x.mute.Store(true)
		frozen := time.Now()
		wantReason(t, h, errdefs.ExecutorLost)
		if d := time.Since(frozen); d > fence+5*time.Second || d < fence {
			t.Errorf("lost after %v, want the fence after the one round that was not answered", d)
		}
		next := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("2", "true")})
		l2 := y.grant()
		a2 := y.action()
		<-x.ended
		x.drop()
		x = r.connect(reannounce("x", l, a))
		if len(x.held) != 0 || l2.GetEpoch() <= l.GetEpoch() {
			t.Errorf("after the thaw: assignments %v, new epoch %d after %d", x.held, l2.GetEpoch(), l.GetEpoch())
		}
		x.exit(a, 0)
		x.output(a, 1, 0, "late")
		pending(t, next)
		y.exit(a2, 0)
		wantExit(t, next, 0)
		x.drop()
		y.drop()
	})
}

// A scope that is being released stays in the way through a reconnect until its
// executor has confirmed the end.
func TestReleaseSurvivesAReconnect(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		y := r.connect(executor("y"))
		r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "loop")})
		l := x.grant()
		a := x.action()
		done := make(chan error, 1)
		go func() { done <- r.d.ReleaseScope(t.Context(), "thread/a") }()
		if m := x.next(); m.GetRevoke() == nil {
			t.Fatalf("got %v, want a revocation", m)
		}
		x.drop()
		r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("2", "true")})
		x = r.connect(reannounce("x", l, a))
		if len(x.held) != 0 {
			t.Errorf("assignments %v, want the released lease left out", x.held)
		}
		y.nothing()
		x.release(l)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(x.in)+len(y.in) < 2 {
			t.Error("the next action found no executor after the release")
		}
		x.drop()
		y.drop()
	})
}
