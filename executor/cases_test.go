package executor_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/heddle-dev/heddle/executor"
	"github.com/heddle-dev/heddle/executor/executortest"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
)

// D1: a control plane that is down for five minutes. Work that tolerates being
// offline ends by itself meanwhile and is told once; with the default fence it
// ends at its fence, and that is what is told.
func TestD1OfflineTolerantWork(t *testing.T) {
	for name, c := range map[string]struct {
		fence time.Duration
		works bool
	}{"offline-tolerant": {15 * time.Minute, true}, "default fence": {fence, false}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				w.send(executortest.Renew(1, executortest.Lease(lease, scope, 7, c.fence, renew)))
				if err := w.s.Round(w.ctx, 1); err != nil {
					t.Fatal(err)
				}
				p := w.start(command("a", 7))
				w.down.Store(true)
				w.s.Kick()
				time.Sleep(2 * time.Minute)
				select {
				case <-p.Done():
					if c.works {
						t.Fatal("the work was ended before its fence")
					}
				default:
					if !c.works {
						t.Fatal("the work outlives its fence")
					}
					p.End(sandbox.Result{ExitCode: 4})
				}
				time.Sleep(3 * time.Minute)
				w.down.Store(false)
				w.session()
				res := w.result("a")
				if got := res.GetProcess().GetExitCode(); c.works && got != 4 || !c.works && res.GetError().GetCode() != "executor_lost" {
					t.Errorf("told: %v", res)
				}
				held := len(w.s.Register.GetLeases()) == 1
				if held != c.works {
					t.Errorf("leases at the return: %v", w.s.Register.GetLeases())
				}
				w.send(executortest.Assign(w.s.Register.GetLeases()...))
				synctest.Wait()
				if leases, running := w.ex.Held(); running != 0 || c.works && leases != 1 {
					t.Errorf("%d leases, %d running: the place is not free", leases, running)
				}
				// Acknowledged: it is not told a second time.
				w.s.Kick()
				w.session()
				synctest.Wait()
				if w.s.HasResult("a") {
					t.Error("told twice")
				}
			})
		})
	}
}

// A result that nobody acknowledged outlives ten minutes without a control plane
// and the executor's process.
func TestOutboxOutlivesTenMinutesAndARestart(t *testing.T) {
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		boxes := executortest.NewBoxes()
		// run is one executor process and its control plane.
		run := func(f func(s *executortest.Session)) {
			plane := executortest.New()
			plane.HoldAcks.Store(true)
			l := bufconn.Listen(1 << 20)
			stopServer := plane.Serve(l)
			ex, err := executor.New(executor.Config{
				Addrs: []string{"127.0.0.1:1"}, StateDir: state, ID: "x1", Boxes: boxes, Report: &heddlev1.SandboxReport{},
				DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })},
			})
			if err != nil {
				t.Fatal(err)
			}
			life, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- ex.Run(life) }()
			s, err := plane.Session(ctx)
			if err != nil {
				t.Fatal(err)
			}
			f(s)
			stopServer()
			time.Sleep(10 * time.Minute)
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		run(func(s *executortest.Session) {
			for _, m := range []error{
				s.Send(executortest.Assign(executortest.Lease(lease, scope, 7, fence, renew))), s.Send(executortest.Do(command("a", 7))),
			} {
				if m != nil {
					t.Fatal(m)
				}
			}
			p, err := boxes.Proc(ctx)
			if err != nil {
				t.Fatal(err)
			}
			p.End(sandbox.Result{ExitCode: 6})
			if _, err := s.Result(ctx, "a"); err != nil {
				t.Fatal(err)
			}
		})
		run(func(s *executortest.Session) {
			res, err := s.Result(ctx, "a")
			if err != nil || res.GetProcess().GetExitCode() != 6 || res.GetEpoch() != 7 {
				t.Fatalf("after the restart: %v, %v", res, err)
			}
			if err := s.Send(executortest.ResultAck("a")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		})
		run(func(s *executortest.Session) {
			synctest.Wait()
			if s.HasResult("a") {
				t.Error("kept after its acknowledgement")
			}
		})
	})
}
