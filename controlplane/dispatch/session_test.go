package dispatch_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

func TestActionFromStartToAck(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		f := r.connect(executor("x"))
		var got string
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "echo"),
			Output: func(c *executorv1.OutputChunk) error { got += string(c.GetData()); return nil }})
		l := f.grant()
		if l.GetFenceAfterMs() != 27000 || l.GetRenewByMs() != 15000 || l.GetScope() != "thread/a" || l.GetEpoch() == 0 {
			t.Errorf("lease %v, want a fence of 27 s and renewal by 15 s", l)
		}
		a := f.action()
		if a.GetLeaseId() != l.GetLeaseId() || a.GetEpoch() != l.GetEpoch() || a.GetAttempt() != 1 {
			t.Errorf("action %v is not under lease %v with attempt 1", a, l)
		}
		f.started(a, 42)
		<-h.Started()
		if h.PID() != 42 || h.ExecutorID() != "x" || h.Epoch() != l.GetEpoch() {
			t.Errorf("handle: pid %d, executor %q, epoch %d", h.PID(), h.ExecutorID(), h.Epoch())
		}
		f.output(a, 1, 0, "hello ")
		f.output(a, 1, 6, "world")
		f.exit(a, 3)
		wantExit(t, h, 3)
		if got != "hello world" {
			t.Errorf("output %q before the result, want all of it", got)
		}
		synctest.Wait()
		for len(f.in) > 0 {
			if m := <-f.in; m.GetOutputAck() == nil {
				t.Fatalf("message %v before Ack, want only output acknowledgements", m)
			}
		}
		h.Ack()
		if m := f.next(); m.GetResultAck().GetActionId() != "1" {
			t.Fatalf("got %v, want the result's acknowledgement", m)
		}
		h.Ack()
		f.nothing()
		if r.d.Active() != 0 {
			t.Errorf("%d active actions after the end", r.d.Active())
		}
		f.drop()
	})
}

func TestRegisterIsValidated(t *testing.T) {
	reg := func(change func(*executorv1.Register)) *executorv1.ConnectRequest {
		m := executor("x")
		m.MinProtocol, m.MaxProtocol, m.JoinToken = 1, 1, "secret"
		change(m)
		return register(m)
	}
	cases := map[string]struct {
		first *executorv1.ConnectRequest
		want  errdefs.Reason
	}{
		"no register":      {&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_RenewAck{RenewAck: &executorv1.RenewAck{}}}, errdefs.InvalidArgument},
		"no id":            {reg(func(m *executorv1.Register) { m.ExecutorId = "" }), errdefs.InvalidArgument},
		"negative":         {reg(func(m *executorv1.Register) { m.Capacity = -1 }), errdefs.InvalidArgument},
		"too new":          {reg(func(m *executorv1.Register) { m.MinProtocol, m.MaxProtocol = 2, 3 }), errdefs.VersionUnsupported},
		"wrong token":      {reg(func(m *executorv1.Register) { m.JoinToken = "guess" }), errdefs.PermissionDenied},
		"nothing for 10 s": {nil, errdefs.InvalidArgument},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, dispatch.Config{JoinToken: "secret"}, func(r *rig) {
				t := r.t
				f := r.open(c.first)
				<-f.ended
				if !errdefs.Is(f.err, c.want) {
					t.Errorf("got %v, want %s", f.err, c.want)
				}
				if len(r.d.Status()) != 0 {
					t.Errorf("status %v after a refused register", r.d.Status())
				}
				f.drop()
			})
		})
	}
}

// A second registration of an id ends the first; what still comes over the old
// stream counts for nothing.
func TestWrongSession(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		old := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "sleep")})
		l := old.grant()
		a := old.action()
		reg := executor("x")
		reg.Leases = []*executorv1.Lease{l}
		now := r.connect(reg)
		old.exit(a, 9)
		<-old.ended
		if !errdefs.Is(old.err, errdefs.StaleEpoch) {
			t.Errorf("old session ended with %v, want StaleEpoch", old.err)
		}
		pending(t, h)
		if again := now.action(); again.GetActionId() != "1" || again.GetEpoch() != a.GetEpoch() {
			t.Errorf("action sent again: %v, want the same id and epoch", again)
		}
		now.exit(a, 0)
		wantExit(t, h, 0)
		old.drop()
		now.drop()
	})
}

