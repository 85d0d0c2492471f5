package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// world is two control planes after one another on one store.
func world(t *testing.T, f func(first, second func() *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &durable{}
		open := func() *rig { return newRig(t, dispatch.Config{Epochs: m.epochs(t)}) }
		f(open, open)
	})
}

// After a restart the executor keeps what it holds and the action goes on; its
// scope is nobody else's meanwhile.
func TestRestartReattachesRunning(t *testing.T) {
	world(t, func(first, second func() *rig) {
		r := first()
		t := r.t
		x := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Principal: "p", Action: process("1", "a")})
		l := x.grant()
		a := x.action()
		x.started(a, 5)
		<-h.Started()
		r.close()
		x.drop()

		r = second()
		y := r.connect(executor("y"))
		type answer struct {
			h   *dispatch.Handle
			err error
		}
		got := make(chan answer, 1)
		var out strings.Builder
		go func() {
			h, err := r.d.Reattach(t.Context(), "1", "thread/a", func(c *executorv1.OutputChunk) error { out.Write(c.GetData()); return nil }, 3)
			got <- answer{h, err}
		}()
		synctest.Wait()
		other := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Principal: "p", Action: process("2", "b")})
		y.nothing()
		time.Sleep(20 * time.Second)
		x = r.connect(reannounce("x", l, a))
		if len(x.held) != 1 || x.held[0].GetEpoch() != l.GetEpoch() {
			t.Fatalf("assignments %v, want the lease adopted under its epoch", x.held)
		}
		ans := <-got
		if ans.err != nil {
			t.Fatalf("reattach: %v", ans.err)
		}
		if ans.h.PID() != 5 || ans.h.Epoch() != l.GetEpoch() {
			t.Errorf("re-attached handle: pid %d, epoch %d", ans.h.PID(), ans.h.Epoch())
		}
		x.output(a, 1, 0, "abcdef")
		x.exit(a, 4)
		wantExit(t, ans.h, 4)
		if out.String() != "def" {
			t.Errorf("output %q, want it from offset 3", out.String())
		}
		var a2 *executorv1.Action
		for a2 == nil {
			a2 = x.next().GetAction()
		}
		if a2.GetEpoch() != l.GetEpoch() {
			t.Errorf("second action under epoch %d, want the adopted lease's %d", a2.GetEpoch(), l.GetEpoch())
		}
		x.exit(a2, 0)
		wantExit(t, other, 0)
		// A new scope gets a higher epoch than anything before.
		h3 := r.start(t.Context(), dispatch.Spec{Scope: "thread/b", Action: process("3", "c")})
		if l3 := y.grant(); l3.GetEpoch() <= l.GetEpoch() {
			t.Errorf("epoch %d after a restart, want above %d", l3.GetEpoch(), l.GetEpoch())
		}
		y.exit(y.action(), 0)
		wantExit(t, h3, 0)
		r.close()
		x.drop()
		y.drop()
	})
}

// What is in the outbox counts after a restart, output included, before or after
// it is asked for, also when the lease ended meanwhile.
func TestRestartTakesRecordedResult(t *testing.T) {
	for name, askFirst := range map[string]bool{"asked first": true, "shown first": false} {
		t.Run(name, func(t *testing.T) {
			world(t, func(first, second func() *rig) {
				r := first()
				t := r.t
				x := r.connect(executor("x"))
				r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "a")})
				x.grant()
				a := x.action()
				r.close()
				x.drop()
				r = second()
				var h *dispatch.Handle
				done := make(chan error, 1)
				var out strings.Builder
				ask := func() {
					var err error
					h, err = r.d.Reattach(t.Context(), "1", "thread/a", func(c *executorv1.OutputChunk) error { out.Write(c.GetData()); return nil }, 2)
					done <- err
				}
				if askFirst {
					go ask()
					synctest.Wait()
				}
				x = r.connect(executor("x"))
				x.started(a, 6)
				x.output(a, 1, 0, "abc")
				x.output(a, 1, 3, "def")
				x.exit(a, 2)
				synctest.Wait()
				if !askFirst {
					go ask()
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				wantExit(t, h, 2)
				if out.String() != "cdef" {
					t.Errorf("output %q, want it from offset 2", out.String())
				}
				h.Ack()
				for m := x.next(); m.GetResultAck().GetActionId() != "1"; m = x.next() {
					if m.GetOutputAck() == nil {
						t.Fatalf("got %v, want the acknowledgement", m)
					}
				}
				// The scope is free: the one who held it has shown that it is over.
				now := time.Now()
				h2 := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Principal: "p", Action: process("2", "b")})
				x.grant()
				x.exit(x.action(), 0)
				wantExit(t, h2, 0)
				if d := time.Since(now); d != 0 {
					t.Errorf("scope was free after %v, want at once", d)
				}
				r.close()
				x.drop()
			})
		})
	}
}

