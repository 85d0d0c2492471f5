package executor_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/heddle-dev/heddle/executor"
	"github.com/heddle-dev/heddle/executor/executortest"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
)

const (
	fence = 30 * time.Second
	renew = 15 * time.Second
	lease = "l1"
	scope = "thread/1"
)

// world is an executor with boxes in memory and a control plane over an
// in-memory connection, all on virtual time.
type world struct {
	t     *testing.T
	ctx   context.Context
	plane *executortest.Plane
	boxes *executortest.Boxes
	s     *executortest.Session
	down  atomic.Bool // dialling fails
	mu    sync.Mutex
	tried []string // addresses dialled
	ex    *executor.Executor
	ended chan error
	stop  context.CancelFunc
}

// inWorld runs f in a bubble of virtual time with a registered executor that
// holds one lease.
func inWorld(t *testing.T, configure func(*executor.Config), f func(w *world)) {
	t.Helper()
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, plane: executortest.New(), boxes: executortest.NewBoxes(), ended: make(chan error, 1)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w.ctx = ctx
		l := bufconn.Listen(1 << 20)
		stopServer := w.plane.Serve(l)
		defer stopServer()
		cfg := executor.Config{
			Addrs: []string{"127.0.0.1:1"}, StateDir: state, ID: "x1", Boxes: w.boxes, Report: &heddlev1.SandboxReport{},
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				w.mu.Lock()
				w.tried = append(w.tried, addr)
				w.mu.Unlock()
				if w.down.Load() {
					return nil, errors.New("connection refused")
				}
				return l.DialContext(ctx)
			})},
		}
		if configure != nil {
			configure(&cfg)
		}
		ex, err := executor.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		run, stop := context.WithCancel(t.Context())
		w.ex, w.stop = ex, stop
		go func() { w.ended <- ex.Run(run) }()
		defer func() { // also after a failure, which leaves f early
			stop()
			if err := <-w.ended; err != nil && !errors.Is(err, executor.ErrOrphaned) {
				t.Error("run:", err)
			}
			if n := w.boxes.Scopes(); n != 0 {
				t.Errorf("%d scopes have boxes after the end", n)
			}
		}()
		w.session()
		w.send(executortest.Assign(executortest.Lease(lease, scope, 7, fence, renew)))
		f(w)
	})
}

func (w *world) session() {
	w.t.Helper()
	s, err := w.plane.Session(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	w.s = s
}

func (w *world) send(m *executorv1.ConnectResponse) {
	w.t.Helper()
	if err := w.s.Send(m); err != nil {
		w.t.Fatal(err)
	}
}

func command(id string, epoch uint64) *executorv1.Action {
	return &executorv1.Action{ActionId: id, LeaseId: lease, Epoch: epoch, Workspace: "/w",
		Policy: &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE},
		Kind: &executorv1.Action_StartProcess{StartProcess: &executorv1.StartProcess{
			Argv: []string{"x"}, Cwd: "/w", MergeOutput: true, Stdin: executorv1.StdinMode_STDIN_MODE_PIPE}}}
}

// start starts a command and returns its process.
func (w *world) start(a *executorv1.Action) *executortest.Proc {
	w.t.Helper()
	w.send(executortest.Do(a))
	p, err := w.boxes.Proc(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.s.Started(w.ctx, a.GetActionId()); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) result(id string) *executorv1.ActionResult {
	w.t.Helper()
	res, err := w.s.Result(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

func (w *world) control(id string, epoch uint64, c *executorv1.ActionControl) {
	w.t.Helper()
	c.ActionId, c.LeaseId, c.Epoch = id, lease, epoch
	w.send(executortest.Control(c))
}

// I4: without renewals everything of a scope ends before the fence, with no help
// from the network, and the result outlives the fence.
func TestFenceEndsTheScope(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		p := w.start(command("a", 7))
		began := time.Now()
		w.down.Store(true)
		w.s.Kick()
		<-p.Done()
		if d := time.Since(began); d >= fence || d < fence-3*time.Second {
			t.Errorf("ended after %v, the fence is %v", d, fence)
		}
		w.down.Store(false)
		w.session()
		if reg := w.s.Register; len(reg.GetLeases()) != 0 || len(reg.GetRunning()) != 0 {
			t.Errorf("announced after the fence: %v", reg)
		}
		if e := w.result("a").GetError(); e.GetCode() != "executor_lost" {
			t.Errorf("result: %v", w.result("a"))
		}
	})
}

// A frozen executor cannot fire its timer: the guest holds the same deadline.
func TestGuestHoldsTheDeadline(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		granted := time.Now()
		p := w.start(command("a", 7))
		if d := p.Box.Deadline().Sub(granted); d <= 0 || d > fence {
			t.Fatalf("deadline %v after the grant", d)
		}
		time.Sleep(5 * time.Second)
		renewed := time.Now()
		w.send(executortest.Renew(1, executortest.Lease(lease, scope, 7, fence, renew)))
		if err := w.s.Round(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		// Round 1 names no acknowledged round: its reference is the registration.
		if d := p.Box.Deadline().Sub(granted); d > fence {
			t.Errorf("a renewal that acknowledges nothing moved the deadline to %v", d)
		}
		x := executortest.Lease(lease, scope, 7, fence, renew)
		x.AckedRound = 1
		time.Sleep(5 * time.Second)
		w.send(executortest.Renew(2, x))
		if err := w.s.Round(w.ctx, 2); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if d := p.Box.Deadline().Sub(renewed); d < fence-time.Second || d > fence {
			t.Errorf("deadline %v after the acknowledged round", d)
		}
	})
}

