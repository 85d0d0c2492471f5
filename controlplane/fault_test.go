package controlplane

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/controlplane/server"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/faultstore"
	"github.com/heddle-dev/heddle/controlplane/store/memstore"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc/metadata"
)

// faulty makes a rig whose store fails where the test plans it.
func faulty(t *testing.T) (*rig, *faultstore.Store) {
	t.Helper()
	home := t.TempDir()
	r := &rig{t: t, home: home, model: &fakeModel{t: t}}
	faults := faultstore.Wrap(memstore.New(memstore.Config{}))
	r.serveStore(Config{Home: config.Home{Dir: home}, Store: "memory", Version: "test", Clients: r.model, ExecutorWait: 2 * time.Second}, faults)
	return r, faults
}

// serveStore runs a control plane on a store that the test has opened.
func (r *rig) serveStore(cfg Config, s store.Store) {
	r.t.Helper()
	cfg.Streams, cfg.Logger, cfg.Env = r.home+"/streams", slog.New(slog.DiscardHandler), map[string]string{}
	cp := &ControlPlane{cfg: cfg, store: s, stop: make(chan struct{})}
	if err := cp.wire(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.serve(cp)
}

// A disk that is full while the control plane starts keeps no turn open: it goes
// on as soon as there is room.
func TestRecoveryWaitsForTheStore(t *testing.T) {
	r, _ := durable(t)
	cfg := r.cp.cfg
	r.model.script(calls(shell("c1", "sleep")), speak("m", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	r.stop()
	st, err := openStore(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	faults := faultstore.Wrap(st)
	faults.Plan(faultstore.Refused, faultstore.Refused)
	r.serveStore(cfg, faults)
	r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f = r.follow(th.GetId(), 1)
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	for deadline := time.Now().Add(10 * time.Second); faults.Left() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the thread is not recovered again")
		}
	}
	r.exec.endAll(0)
	f.turnEnd()
	once(t, f)
	if n := r.exec.did(isProcess); n != 1 {
		t.Fatalf("ran %d times", n)
	}
}

// A steer that is refused since the store takes no writes is not shown: its
// client sends it again.
func TestRefusedSteerIsNotShown(t *testing.T) {
	r, faults := faulty(t)
	ctx, th := r.thread(workspaceWrite("never"))
	r.model.script(calls(shell("c1", "sleep")), speak("m", "done"))
	f := r.follow(th.GetId(), 0)
	turn := r.startTurn(ctx, th.GetId(), "go")
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	time.Sleep(50 * time.Millisecond) // what was printed is announced
	faults.Plan(faultstore.Refused)
	steer := &heddlev1.SteerTurnRequest{ThreadId: th.GetId(), ExpectedTurnId: turn.GetId(), Input: say("more")}
	if _, err := r.turns.SteerTurn(ctx, steer); !errdefs.Is(err, errdefs.StoreUnavailable) {
		t.Fatalf("a steer on a full store: %v", err)
	}
	// The thread takes events again, also those of the turn.
	if _, err := r.threads.SetThreadName(ctx, &heddlev1.SetThreadNameRequest{ThreadId: th.GetId(), Name: "x"}); err != nil {
		t.Fatal(err)
	}
	r.exec.endAll(0)
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("nothing of the turn was lost, and it ended %v: %v", end.GetStatus(), end.GetError())
	}
	if seen := visible(f.seen); strings.Count(seen, "start:user") != 1 {
		t.Errorf("the refused steer is shown: %s", seen)
	}
}

// planAt lets so many commits pass and has the next ones meet faults.
func planAt(s *faultstore.Store, commits int, faults ...faultstore.Fault) {
	s.Plan(append(make([]faultstore.Fault, commits), faults...)...)
}

// A commit that fails at any moment of a turn leaves at most a failed turn: it
// ends once, nothing of it runs or stays open, and the thread goes on.
func TestFailedCommitEndsTheTurnOnce(t *testing.T) {
	for at := range 7 {
		for _, fault := range []faultstore.Fault{faultstore.Refused, faultstore.UnknownBefore, faultstore.UnknownAfter} {
			t.Run(fmt.Sprintf("commit %d, fault %d", at, fault), func(t *testing.T) {
				r, faults := faulty(t)
				ctx, th := r.thread(workspaceWrite("never"))
				id := th.GetId()
				time.Sleep(50 * time.Millisecond) // the sandbox report is recorded
				planAt(faults, at, fault)
				r.model.script(calls(shell("c1", "sleep", `,"yield_time_ms":250`), shell("c2", "echo a")), calls(patchOf("p1", "n.txt")), speak("m", "done"))
				if _, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: id, Input: say("go")}); err == nil {
					r.awaitIdle(ctx, id)
				}
				for faults.Left() > 0 {
					// The turn made fewer commits; the rest of the plan is used up.
					if _, err := r.threads.SetThreadName(ctx, &heddlev1.SetThreadNameRequest{ThreadId: id, Name: "x"}); err != nil {
						break
					}
				}
				r.model.drop()
				r.model.script(speak("m9", "fine"))
				resp, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: id, Input: say("again")})
				if err != nil {
					t.Fatalf("the thread is not usable: %v", err)
				}
				r.awaitIdle(ctx, id)
				f := r.follow(id, 0)
				for f.turnEnd().GetId() != resp.GetTurn().GetId() {
				}
				ends, starts, inputs := 0, 0, 0
				for _, e := range f.seen {
					if e.GetTurnCompleted() != nil {
						ends++
					}
					if e.GetTurnAccepted() != nil {
						starts++
					}
					if e.GetItemCompleted().GetItem().GetUserMessage() != nil {
						inputs++
					}
				}
				if inputs != starts {
					t.Errorf("%d inputs accepted, %d shown: %s", starts, inputs, visible(f.seen))
				}
				if ends != starts {
					t.Fatalf("%d turns accepted, %d ended: %s", starts, ends, visible(f.seen))
				}
			})
		}
	}
}

