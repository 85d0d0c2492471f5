package executor_test

import (
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heddle-dev/heddle/executor"
	"github.com/heddle-dev/heddle/executor/executortest"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
	"github.com/heddle-dev/heddle/sandbox"
)

// An action id is done once, whatever is repeated.
func TestRepeatedAction(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.plane.HoldAcks.Store(true)
		a := command("a", 7)
		p := w.start(a)
		w.send(executortest.Do(a))
		p.End(sandbox.Result{ExitCode: 3})
		w.result("a")
		synctest.Wait() // the repetition above may have been answered too
		w.s.Forget("a")
		w.send(executortest.Do(a))
		if c := w.result("a").GetProcess().GetExitCode(); c != 3 {
			t.Errorf("repeated: exit code %d", c)
		}
		w.send(executortest.ResultAck("a"))
		synctest.Wait()
		w.s.Forget("a")
		w.send(executortest.Do(a))
		if e := w.result("a").GetError(); e.GetCode() != "refused" {
			t.Errorf("after the acknowledgement: %v", w.result("a"))
		}
		if n := w.boxes.Starts(); n != 1 {
			t.Errorf("%d processes were started", n)
		}
	})
}

// A result is sent again until it is acknowledged, the output before it.
func TestUnacknowledgedIsSentAgain(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.plane.HoldAcks.Store(true)
		p := w.start(command("a", 7))
		if _, err := p.Out.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		p.End(sandbox.Result{ExitCode: 2})
		for range 3 {
			w.result("a")
			if out, _ := w.s.Output("a", 1); string(out) != "hello" || w.s.Problem() != nil {
				t.Fatalf("output %q, %v", out, w.s.Problem())
			}
			w.s.Kick()
			w.session()
			w.send(executortest.Assign(executortest.Lease(lease, scope, 7, fence, renew)))
		}
		w.send(executortest.OutputAck("a", 1, 5))
		w.send(executortest.ResultAck("a"))
		synctest.Wait()
		w.s.Kick()
		w.session()
		synctest.Wait()
		if out, _ := w.s.Output("a", 1); len(out) != 0 {
			t.Errorf("sent again after the acknowledgement: %q", out)
		}
	})
}

func TestInterruptSteps(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		p := w.start(command("a", 7))
		began := time.Now()
		w.control("a", 7, &executorv1.ActionControl{Control: &executorv1.ActionControl_Interrupt{Interrupt: &executorv1.Interrupt{}}})
		synctest.Wait()
		if s := p.Signals(); !slices.Equal(s, []os.Signal{syscall.SIGINT}) {
			t.Errorf("at once: %v", s)
		}
		time.Sleep(301 * time.Millisecond)
		if s := p.Signals(); !slices.Equal(s, []os.Signal{syscall.SIGINT, syscall.SIGTERM}) {
			t.Errorf("after 300 ms: %v", s)
		}
		<-p.Done()
		if d := time.Since(began); d != time.Second {
			t.Errorf("killed after %v", d)
		}
		if v := w.result("a").GetProcess().GetVerdict(); v.GetSignal() != 9 {
			t.Errorf("verdict: %v", v)
		}
	})
}

func TestInterruptBeforeTheProcessRuns(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.boxes.Hold = make(chan struct{})
		w.send(executortest.Do(command("a", 7)))
		w.control("a", 7, &executorv1.ActionControl{Control: &executorv1.ActionControl_Interrupt{Interrupt: &executorv1.Interrupt{}}})
		if e := w.result("a").GetError(); e.GetCode() != "cancelled" {
			t.Errorf("result: %v", e)
		}
		if w.boxes.Starts() != 0 {
			t.Error("a process was started")
		}
	})
}

func (w *world) stdin(seq uint64, data string, end bool) {
	w.t.Helper()
	w.control("a", 7, &executorv1.ActionControl{Control: &executorv1.ActionControl_Stdin{Stdin: &executorv1.Stdin{WriteSeq: seq, Data: []byte(data), Close: end}}})
}

// Input that comes before the process runs, twice, and with its end.
func TestStdin(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		hold := make(chan struct{})
		w.boxes.Hold = hold
		w.send(executortest.Do(command("a", 7)))
		w.stdin(1, "one ", false)
		w.control("a", 7, &executorv1.ActionControl{Control: &executorv1.ActionControl_Resize{Resize: &executorv1.Resize{Rows: 30, Cols: 100}}})
		synctest.Wait()
		close(hold)
		p, err := w.boxes.Proc(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		w.stdin(2, "two ", false)
		w.stdin(2, "two again ", false)
		w.stdin(1, "one again ", false)
		w.stdin(3, "three", true)
		var got strings.Builder
		buf := make([]byte, 100)
		for {
			n, err := p.In.Read(buf)
			got.Write(buf[:n])
			if err != nil {
				break
			}
		}
		if got.String() != "one two three" {
			t.Errorf("input %q", got.String())
		}
		if s := p.Sizes(); len(s) != 1 || s[0] != [2]uint16{30, 100} {
			t.Errorf("sizes: %v", s)
		}
		p.End(sandbox.Result{})
		w.result("a")
	})
}