// Renewals that come keep work alive far beyond the first fence.
func TestRenewalsKeepWorkAlive(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		p := w.start(command("a", 7))
		for round := uint64(1); round <= 20; round++ {
			time.Sleep(5 * time.Second)
			x := executortest.Lease(lease, scope, 7, fence, renew)
			x.AckedRound, x.SinceAckMs = round-1, 5000
			w.send(executortest.Renew(round, x))
			if err := w.s.Round(w.ctx, round); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-p.Done():
			t.Fatal("the process was ended although its lease was renewed")
		default:
		}
		p.End(sandbox.Result{ExitCode: 5})
		if c := w.result("a").GetProcess().GetExitCode(); c != 5 {
			t.Errorf("exit code %d", c)
		}
	})
}

// A control plane that says nothing for renew_by is left for a new session; the
// work stays.
func TestSilenceEndsTheSession(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		p := w.start(command("a", 7))
		began := time.Now()
		old := w.s
		w.session()
		if d := time.Since(began); d < renew || d > renew+3*time.Second {
			t.Errorf("new session after %v", d)
		}
		if err := old.Ended(w.ctx); err != nil {
			t.Error(err)
		}
		if reg := w.s.Register; len(reg.GetLeases()) != 1 || len(reg.GetRunning()) != 1 || reg.GetLeases()[0].GetEpoch() != 7 {
			t.Errorf("announced: %v", reg)
		}
		p.End(sandbox.Result{})
		w.result("a")
	})
}

// A new sandbox report is told by a new registration; work goes on.
func TestNewReport(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		p := w.start(command("a", 7))
		w.ex.SetReport(&heddlev1.SandboxReport{Backend: "new"})
		w.session()
		if reg := w.s.Register; reg.GetSandboxReport().GetBackend() != "new" || len(reg.GetRunning()) != 1 || len(reg.GetLeases()) != 1 {
			t.Errorf("registered: %v", reg)
		}
		w.send(executortest.Assign(w.s.Register.GetLeases()...))
		p.End(sandbox.Result{ExitCode: 2})
		if c := w.result("a").GetProcess().GetExitCode(); c != 2 {
			t.Errorf("result: %v", w.result("a"))
		}
	})
}

func TestStaleMessagesAreRefused(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		for _, epoch := range []uint64{6, 8} {
			a := command("stale", epoch)
			w.send(executortest.Do(a))
			if res := w.result("stale"); res.GetError().GetCode() != "refused" || res.GetEpoch() != epoch {
				t.Errorf("action under epoch %d: %v", epoch, res)
			}
			w.s.Forget("stale")
		}
		p := w.start(command("a", 7))
		w.control("a", 6, &executorv1.ActionControl{Control: &executorv1.ActionControl_Terminate{Terminate: &executorv1.Terminate{}}})
		w.send(executortest.Renew(1, executortest.Lease(lease, scope, 6, time.Hour, renew)))
		if err := w.s.Round(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if d := time.Until(p.Box.Deadline()); d > fence {
			t.Errorf("a renewal under another epoch moved the deadline to %v", d)
		}
		select {
		case <-p.Done():
			t.Error("a control under another epoch reached the process")
		default:
		}
	})
}

// A higher epoch for the scope ends what the lower one had.
func TestHigherEpochSupersedes(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		p := w.start(command("a", 7))
		w.send(executortest.Grant(executortest.Lease("l2", scope, 9, fence, renew)))
		<-p.Done()
		if _, err := w.s.Released(w.ctx, lease); err != nil {
			t.Fatal(err)
		}
		b := command("b", 9)
		b.LeaseId = "l2"
		p2 := w.start(b)
		if p2.Box == p.Box {
			t.Error("the new lease uses the sandbox of the old one")
		}
		p2.End(sandbox.Result{})
		w.result("b")
	})
}