// A turn that was to complete and ends as failed, since its end was lost with a
// commit, leaves nothing running, also where somebody else made the log take
// events again.
func TestFailedEndEndsItsProcesses(t *testing.T) {
	failed := 0
	for at := range 7 {
		r, faults := faulty(t)
		ctx, th := r.thread(workspaceWrite("never"))
		id := th.GetId()
		time.Sleep(50 * time.Millisecond)                          // the sandbox report is recorded
		planAt(faults, at, faultstore.Refused, faultstore.Refused) // a commit, and the claim after it
		r.model.script(calls(shell("c1", "sleep", `,"yield_time_ms":250`)), speak("m", "left it running"))
		if _, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: id, Input: say("go")}); err != nil {
			continue
		}
		for deadline := time.Now().Add(2 * time.Second); faults.Left() > 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if faults.Left() > 0 {
			continue // the turn made fewer commits
		}
		if _, err := r.threads.SetThreadName(ctx, &heddlev1.SetThreadNameRequest{ThreadId: id, Name: "x"}); err != nil {
			t.Fatal(err)
		}
		r.awaitIdle(ctx, id)
		f := r.follow(id, 0)
		end, open := f.turnEnd(), map[string]bool{}
		for _, e := range f.seen {
			if item := e.GetItemStarted().GetItem(); item != nil {
				open[item.GetId()] = true
			}
			delete(open, e.GetItemCompleted().GetItem().GetId())
		}
		if end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_FAILED {
			continue
		}
		failed++
		if len(open) > 0 {
			t.Errorf("commit %d: the failed turn leaves %v open: %s", at, open, visible(f.seen))
		}
	}
	if failed == 0 {
		t.Error("no refused commit failed a turn")
	}
}

