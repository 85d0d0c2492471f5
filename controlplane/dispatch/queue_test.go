package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// D4: labels that nobody has.
func TestD4NoExecutorSaysWhy(t *testing.T) {
	cases := map[string]struct {
		connect bool
		labels  map[string]string
		wait    time.Duration
		want    string
	}{
		"nobody there": {false, nil, 0, "no executor is connected"},
		"labels":       {true, map[string]string{"arch": "arm64", "gpu": "yes"}, 0, "no connected executor has the labels asked for: x lacks gpu=yes"},
		"own wait":     {false, nil, time.Minute, "no executor is connected"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, dispatch.Config{}, func(r *rig) {
				t := r.t
				if c.connect {
					reg := executor("x")
					reg.Labels = map[string]string{"arch": "arm64"}
					defer r.connect(reg).drop()
				}
				now := time.Now()
				h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Labels: c.labels, Wait: c.wait, Action: process("1", "a")})
				if w := r.d.Waiting(); len(w) != 1 || !strings.Contains(w[0], c.want) {
					t.Errorf("waiting %q, want %q", w, c.want)
				}
				err := wantReason(t, h, errdefs.NoExecutor)
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %q, want %q in it", err, c.want)
				}
				want := c.wait
				if want == 0 {
					want = 10 * time.Second
				}
				if d := time.Since(now); d != want {
					t.Errorf("failed after %v, want %v", d, want)
				}
				if len(r.d.Waiting()) != 0 {
					t.Errorf("still waiting: %q", r.d.Waiting())
				}
			})
		})
	}
}

func TestWaitWithoutLimit(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		h := r.start(t.Context(), dispatch.Spec{Scope: "task/a", Wait: -1, Action: process("1", "a")})
		time.Sleep(24 * time.Hour)
		pending(t, h)
		x := r.connect(executor("x"))
		x.grant()
		x.exit(x.action(), 0)
		wantExit(t, h, 0)
		x.drop()
	})
}

func TestCapacityAndPriority(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		reg := executor("x")
		reg.Capacity = 1
		x := r.connect(reg)
		first := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "a")})
		x.grant()
		running := x.action()
		var hs []*dispatch.Handle
		for i, p := range []int{0, 5, 0, 5} {
			hs = append(hs, r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Priority: p, Action: process(fmt.Sprintf("q%d", i), "a")}))
		}
		time.Sleep(time.Hour) // a full executor is no reason to fail
		if w := r.d.Waiting(); len(w) != 4 || !strings.Contains(w[0], "at its capacity of 1 actions") {
			t.Errorf("waiting %q, want four with the capacity as reason", w)
		}
		x.exit(running, 0)
		wantExit(t, first, 0)
		for _, want := range []string{"q1", "q3", "q0", "q2"} {
			a := x.action()
			if a.GetActionId() != want {
				t.Fatalf("got %s, want %s", a.GetActionId(), want)
			}
			x.nothing()
			x.exit(a, 0)
		}
		for _, h := range hs {
			wantExit(t, h, 0)
		}
		x.drop()
	})
}

func TestQueueIsBounded(t *testing.T) {
	bubble(t, dispatch.Config{QueueLimit: 2}, func(r *rig) {
		t := r.t
		for i := range 2 {
			r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process(fmt.Sprint(i), "a")})
		}
		if _, err := r.d.Start(t.Context(), dispatch.Spec{Scope: "thread/b", Action: process("2", "a")}); !errdefs.Is(err, errdefs.Overloaded) {
			t.Errorf("third: %v, want Overloaded", err)
		}
	})
}

func TestFewestLeasesAndSticky(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x, y := r.connect(executor("x")), r.connect(executor("y"))
		for i, scope := range []string{"thread/a", "thread/b", "thread/c", "thread/d", "thread/a", "thread/b"} {
			f := []*fake{x, y}[i%2]
			h := r.start(t.Context(), dispatch.Spec{Scope: scope, Action: process(fmt.Sprint(i), "a")})
			if i < 4 {
				f.grant()
			}
			f.exit(f.action(), 0)
			wantExit(t, h, 0)
			h.Ack()
			if m := f.next(); m.GetResultAck() == nil {
				t.Fatalf("got %v, want an acknowledgement", m)
			}
		}
		x.drop()
		y.drop()
	})
}

func TestLevelIsPreferred(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		weak := r.connect(executor("a"))
		reg := executor("b")
		reg.SandboxReport = &heddlev1.SandboxReport{Levels: []heddlev1.SandboxLevel{heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY}}
		able := r.connect(reg)
		a := process("1", "x")
		a.Policy = &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY}
		r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: a})
		able.grant()
		weak.drop()
		able.drop()
	})
}

// Invariant I10: principals do not share scopes or executors that are bound.
func TestI10Principals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigPeer(t, dispatch.Config{}, dispatch.Peer{Principal: "alice"})
		defer r.close()
		x := r.connect(executor("x"))
		r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Principal: "alice", Action: process("1", "x")})
		x.grant()
		x.action()
		if _, err := r.d.Start(t.Context(), dispatch.Spec{Scope: "thread/a", Principal: "bob", Action: process("2", "x")}); !errdefs.Is(err, errdefs.PermissionDenied) {
			t.Errorf("scope of another principal: %v, want PermissionDenied", err)
		}
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/b", Principal: "bob", Action: process("3", "x")})
		wantReason(t, h, errdefs.NoExecutor)
		x.drop()
	})
}

