package dispatch_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// A slow consumer holds its own credits and nobody else.
func TestSlowConsumerHoldsCredits(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		gate := make(chan struct{})
		var got strings.Builder
		slow := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x"),
			Output: func(c *executorv1.OutputChunk) error { <-gate; got.Write(c.GetData()); return nil }})
		x.grant()
		a := x.action()
		fast := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("2", "x"),
			Output: func(*executorv1.OutputChunk) error { return nil }})
		b := x.action()
		x.output(a, 1, 0, "one")
		x.output(a, 1, 3, "two")
		x.exit(a, 0)
		x.output(b, 1, 0, "abc")
		x.exit(b, 0)
		wantExit(t, fast, 0)
		pending(t, slow)
		for len(x.in) > 0 {
			if m := <-x.in; m.GetOutputAck().GetActionId() == "1" {
				t.Fatalf("credit %v before the consumer took anything", m)
			}
		}
		close(gate)
		wantExit(t, slow, 0)
		if got.String() != "onetwo" {
			t.Errorf("output %q", got.String())
		}
		x.drop()
	})
}

func TestCreditsFollowTheConsumer(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x"),
			Output: func(*executorv1.OutputChunk) error { return nil }})
		x.grant()
		a := x.action()
		x.output(a, 2, 0, "err")
		if m := x.next(); m.GetOutputAck().GetStream() != 2 || m.GetOutputAck().GetOffset() != 3 {
			t.Fatalf("got %v, want 3 bytes of stream 2 acknowledged", m)
		}
		x.exit(a, 0)
		wantExit(t, h, 0)
		x.drop()
	})
}

// An executor that ignores its credits is cut off.
func TestWindowIsEnforced(t *testing.T) {
	bubble(t, dispatch.Config{Window: 1000}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		gate := make(chan struct{})
		r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x"),
			Output: func(*executorv1.OutputChunk) error { <-gate; return nil }})
		x.grant()
		a := x.action()
		for i := range int64(4) {
			x.output(a, 1, i*900, strings.Repeat("x", 900))
		}
		<-x.ended
		if x.err == nil || !strings.Contains(x.err.Error(), "without credit") {
			t.Errorf("session ended with %v, want the broken window named", x.err)
		}
		close(gate)
		x.drop()
	})
}

func TestOutputErrorEndsTheProcess(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x"),
			Output: func(*executorv1.OutputChunk) error { return errBoom }})
		x.grant()
		a := x.action()
		x.output(a, 1, 0, "abc")
		for {
			m := x.next()
			if m.GetControl().GetTerminate() != nil {
				break
			}
			if m.GetOutputAck() == nil {
				t.Fatalf("got %v, want terminate", m)
			}
		}
		x.exit(a, 137)
		if _, err := h.Result(t.Context()); !errors.Is(err, errBoom) {
			t.Errorf("result error %v, want the consumer's", err)
		}
		h.Ack()
		for m := x.next(); m.GetResultAck() == nil; m = x.next() {
		}
		x.drop()
	})
}

// Bytes that were dropped at the cap are told once.
func TestDroppedIsToldOnce(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		var dropped []int64
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x"),
			Output: func(c *executorv1.OutputChunk) error { dropped = append(dropped, c.GetDropped()); return nil }})
		x.grant()
		a := x.action()
		x.output(a, 1, 0, "abc")
		for range 2 {
			x.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Output{Output: &executorv1.OutputChunk{
				ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(), Stream: 1, Offset: 3, Dropped: 50,
			}}})
		}
		x.exit(a, 0)
		wantExit(t, h, 0)
		if len(dropped) != 2 || dropped[1] != 50 {
			t.Errorf("chunks with dropped %v, want 0 and 50", dropped)
		}
		x.drop()
	})
}

