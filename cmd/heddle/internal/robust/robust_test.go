//go:build robust

package robust

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// setting reads a whole number from the environment.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a whole number", name, v)
	}
	return n
}

// TestRobustness is invariants I1 to I5 and I7 under fire.
func TestRobustness(t *testing.T) {
	seed := uint64(setting(t, "HEDDLE_ROBUST_SEED", 4))
	faults := setting(t, "HEDDLE_ROBUST_FAULTS", 80)
	limit := time.Duration(setting(t, "HEDDLE_ROBUST_SECONDS", 75+faults*3/4)) * time.Second
	began := time.Now()
	r := newRun(t, seed)
	t.Logf("seed %d, at least %d faults, at most %v of traffic", seed, faults, limit)

	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	traffic := r.traffic(ctx, t, seed)
	for r.tally.faults() < faults && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		r.home.noteCgroups()
		r.countFaults()
	}
	stop()
	traffic.Wait()
	r.countFaults()
	injected := r.tally.faults()
	if injected < faults {
		t.Errorf("%d faults in %v, want %d", injected, limit, faults)
	}
	r.calm()
	r.finish(t)
	r.complain(t, seed)
	t.Logf("seed %d: %d faults in %v; by kind, and what happened beside:\n%s", seed, injected, time.Since(began).Round(time.Second), r.tally)
}