func (r *rig) awaitIdle(ctx contextType, id string) {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		row, err := r.threads.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: id})
		if err == nil && row.GetThread().GetActiveTurnId() == "" && r.cp.agent.ActiveTurns() == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("turn %s never ends, %v", row.GetThread().GetActiveTurnId(), err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A turn whose last answer was lost with a commit does not end as completed: who
// waits for the answer would take silence for it.
func TestTurnThatLostItsAnswerFails(t *testing.T) {
	for _, fault := range []faultstore.Fault{faultstore.Refused, faultstore.UnknownBefore, faultstore.UnknownAfter} {
		failed := 0
		for at := range 4 {
			r, faults := faulty(t)
			ctx, th := r.thread(workspaceWrite("never"))
			id := th.GetId()
			time.Sleep(50 * time.Millisecond) // the sandbox report is recorded
			planAt(faults, at, fault)
			r.model.script(calls(shell("c1", "echo a")), speak("m", "done"))
			if _, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: id, Input: say("go")}); err != nil {
				continue
			}
			r.awaitIdle(ctx, id)
			f := r.follow(id, 0)
			end, answer := f.turnEnd(), ""
			for _, e := range f.seen {
				if m := e.GetItemCompleted().GetItem().GetAgentMessage(); m != nil {
					answer = m.GetText()
				}
			}
			switch end.GetStatus() {
			case heddlev1.TurnStatus_TURN_STATUS_COMPLETED:
				if answer != "done" || end.GetError() != nil {
					t.Errorf("fault %d at commit %d: completed with answer %q and error %v: %s", fault, at, answer, end.GetError(), visible(f.seen))
				}
			case heddlev1.TurnStatus_TURN_STATUS_FAILED:
				failed++
				if end.GetError().GetMessage() == "" {
					t.Errorf("fault %d at commit %d: failed without a word: %s", fault, at, visible(f.seen))
				}
			default:
				t.Errorf("fault %d at commit %d: %v", fault, at, end.GetStatus())
			}
		}
		if fault == faultstore.Refused && failed == 0 {
			t.Error("no refused commit failed a turn")
		}
	}
}

// A store that refuses for long (a full disk) delays the end of a turn and does
// not lose it: meanwhile a new turn is refused with the cause, then it ends once.
func TestEndWaitsForTheStore(t *testing.T) {
	r, faults := faulty(t)
	ctx, th := r.thread(workspaceWrite("never"))
	id := th.GetId()
	said := r.noticesOf(id)
	time.Sleep(50 * time.Millisecond) // the sandbox report is recorded
	faults.Plan(faultstore.None)
	for range 7 {
		faults.Plan(faultstore.Refused)
	}
	r.model.script(speak("m", "done"), speak("m2", "fine"))
	r.startTurn(ctx, id, "go")
	deadline := time.Now().Add(10 * time.Second)
	for faults.Left() > 3 {
		if time.Now().After(deadline) {
			t.Fatal("the end is not tried again")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: id, Input: say("again")}); !errdefs.Is(err, errdefs.StoreUnavailable) {
		t.Fatalf("a turn on a full store: %v", err)
	}
	if n := <-said; n.GetThreadId() != id || !strings.Contains(n.GetMessage(), "takes no writes") || !strings.Contains(n.GetMessage(), r.home) {
		t.Errorf("the client was told %v", n)
	}
	r.awaitIdle(ctx, id)
	if n := <-said; !strings.Contains(n.GetMessage(), "takes writes again") {
		t.Errorf("the client was told %v", n)
	}
	if faults.Left() != 0 {
		t.Fatalf("%d faults left", faults.Left())
	}
	f := r.follow(id, 0)
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_FAILED {
		t.Fatalf("the first turn ended %v", end.GetStatus())
	}
	second := r.startTurn(ctx, id, "once more")
	if end := f.turnEnd(); end.GetId() != second.GetId() || end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Fatalf("the next end is %v of %s: %s", end.GetStatus(), end.GetId(), visible(f.seen))
	}
}

// noticesOf attaches another session that holds the thread, and returns what it
// is told beside the log.
func (r *rig) noticesOf(threadID string) <-chan *heddlev1.Notice {
	r.t.Helper()
	stream, err := r.sessions.Attach(r.t.Context(), &heddlev1.AttachRequest{SessionId: "listener", OnDisconnect: heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE, Cwd: "/work"})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		r.t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(r.t.Context(), server.SessionKey, "listener")
	if _, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: threadID}); err != nil {
		r.t.Fatal(err)
	}
	out := make(chan *heddlev1.Notice, 8)
	go func() {
		defer close(out)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			if n := m.GetNotice(); n != nil {
				out <- n
			}
		}
	}()
	return out
}