// The end of a lease is confirmed when all of it has ended, however often it is
// asked for, and a session in between still names the lease.
func TestEndIsConfirmedWhenAllHasEnded(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.start(command("a", 7))
		hold := make(chan struct{})
		w.boxes.HoldRelease = hold
		w.send(executortest.Revoke(lease, 7, "one"))
		w.result("a")
		w.send(executortest.Revoke(lease, 7, "two"))
		time.Sleep(time.Second)
		if w.s.IsReleased(lease) {
			t.Error("confirmed while its sandbox was still there")
		}
		w.s.Kick()
		w.session()
		if reg := w.s.Register; len(reg.GetLeases()) != 1 {
			t.Errorf("announced while it was ending: %v", reg)
		}
		w.send(executortest.Assign())
		w.send(executortest.Revoke(lease, 7, "three"))
		time.Sleep(time.Second)
		if w.s.IsReleased(lease) {
			t.Error("confirmed on the second session while its sandbox was still there")
		}
		close(hold)
		if _, err := w.s.Released(w.ctx, lease); err != nil {
			t.Error(err)
		}
		w.send(executortest.Revoke("never-held", 3, ""))
		if _, err := w.s.Released(w.ctx, "never-held"); err != nil {
			t.Error(err)
		}
	})
}

// A lease that is assigned again while it ends is a new one: neither its
// sandboxes nor its right are touched by the end of the old.
func TestLeaseAssignedAgainWhileItEnds(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		old := w.start(command("a", 7))
		hold := make(chan struct{})
		w.boxes.HoldRelease = hold
		w.send(executortest.Assign())
		w.result("a")
		w.send(executortest.Assign(executortest.Lease(lease, scope, 7, fence, renew)))
		p := w.start(command("b", 7))
		if p.Box == old.Box {
			t.Error("the sandbox of the old lease is used")
		}
		close(hold)
		time.Sleep(time.Second)
		if w.s.IsReleased(lease) {
			t.Error("the end of a lease that is held was confirmed")
		}
		p.End(sandbox.Result{ExitCode: 4})
		if c := w.result("b").GetProcess().GetExitCode(); c != 4 {
			t.Errorf("result: %v", w.result("b"))
		}
	})
}

func TestAssignmentsEndWhatIsNotListed(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		p := w.start(command("a", 7))
		w.s.Kick()
		w.session()
		w.send(executortest.Assign())
		<-p.Done()
		if e := w.result("a").GetError(); e.GetCode() != "cancelled" {
			t.Errorf("result: %v", e)
		}
	})
}

// The parent's death does not end work; the end of the last lease does.
func TestOrphanEndsWithItsLastLease(t *testing.T) {
	gone := make(chan struct{})
	inWorld(t, func(c *executor.Config) {
		gone = make(chan struct{}) // of the bubble
		c.Orphaned = gone
	}, func(w *world) {
		p := w.start(command("a", 7))
		close(gone)
		w.down.Store(true)
		w.s.Kick()
		began := time.Now()
		err := <-w.ended
		if !errors.Is(err, executor.ErrOrphaned) {
			t.Errorf("run: %v", err)
		}
		w.ended <- err
		if d := time.Since(began); d < fence-4*time.Second || d > fence+time.Second {
			t.Errorf("ended after %v", d)
		}
		<-p.Done()
	})
}

func TestFleetExecutorGoesOnReconnecting(t *testing.T) {
	inWorld(t, func(c *executor.Config) { c.Addrs = []string{"127.0.0.1:1", "127.0.0.1:2"} }, func(w *world) {
		w.down.Store(true)
		w.s.Kick()
		time.Sleep(10 * time.Minute)
		select {
		case err := <-w.ended:
			t.Fatalf("ended: %v", err)
		default:
		}
		w.mu.Lock()
		tried := slices.Clone(w.tried)
		w.mu.Unlock()
		if n := len(tried); n < 60 || n > 400 {
			t.Errorf("%d attempts in ten minutes", n)
		}
		if !slices.Contains(tried, "127.0.0.1:1") || !slices.Contains(tried, "127.0.0.1:2") {
			t.Errorf("addresses tried: %v", tried)
		}
		w.down.Store(false)
		w.session()
	})
}

// A stop tells results and the end of the lease before the session ends.
func TestStopTellsTheEnd(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		p := w.start(command("a", 7))
		w.stop()
		<-p.Done()
		if e := w.result("a").GetError(); e.GetCode() != "executor_lost" {
			t.Errorf("result: %v", e)
		}
		if _, err := w.s.Released(w.ctx, lease); err != nil {
			t.Error(err)
		}
	})
}