func TestBadSpec(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("used", "x")})
		for name, spec := range map[string]dispatch.Spec{
			"scope":     {Scope: "a", Action: process("1", "x")},
			"kind":      {Scope: "host/a", Action: process("1", "x")},
			"no id":     {Scope: "thread/a", Action: process("", "x")},
			"no action": {Scope: "thread/a"},
			"empty":     {Scope: "thread/a", Action: &executorv1.Action{ActionId: "1"}},
			"used id":   {Scope: "thread/a", Action: process("used", "x")},
		} {
			if _, err := r.d.Start(t.Context(), spec); !errdefs.Is(err, errdefs.InvalidArgument) {
				t.Errorf("%s: %v, want InvalidArgument", name, err)
			}
		}
	})
}

// D2, D7: the end of the context ends the action in every state.
func TestD2D7CancelInEveryState(t *testing.T) {
	cases := []string{"waiting", "sent", "started", "disconnected"}
	for _, state := range cases {
		t.Run(state, func(t *testing.T) {
			bubble(t, dispatch.Config{}, func(r *rig) {
				t := r.t
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if state == "waiting" {
					h := r.start(ctx, dispatch.Spec{Scope: "thread/a", Action: process("1", "x")})
					cancel()
					res, err := h.Result(context.Background())
					if err != nil || res.GetError().GetCode() != "cancelled" {
						t.Errorf("got %v, %v, want cancelled", res, err)
					}
					return
				}
				x := r.connect(executor("x"))
				h := r.start(ctx, dispatch.Spec{Scope: "thread/a", Action: process("1", "x")})
				l := x.grant()
				a := x.action()
				if state != "sent" {
					x.started(a, 3)
					<-h.Started()
				}
				if state == "disconnected" {
					x.drop()
				}
				cancel()
				synctest.Wait()
				if state == "disconnected" {
					x = r.connect(reannounce("x", l, a))
				}
				if m := x.next(); m.GetControl().GetTerminate() == nil {
					t.Fatalf("got %v, want terminate", m)
				}
				x.exit(a, 137)
				wantExit(t, h, 137)
				x.drop()
			})
		})
	}
}

func TestReleaseScope(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		running := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x")})
		l := x.grant()
		a := x.action()
		left := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("2", "x")})
		x.action()
		done := make(chan error, 1)
		go func() { done <- r.d.ReleaseScope(t.Context(), "thread/a") }()
		if m := x.next(); m.GetRevoke().GetLeaseId() != l.GetLeaseId() || m.GetRevoke().GetEpoch() != l.GetEpoch() {
			t.Fatalf("got %v, want the lease revoked", m)
		}
		// A start meanwhile waits for the end and gets a new lease.
		next := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("3", "x")})
		x.exit(a, 137)
		wantExit(t, running, 137)
		select {
		case err := <-done:
			t.Fatalf("released before the executor confirmed: %v", err)
		default:
		}
		x.release(l)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if res, err := left.Result(t.Context()); err != nil || res.GetError().GetCode() != "cancelled" {
			t.Errorf("what was left: %v, %v, want cancelled", res, err)
		}
		if l2 := x.grant(); l2.GetEpoch() <= l.GetEpoch() {
			t.Errorf("epoch %d after %d", l2.GetEpoch(), l.GetEpoch())
		}
		x.exit(x.action(), 0)
		wantExit(t, next, 0)
		if err := r.d.ReleaseScope(t.Context(), "thread/none"); err != nil {
			t.Errorf("release of an unknown scope: %v", err)
		}
		x.drop()
	})
}

func TestPrepare(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		answer := func(out *executorv1.ActionResult) {
			var a *executorv1.Action
			for a == nil {
				a = x.next().GetAction()
			}
			out.ActionId, out.LeaseId, out.Epoch = a.GetActionId(), a.GetLeaseId(), a.GetEpoch()
			x.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Result{Result: out}})
		}
		go answer(&executorv1.ActionResult{Outcome: &executorv1.ActionResult_Prepared{Prepared: &executorv1.Prepared{Report: &heddlev1.SandboxReport{Backend: "runc-user"}}}})
		p, err := r.d.Prepare(t.Context(), "thread/a", &heddlev1.SandboxPolicy{}, "/w")
		if err != nil || p.GetReport().GetBackend() != "runc-user" {
			t.Fatalf("prepare: %v, %v", p, err)
		}
		go answer(&executorv1.ActionResult{Outcome: &executorv1.ActionResult_Error{Error: &heddlev1.ActionError{Code: "not_enforceable", Message: "no user namespaces", Fix: "sysctl"}}})
		_, err = r.d.Prepare(t.Context(), "thread/a", &heddlev1.SandboxPolicy{}, "/w")
		if e := errdefs.From(err); e == nil || e.Reason != errdefs.NotEnforceable || e.Meta["fix"] != "sysctl" {
			t.Errorf("prepare: %v, want NotEnforceable with its fix", err)
		}
		x.drop()
	})
}