func TestControls(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x")})
		l := x.grant()
		a := x.action()
		x.started(a, 3)
		<-h.Started()
		big := strings.Repeat("y", 200<<10)
		for _, step := range []func() error{
			func() error { return h.Stdin(t.Context(), []byte("in"), false) },
			func() error { return h.Stdin(t.Context(), []byte(big), true) },
			func() error { return h.Resize(t.Context(), 30, 90) },
			func() error { return h.Interrupt(t.Context()) },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		var data strings.Builder
		for i := range uint64(3) {
			s := x.next().GetControl().GetStdin()
			if s.GetWriteSeq() != i+1 || s.GetClose() != (i == 2) {
				t.Fatalf("write %d: seq %d, close %v", i+1, s.GetWriteSeq(), s.GetClose())
			}
			data.Write(s.GetData())
		}
		if data.String() != "in"+big {
			t.Error("standard input differs")
		}
		if m := x.next().GetControl(); m.GetResize().GetRows() != 30 || m.GetEpoch() != l.GetEpoch() || m.GetLeaseId() != l.GetLeaseId() {
			t.Errorf("got %v, want resize under the lease", m)
		}
		if m := x.next().GetControl(); m.GetInterrupt() == nil {
			t.Errorf("got %v, want interrupt", m)
		}
		// After a cut the executor gets what it does not say it has.
		x.drop()
		reg := reannounce("x", l, a)
		reg.Running[0].StdinSeq = 2
		x = r.connect(reg)
		if m := x.next().GetControl(); m.GetStdin().GetWriteSeq() != 3 {
			t.Errorf("got %v, want write 3 again", m)
		}
		if m := x.next().GetControl(); m.GetResize() == nil {
			t.Errorf("got %v, want the size again", m)
		}
		if m := x.next().GetControl(); m.GetInterrupt() == nil {
			t.Errorf("got %v, want the interrupt again", m)
		}
		x.exit(a, 130)
		wantExit(t, h, 130)
		for name, err := range map[string]error{
			"stdin":     h.Stdin(t.Context(), []byte("late"), false),
			"resize":    h.Resize(t.Context(), 1, 1),
			"interrupt": h.Interrupt(t.Context()),
		} {
			if !errors.Is(err, dispatch.ErrEnded) {
				t.Errorf("%s after the end: %v, want ErrEnded", name, err)
			}
		}
		if err := h.Terminate(t.Context()); err != nil {
			t.Errorf("terminate after the end: %v, want nil", err)
		}
		x.drop()
	})
}

// Writes wait when 1 MiB is not known to be received; a renewal round is the
// proof, so they go on at the pace of the executor, not of the renewals.
func TestStdinIsBounded(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		x := r.connect(executor("x"))
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x")})
		x.grant()
		a := x.action()
		now := time.Now()
		if err := h.Stdin(t.Context(), make([]byte, 5<<20), true); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(now); d > time.Second {
			t.Errorf("5 MiB took %v of waiting", d)
		}
		synctest.Wait()
		x.mute.Store(true)
		done := make(chan error, 1)
		go func() { done <- h.Stdin(t.Context(), make([]byte, 3<<20), true) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("3 MiB were taken without any answer: %v", err)
		default:
		}
		x.exit(a, 0)
		if err := <-done; !errors.Is(err, dispatch.ErrEnded) {
			t.Errorf("write to an ended action: %v, want ErrEnded", err)
		}
		wantExit(t, h, 0)
		x.drop()
	})
}

// An executor that says what is read: a process that does not read holds its
// writer back, however often the executor proves that it is alive.
func TestStdinWaitsForTheReader(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		reg := executor("x")
		reg.ReportsInput = true
		x := r.connect(reg)
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/a", Action: process("1", "x")})
		x.grant()
		a := x.action()
		done := make(chan error, 1)
		go func() { done <- h.Stdin(t.Context(), make([]byte, 2<<20), false) }()
		time.Sleep(10 * time.Minute) // of renewals
		var seq uint64
		var sent int
		for range 8 { // 1 MiB in pieces
			c := x.next().GetControl().GetStdin()
			seq, sent = c.GetWriteSeq(), sent+len(c.GetData())
		}
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("2 MiB were taken although nothing is read: %v", err)
		default:
		}
		if sent != 1<<20 {
			t.Errorf("%d bytes are on their way", sent)
		}
		x.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_InputTaken{InputTaken: &executorv1.InputTaken{
			ActionId: "1", LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(), WriteSeq: seq}}})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		x.exit(a, 0)
		wantExit(t, h, 0)
		x.drop()
	})
}