// Invariant I4: every message is checked against the lease's epoch.
func TestI4StaleEpochRefused(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		f := r.connect(executor("x"))
		var got string
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x"),
			Output: func(c *executorv1.OutputChunk) error { got += string(c.GetData()); return nil }})
		f.grant()
		a := f.action()
		stale := process("1")
		stale.LeaseId, stale.Epoch = a.GetLeaseId(), a.GetEpoch()-1
		f.started(stale, 7)
		f.output(stale, 1, 0, "lies")
		f.exit(stale, 66)
		if m := f.next(); m.GetResultAck().GetActionId() != "1" {
			t.Fatalf("got %v, want the stale result acknowledged away", m)
		}
		pending(t, h)
		foreign := process("1")
		foreign.LeaseId, foreign.Epoch = "another", a.GetEpoch()
		f.output(foreign, 1, 0, "more lies")
		pending(t, h)
		if h.PID() != 0 || got != "" {
			t.Errorf("stale messages counted: pid %d, output %q", h.PID(), got)
		}
		f.exit(a, 0)
		wantExit(t, h, 0)
		f.drop()
	})
}

func TestUnknownActionID(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		f := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x")})
		f.grant()
		a := f.action()
		other := process("nobody's")
		other.LeaseId, other.Epoch = a.GetLeaseId(), a.GetEpoch()
		time.Sleep(fence + time.Second) // the grace after the start is over
		f.output(other, 1, 0, "abc")
		if m := f.next(); m.GetOutputAck().GetOffset() != 3 {
			t.Fatalf("got %v, want credits for the unknown action", m)
		}
		f.exit(other, 0)
		if m := f.next(); m.GetResultAck().GetActionId() != "nobody's" {
			t.Fatalf("got %v, want the unknown result acknowledged away", m)
		}
		f.exit(a, 0)
		wantExit(t, h, 0)
		f.drop()
	})
}

// The server dictates renewals; they come in rounds of a sixth of the fence, one
// in flight at a time, and a silent executor loses its session.
func TestRenewalsAndSilence(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		f := r.connect(executor("x"))
		time.Sleep(26 * time.Second)
		synctest.Wait()
		if n := f.acks.Load(); n != 5 {
			t.Errorf("%d renewals in 26 s, want 5", n)
		}
		f.mute.Store(true)
		from := time.Now()
		<-f.ended
		if !errdefs.Is(f.err, errdefs.ExecutorLost) {
			t.Errorf("silent session ended with %v, want ExecutorLost", f.err)
		}
		if d := time.Since(from); d > 21*time.Second || d < 15*time.Second {
			t.Errorf("silent session ended after %v, want renew_by after the next round", d)
		}
		if n := f.acks.Load(); n != 6 {
			t.Errorf("%d renewals, want one unanswered after five", n)
		}
		f.drop()
	})
}

func TestServerStopMidStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dispatch.Config{})
		f := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x")})
		f.grant()
		f.action()
		r.stop()
		if m := f.next(); m.GetDraining() == nil {
			t.Errorf("got %v, want draining", m)
		}
		<-f.ended
		if _, err := h.Result(t.Context()); !errors.Is(err, dispatch.ErrStopped) {
			t.Errorf("result: %v, want ErrStopped", err)
		}
		if _, err := r.d.Start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("2", "x")}); !errors.Is(err, dispatch.ErrStopped) {
			t.Errorf("start after stop: %v, want ErrStopped", err)
		}
		f.drop()
		r.close()
	})
}

// An executor that does not read is cut off at the bound of its queue instead of
// being buffered for.
func TestBoundedSendQueue(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		conn := r.dial()
		stream, err := executorv1.NewExecutorServiceClient(conn).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(register(executor("x"))); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		// Nothing is read from here on. Windows of HTTP/2 and the listener take a
		// part, the queue the rest, and no Start waits for it.
		go func() {
			for i := range 250 {
				a := process(fmt.Sprint(i), "x")
				a.GetStartProcess().Env = []string{string(make([]byte, 100<<10))}
				if _, err := r.d.Start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: a}); err != nil {
					t.Errorf("start %d: %v", i, err)
				}
			}
		}()
		synctest.Wait()
		if st := r.d.Status(); len(st) == 1 && st[0].GetConnected() {
			t.Errorf("executor that reads nothing is still connected")
		}
		_ = conn.Close()
	})
}