func newRun(t *testing.T, seed uint64) *run {
	t.Helper()
	r := &run{seen: NewSeen(), tally: newTally(), notes: map[string][]Note{}, added: make(chan string, 64), logs: map[string][]*heddlev1.Event{}}
	r.model = newModel(seed, r.tally, func() *home { return r.home })
	t.Cleanup(r.model.Close)
	r.home = newHome(t, r.model.URL+"/v1")
	var err error
	if r.stderr, err = os.Create(filepath.Join(r.home.root, "clients.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.stderr.Close() })
	for i, kind := range []string{"stdio", "ws", "unix", "stdio", "ws"} {
		r.seats = append(r.seats, &seat{run: r, kind: kind, n: i, rng: rand.New(rand.NewPCG(seed, uint64(100+i))), answers: rand.New(rand.NewPCG(seed, uint64(200+i)))})
	}
	t.Cleanup(func() {
		for _, p := range r.home.processes() {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	})
	return r
}

// traffic starts clients, watchers and faults; all end with ctx.
func (r *run) traffic(ctx context.Context, t *testing.T, seed uint64) *sync.WaitGroup {
	t.Helper()
	conn, err := dialControl(r.home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r.conn = conn
	var wg sync.WaitGroup
	for _, s := range r.seats {
		wg.Go(func() { s.work(ctx) })
	}
	wg.Go(func() {
		var followers sync.WaitGroup
		defer followers.Wait()
		for {
			select {
			case id := <-r.added:
				followers.Go(func() { r.follow(ctx, conn, id) })
			case <-ctx.Done():
				return
			}
		}
	})
	for i := range 2 {
		wg.Go(func() { r.hop(ctx, conn, rand.New(rand.NewPCG(seed, uint64(300+i)))) })
	}
	in := &injector{run: r, rng: rand.New(rand.NewPCG(seed, 400))}
	wg.Go(func() { in.work(ctx) })
	return &wg
}

// calm ends all faults. What was added meanwhile needs no follower.
func (r *run) calm() {
	r.model.setCalm()
	if err := r.home.arm("", ""); err != nil {
		r.violate(Violation{What: "disarm: " + err.Error()})
	}
	go func() {
		for range r.added {
		}
	}()
	for _, p := range r.home.processes() {
		_ = syscall.Kill(p.pid, syscall.SIGCONT)
		if p.role == "controlplane" || p.role == "executor" {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may be armed
		}
	}
	for _, s := range r.seats {
		if c := s.current(); c != nil {
			c.slow.Store(0)
		}
	}
}

// finish waits until everything has ended and checks all that must hold then.
func (r *run) finish(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Duration(r.tally.faults())*time.Second)
	defer cancel()
	for _, s := range r.seats {
		if _, err := s.connect(ctx); err != nil {
			t.Errorf("a client cannot connect after the faults: %v", err)
		}
	}
	threads := r.threadList()
	for _, th := range threads {
		if err := r.settle(ctx, r.conn, th.id); err != nil {
			t.Error(err)
		}
	}
	logs := r.logs
	events, resumed, rows := 0, 0, 0
	requests := map[int64]string{}
	for _, th := range threads {
		log, head, err := readLog(ctx, r.conn, th.id, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		logs[th.id] = log
		events += len(log)
		r.violate(CheckLog(th.id, log, head)...)
		r.violate(requestIDs(th.id, log, requests)...)
		n, err := r.checkResume(ctx, r.conn, th.id, log)
		if err != nil {
			t.Error(err)
		}
		resumed += n
		if n, err = r.checkRows(ctx, r.conn, th.id, log); err != nil {
			t.Error(err)
		}
		rows += n
		r.violate(r.seen.Compare(th.id, log)...)
	}
	r.violate(checkAcks(r.acks, logs)...)
	for _, notes := range r.notes {
		r.violate(CheckNotes(notes, logs[notes[0].Thread])...)
	}
	data, err := os.ReadFile(r.home.effects())
	if err != nil {
		t.Error(err)
	}
	sum, bad := CheckEffects(strings.Fields(string(data)), logs)
	r.violate(bad...)
	if sum.Lines < sum.Commands/3 { // most commands are not hit by a fault
		t.Errorf("%d commands left %d lines: nothing is shown about what commands do", sum.Commands, sum.Lines)
	}

	for _, s := range r.seats {
		s.close()
	}
	_ = r.conn.Close()
	left, cgroups := r.home.leftovers(60 * time.Second)
	for _, l := range left {
		r.violate(Violation{What: "left behind: " + l})
	}
	turns := 0
	for _, log := range logs {
		for _, ev := range log {
			if ev.GetTurnCompleted() != nil {
				turns++
			}
		}
	}
	t.Logf(`checked: %d threads, %d turns with one end each, %d events in the logs against %d events shown to watchers,
resumed from %d places, %d rows of lists, %d accepted inputs, %d notifications in %d subscriptions, %d model requests;
%d commands (%d of unknown outcome) left %d lines, none twice; %d cgroups, all mounts, files and processes gone`,
		len(threads), turns, events, r.seen.Count(), resumed, rows, len(r.acks), r.noted, len(r.notes), r.model.requests(),
		sum.Commands, sum.Unknown, sum.Lines, cgroups)
}

// historyBefore and historyAfter bound the events shown around a violation.
const (
	historyBefore = 25
	historyAfter  = 8
)

// complain reports what was violated, with the log around it, and keeps whole
// logs beside the home.
func (r *run) complain(t *testing.T, seed uint64) {
	t.Helper()
	shown := map[string]bool{}
	for i, v := range r.problems {
		if i == 40 {
			t.Errorf("seed %d: and %d violations more", seed, len(r.problems)-i)
			return
		}
		t.Errorf("seed %d: %v", seed, v)
		log := r.logs[v.Thread]
		if log == nil || shown[v.Thread] {
			continue
		}
		shown[v.Thread] = true
		var all, near strings.Builder
		for _, ev := range log {
			line := fmt.Sprintf("%s %s\n", time.UnixMilli(ev.GetTimeMs()).Format("15:04:05.000"), brief(ev))
			all.WriteString(line)
			if ev.GetSeq()+historyBefore >= v.Seq && ev.GetSeq() <= v.Seq+historyAfter {
				near.WriteString(line)
			}
		}
		path := filepath.Join(r.home.root, "log-"+v.Thread+".txt")
		if err := os.WriteFile(path, []byte(all.String()), 0o600); err != nil {
			t.Error(err)
		}
		t.Logf("its log, whole in %s:\n%s", path, near.String())
	}
}

// settle waits until nothing of a thread is open.
func (r *run) settle(ctx context.Context, conn *grpc.ClientConn, id string) error {
	svc := heddlev1.NewThreadServiceClient(conn)
	last := ""
	for deadline := time.Now().Add(75 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		row, err := svc.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: id}, grpc.WaitForReady(true))
		if err != nil {
			last = err.Error()
			continue
		}
		terms, err := svc.ListBackgroundTerminals(ctx, &heddlev1.ListBackgroundTerminalsRequest{ThreadId: id})
		if err != nil {
			last = err.Error()
			continue
		}
		if row.GetThread().GetActiveTurnId() == "" && len(terms.GetTerminals()) == 0 {
			return nil
		}
		last = fmt.Sprintf("turn %q, terminals %v", row.GetThread().GetActiveTurnId(), terms.GetTerminals())
	}
	return fmt.Errorf("thread %s does not come to rest: %s", id, last)
}

// checkAcks finds every accepted input in the log, once.
func checkAcks(acks []ack, logs map[string][]*heddlev1.Event) []Violation {
	var out []Violation
	accepted := map[string][]string{} // text -> turns
	for _, log := range logs {
		for _, ev := range log {
			if a := ev.GetTurnAccepted(); a != nil {
				accepted[textOf(a.GetInput())] = append(accepted[textOf(a.GetInput())], a.GetTurn().GetId())
			}
			if s := ev.GetSteerAccepted(); s != nil {
				accepted[textOf(s.GetInput())] = append(accepted[textOf(s.GetInput())], ev.GetTurnId())
			}
		}
	}
	for _, a := range acks {
		if got := accepted[a.text]; len(got) == 0 || got[0] != a.turn {
			out = append(out, Violation{a.thread, 0, fmt.Sprintf("input %q was accepted for turn %s, the log has it in %v", a.text, a.turn, got)})
		}
	}
	for text, turns := range accepted {
		if len(turns) > 1 {
			out = append(out, Violation{What: fmt.Sprintf("input %q was accepted %d times: %v", text, len(turns), turns)})
		}
	}
	return out
}

// requestIDs checks that no number of a question was given out twice.
func requestIDs(thread string, log []*heddlev1.Event, given map[int64]string) []Violation {
	var out []Violation
	for _, ev := range log {
		a := ev.GetApprovalRequested().GetApproval()
		if a == nil {
			continue
		}
		if other, ok := given[a.GetRequestId()]; ok {
			out = append(out, Violation{thread, ev.GetSeq(), fmt.Sprintf("request id %d was given to approval %s and %s", a.GetRequestId(), other, a.GetId())})
		}
		given[a.GetRequestId()] = a.GetId()
	}
	return out
}