func TestRestartUnknownOutcome(t *testing.T) {
	world(t, func(_, second func() *rig) {
		r := second()
		t := r.t
		y := r.connect(executor("y"))
		now := time.Now()
		_, err := r.d.Reattach(t.Context(), "1", "thread/a", nil, 0)
		if !errdefs.Is(err, errdefs.UnknownOutcome) {
			t.Fatalf("reattach: %v, want UnknownOutcome", err)
		}
		if d := time.Since(now); d != fence {
			t.Errorf("unknown after %v, want the grace of %v", d, fence)
		}
		if _, err := r.d.Reattach(t.Context(), "1", "thread/a", nil, 0); !errdefs.Is(err, errdefs.UnknownOutcome) {
			t.Errorf("second time: %v, want UnknownOutcome", err)
		}
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("2", "b")})
		y.grant()
		y.exit(y.action(), 0)
		wantExit(t, h, 0)
		r.close()
		y.drop()
	})
}

// The recorded executor comes back without the lease: nobody needs to wait for
// the grace.
func TestRestartExpectedExecutorIsBack(t *testing.T) {
	world(t, func(_, second func() *rig) {
		r := second()
		t := r.t
		r.d.Recover(dispatch.Recovered{Scope: "thread/a", ExecutorID: "x"})
		now := time.Now()
		back := make(chan *fake, 1)
		go func() {
			time.Sleep(2 * time.Second)
			back <- r.connect(executor("x"))
		}()
		_, err := r.d.Reattach(t.Context(), "1", "thread/a", nil, 0)
		if e := errdefs.From(err); e == nil || e.Reason != errdefs.UnknownOutcome || e.Meta["executor_back"] != "true" {
			t.Fatalf("reattach: %v, want UnknownOutcome with executor_back", err)
		}
		if d := time.Since(now); d != 7*time.Second {
			t.Errorf("unknown after %v, want 5 s after the return at 2 s", d)
		}
		r.close()
		(<-back).drop()
	})
}

func TestReattachCancelled(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errBoom) })
		if _, err := r.d.Reattach(ctx, "1", "thread/a", nil, 0); !errors.Is(err, errBoom) {
			t.Fatalf("reattach: %v, want the cause", err)
		}
	})
}

// What runs from before a restart and is asked for by nobody is ended when the
// grace is over; connection-scoped work ends at once.
func TestRestartEndsWhatNobodyAsksFor(t *testing.T) {
	world(t, func(first, second func() *rig) {
		r := first()
		t := r.t
		x := r.connect(executor("x"))
		r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "a")})
		la := x.grant()
		a := x.action()
		r.start(t.Context(), dispatch.Spec{Scope: "connection/c", Action: process("2", "b")})
		lc := x.grant()
		b := x.action()
		r.close()
		x.drop()
		r = second()
		reg := reannounce("x", la, a, b)
		reg.Leases = append(reg.Leases, lc)
		x = r.connect(reg)
		if len(x.held) != 1 || x.held[0].GetScope() != "thread/a" {
			t.Errorf("assignments %v, want the thread's lease only", x.held)
		}
		if m := x.next(); m.GetControl().GetTerminate() == nil || m.GetControl().GetActionId() != "2" {
			t.Fatalf("got %v, want the connection's process ended", m)
		}
		x.release(lc)
		x.nothing()
		time.Sleep(fence)
		if m := x.next(); m.GetControl().GetTerminate() == nil || m.GetControl().GetActionId() != "1" {
			t.Fatalf("got %v, want the orphan ended", m)
		}
		x.exit(a, 137)
		if m := x.next(); m.GetResultAck().GetActionId() != "1" {
			t.Fatalf("got %v, want the orphan's result acknowledged", m)
		}
		if n := r.d.Active(); n != 0 {
			t.Errorf("%d active actions", n)
		}
		r.close()
		x.drop()
	})
}