// What a process has read of its input is said, and nothing that it has not.
func TestInputIsReportedWhenItIsRead(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		p := w.start(command("a", 7))
		w.stdin(1, "one", false)
		w.stdin(2, "two", false)
		w.stdin(3, "", false)
		synctest.Wait()
		if n := w.s.InputTaken("a"); n != 0 {
			t.Errorf("write %d is said to be read, nothing was", n)
		}
		buf := make([]byte, 3)
		if _, err := io.ReadFull(p.In, buf); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := w.s.InputTaken("a"); n != 1 {
			t.Errorf("write %d is said to be read, the first was", n)
		}
		// A new session is told where the reader stands.
		w.s.Kick()
		w.session()
		w.send(executortest.Assign(executortest.Lease(lease, scope, 7, fence, renew)))
		synctest.Wait()
		if n := w.s.InputTaken("a"); n != 1 || !w.s.Register.GetReportsInput() {
			t.Errorf("write %d is said to be read on a new session", n)
		}
		p.In.Close() // the rest has no reader
		w.stdin(4, "four", false)
		synctest.Wait()
		w.stdin(5, "five", true)
		synctest.Wait()
		if n := w.s.InputTaken("a"); n != 5 {
			t.Errorf("write %d is said to be done with, all are", n)
		}
		p.End(sandbox.Result{})
		w.result("a")
	})
}

func TestInputNobodyReadsIsBounded(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		p := w.start(command("a", 7))
		piece := strings.Repeat("x", 1<<20)
		for i := range 20 {
			w.stdin(uint64(i+1), piece, false)
		}
		<-p.Done()
		if e := w.result("a").GetError(); e.GetCode() != "io" || !strings.Contains(e.GetMessage(), "input") {
			t.Errorf("result: %v", e)
		}
	})
}

func TestCapacity(t *testing.T) {
	inWorld(t, func(c *executor.Config) { c.Capacity = 2 }, func(w *world) {
		p := w.start(command("a", 7))
		w.start(command("b", 7))
		w.send(executortest.Do(command("c", 7)))
		if e := w.result("c").GetError(); e.GetCode() != "refused" || !strings.Contains(e.GetMessage(), "capacity") {
			t.Errorf("third action: %v", e)
		}
		p.End(sandbox.Result{})
		w.result("a")
		synctest.Wait()
		w.start(command("d", 7))
	})
}

// A direct stream holds the process when nobody acknowledges.
func TestDirectOutputHoldsTheProcess(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.plane.HoldAcks.Store(true)
		a := command("a", 7)
		a.GetStartProcess().Direct = true
		p := w.start(a)
		wrote := make(chan int, 1)
		go func() {
			n := 0
			for range 64 {
				k, err := p.Out.Write(make([]byte, 64<<10))
				n += k
				if err != nil {
					break
				}
			}
			wrote <- n
		}()
		synctest.Wait()
		out, _ := w.s.Output("a", 1)
		select {
		case <-wrote:
			t.Fatal("4 MiB were taken without an acknowledgement")
		default:
		}
		for len(out) < 4<<20 {
			w.send(executortest.OutputAck("a", 1, int64(len(out))))
			time.Sleep(10 * time.Millisecond)
			next, _ := w.s.Output("a", 1)
			if len(next) == len(out) {
				t.Fatalf("stuck at %d bytes", len(out))
			}
			out = next
		}
		if n := <-wrote; n != 4<<20 {
			t.Errorf("the process wrote %d bytes", n)
		}
		p.End(sandbox.Result{})
		w.result("a")
	})
}

// I7: whatever differs from what was approved is refused, and nothing is started.
func TestApprovedHashIsChecked(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		a := command("a", 7)
		p := a.GetStartProcess()
		a.ActionHash = actionhash.Process(p.GetArgv(), p.GetCwd(), p.GetEnv(), p.GetTty(), a.GetPolicy(), a.GetWorkspace())
		w.start(a).End(sandbox.Result{})
		for name, change := range map[string]func(*executorv1.Action){
			"argv":         func(b *executorv1.Action) { b.GetStartProcess().Argv = []string{"x", "y"} },
			"argv split":   func(b *executorv1.Action) { b.GetStartProcess().Argv = []string{"x", ""} },
			"cwd":          func(b *executorv1.Action) { b.GetStartProcess().Cwd = "/w/sub" },
			"environment":  func(b *executorv1.Action) { b.GetStartProcess().Env = []string{"LD_PRELOAD=/w/x.so"} },
			"terminal":     func(b *executorv1.Action) { b.GetStartProcess().Tty = true },
			"level":        func(b *executorv1.Action) { b.Policy.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS },
			"roots":        func(b *executorv1.Action) { b.Policy.WritableRoots = []string{"/etc"} },
			"network":      func(b *executorv1.Action) { b.Policy.Network = heddlev1.NetworkMode_NETWORK_MODE_FULL },
			"workspace":    func(b *executorv1.Action) { b.Workspace = "/" },
			"no such hash": func(b *executorv1.Action) { b.ActionHash = []byte("another") },
		} {
			b := command(name, 7)
			b.ActionHash = a.GetActionHash()
			change(b)
			w.send(executortest.Do(b))
			if e := w.result(name).GetError(); e.GetCode() != "refused" {
				t.Errorf("another %s under the same approval: %v", name, e)
			}
		}
		if w.boxes.Starts() != 1 {
			t.Error("it was started")
		}
	})
}

func TestTypedStartErrors(t *testing.T) {
	for code, err := range map[string]error{
		"not_enforceable": &sandbox.UnenforceableError{Level: sandbox.WorkspaceWrite, Cause: "no user namespaces", Fix: "allow them"},
		"bad_cwd":         sandbox.ErrBadDir,
		"sandbox_lost":    sandbox.ErrLost,
		"spawn_failed":    syscall.E2BIG,
	} {
		inWorld(t, nil, func(w *world) {
			w.boxes.StartErr = err
			w.send(executortest.Do(command("a", 7)))
			if e := w.result("a").GetError(); e.GetCode() != code || (code == "not_enforceable") != (e.GetFix() == "allow them") {
				t.Errorf("%v: %v", err, e)
			}
		})
	}
}
