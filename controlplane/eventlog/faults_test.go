package eventlog_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heddle-dev/heddle/controlplane/eventlog"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/controlplane/store/faultstore"
	"github.com/heddle-dev/heddle/controlplane/store/memstore"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func openBolt(tb testing.TB, path string) *boltstore.Store {
	tb.Helper()
	s, err := boltstore.Open(context.Background(), boltstore.Config{Path: path})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func seqs(t *testing.T, l *eventlog.Log, id string) []uint64 {
	t.Helper()
	events, _, err := l.Store().Events(t.Context(), id, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var out []uint64
	for _, ev := range events {
		out = append(out, ev.GetSeq())
	}
	return out
}

// A commit of which the store cannot say whether it happened is looked up: the
// events are there once, and their writer learns the truth.
func TestUnknownOutcome(t *testing.T) {
	for name, faults := range map[string][]faultstore.Fault{
		"written":          {faultstore.UnknownAfter},
		"not written":      {faultstore.UnknownBefore},
		"not, then":        {faultstore.UnknownBefore, faultstore.UnknownAfter},
		"twice not, there": {faultstore.UnknownBefore, faultstore.UnknownBefore, faultstore.None},
	} {
		t.Run(name, func(t *testing.T) {
			s := faultstore.Wrap(memstore.New(memstore.Config{}))
			l := open(t, s, eventlog.Config{})
			epoch := create(t, l, "a")
			s.Plan(faults...)
			wait(t, l.Append("a", epoch, warning("x")))
			wait(t, l.Append("a", epoch, warning("y")))
			if got := fmt.Sprint(seqs(t, l, "a")); got != "[1 2 3]" {
				t.Errorf("seqs %s", got)
			}
			if s.Left() != 0 {
				t.Errorf("%d faults were not met", s.Left())
			}
		})
	}
}

// After a lost commit a thread takes nothing until it is claimed again, so that
// nothing follows what was lost.
func TestLostCommitBreaksItsThreads(t *testing.T) {
	s := faultstore.Wrap(memstore.New(memstore.Config{}))
	l := open(t, s, eventlog.Config{})
	epoch := create(t, l, "a")
	create(t, l, "b")
	s.Plan(faultstore.Refused)
	lost := l.Append("a", epoch, warning("lost"))
	if err := lost.Wait(t.Context()); !errdefs.Is(err, errdefs.StoreUnavailable) {
		t.Fatalf("lost append: %v", err)
	}
	if err := l.Append("a", epoch, warning("after")).Wait(t.Context()); !errdefs.Is(err, errdefs.StoreUnavailable) {
		t.Errorf("append after a lost one: %v", err)
	}
	wait(t, l.Append("b", 1, warning("fine")))
	next, err := l.Claim(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	p := l.Append("a", next, warning("again"))
	wait(t, p)
	if p.FirstSeq() != 2 {
		t.Errorf("seq %d after the loss, want 2", p.FirstSeq())
	}
}

// Another replica's claim is found in the commit; other threads of the same
// commit are not touched by it.
func TestForeignClaim(t *testing.T) {
	s := memstore.New(memstore.Config{})
	l := open(t, s, eventlog.Config{})
	epoch := create(t, l, "a")
	create(t, l, "b")
	if err := s.Commit(t.Context(), []store.Append{{ThreadID: "a", ExpectedSeq: 1, Epoch: 9, Claim: true}}); err != nil {
		t.Fatal(err)
	}
	pa, pb := l.Append("a", epoch, warning("x")), l.Append("b", 1, warning("y"))
	if err := pa.Wait(t.Context()); !errdefs.Is(err, errdefs.StaleEpoch) {
		t.Errorf("append of a fenced owner: %v", err)
	}
	wait(t, pb)
	if got, err := l.Claim(t.Context(), "a"); err != nil || got != 10 {
		t.Errorf("claim: %d, %v", got, err)
	}
}

// I9: what waits for the store is bounded, with a clear error past the bound.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, memstore.New(memstore.Config{}), eventlog.Config{MaxPending: 10})
		epoch := create(t, l, "a")
		var refused int
		for range 15 {
			if p := l.Append("a", epoch, warning("x")); errdefs.Is(p.Err(), errdefs.Overloaded) {
				refused++
			} else if p.Err() != nil {
				t.Fatal(p.Err())
			}
		}
		if refused != 5 {
			t.Errorf("%d appends refused, want 5", refused)
		}
		time.Sleep(10 * time.Millisecond)
		wait(t, l.Append("a", epoch, warning("x")))
		if got := len(seqs(t, l, "a")); got != 12 {
			t.Errorf("%d events", got)
		}
	})
}

// P17: an ephemeral thread leaves the file as it is, byte for byte.
func TestEphemeralLeavesNoTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	l := open(t, openBolt(t, path), eventlog.Config{})
	epoch := create(t, l, "source")
	wait(t, l.Append("source", epoch, accepted("t1"), started("t1"), completed("t1")))
	before := sum(t, path)
	for _, row := range []*heddlev1.Thread{
		{Id: "e", Principal: "local", Ephemeral: true},
		{Id: "f", Principal: "local", Ephemeral: true, ForkedFromId: "source", ForkedLastTurnId: "t1"},
	} {
		epoch, err := l.Create(t.Context(), row)
		if err != nil {
			t.Fatal(err)
		}
		id := row.GetId()
		wait(t, l.Append(id, epoch, accepted("t2"), started("t2"), itemStarted("t2", message("m", "")), delta("t2", "m", "hi"), itemCompleted("t2", message("m", "hi"))))
		n, err := l.Store().NextRequestID(t.Context(), id)
		if err != nil || n < 1<<30 || n > 1<<31-1 {
			t.Errorf("request id %d, %v", n, err)
		}
		wait(t, l.Append(id, epoch, &heddlev1.Event{TurnId: "t2", Payload: &heddlev1.Event_ApprovalRequested{ApprovalRequested: &heddlev1.ApprovalRequested{Approval: &heddlev1.Approval{Id: "ap", TurnId: "t2", RequestId: n}}}}))
		epoch, err = l.Claim(t.Context(), id)
		if err != nil || epoch != 2 {
			t.Errorf("claim: %d, %v", epoch, err)
		}
	}
	turns, err := l.Store().ListTurns(t.Context(), &heddlev1.ListTurnsRequest{ThreadId: "f"})
	if err != nil || len(turns.GetTurns()) != 2 {
		t.Errorf("turns of the ephemeral fork: %v, %v", turns, err)
	}
	list, err := l.Store().ListThreads(t.Context(), "local", &heddlev1.ListThreadsRequest{})
	if err != nil || len(list.GetThreads()) != 1 {
		t.Errorf("listed: %v, %v", list, err)
	}
	if err := l.Delete(t.Context(), "e"); err != nil {
		t.Fatal(err)
	}
	if got := sum(t, path); got != before {
		t.Error("the file changed")
	}
}

func sum(t *testing.T, path string) [32]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(data)
}

func TestForkThroughTheLog(t *testing.T) {
	l := open(t, openBolt(t, filepath.Join(t.TempDir(), "s.db")), eventlog.Config{})
	epoch := create(t, l, "a")
	wait(t, l.Append("a", epoch, accepted("t1"), started("t1"), completed("t1"), accepted("t2"), started("t2")))
	if _, err := l.Create(t.Context(), &heddlev1.Thread{Id: "x", ForkedFromId: "a", ForkedLastTurnId: "zz"}); !errdefs.Is(err, errdefs.TurnNotFound) {
		t.Errorf("fork at an unknown turn: %v", err)
	}
	if _, err := l.Create(t.Context(), &heddlev1.Thread{Id: "f", Principal: "local", ForkedFromId: "a", ForkedLastTurnId: "t2"}); err != nil {
		t.Fatal(err)
	}
	wait(t, l.Append("a", epoch, completed("t2")))
	row, err := l.Store().Thread(t.Context(), "f")
	if err != nil || row.GetPreview() != "do t1" || row.GetTurnCount() != 2 || row.GetForkedSeq() != 6 {
		t.Errorf("fork %v, %v", row, err)
	}
	turn, err := l.Store().Turn(t.Context(), "f", "t2")
	if err != nil || turn.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED {
		t.Errorf("running turn in the fork: %v, %v", turn, err)
	}
	if err := l.Delete(t.Context(), "a"); !errdefs.Is(err, errdefs.ThreadHasForks) {
		t.Errorf("delete of a source: %v", err)
	}
	wait(t, l.Append("a", epoch, warning("still writable")))
}

// The deltas of a long item are dropped once nobody waits, and watchers are
// told of the jump.
func TestLazyCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		l := open(t, s, eventlog.Config{})
		epoch := create(t, l, "a")
		wait(t, l.Append("a", epoch, accepted("t"), started("t"), itemStarted("t", message("m", ""))))
		for range 3000 {
			l.Append("a", epoch, delta("t", "m", "some text of the answer"))
			time.Sleep(time.Millisecond)
		}
		wait(t, l.Append("a", epoch, itemCompleted("t", message("m", "all"))))
		wait(t, l.Append("a", epoch, completed("t")))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		events, head, err := l.Store().Events(t.Context(), "a", 0, 1<<20)
		if err != nil || head != 3006 || len(events) > 10 {
			t.Errorf("%d events up to %d, %v", len(events), head, err)
		}
		w := l.Watch("a", 100)
		defer w.Close()
		events, _, err = w.Next(t.Context())
		if err != nil || events[0].GetRangeCompacted().GetItemId() != "m" || w.After() != 3006 {
			t.Errorf("watch inside the range: %v, %v, read up to %d", events, err, w.After())
		}
		commits := s.Stats()["commits"]
		time.Sleep(time.Minute)
		if s.Stats()["commits"] != commits {
			t.Error("an idle log commits")
		}
	})
}

// Watchers of all kinds of slowness see every event once and in order while
// threads are appended to, claimed and evicted.
func TestManyThreadsManyWatchers(t *testing.T) {
	s := openBolt(t, filepath.Join(t.TempDir(), "s.db"))
	l := open(t, s, eventlog.Config{MaxLoaded: 4})
	const threads, rounds = 12, 60
	var wg sync.WaitGroup
	for i := range threads {
		id := fmt.Sprint("thread", i)
		epoch := create(t, l, id)
		wg.Go(func() {
			last := uint64(1)
			for r := range rounds {
				p := l.Append(id, epoch, warning("a"), warning("b"))
				if p.Err() != nil {
					t.Errorf("%s: %v", id, p.Err())
					return
				}
				last = p.FirstSeq() + 1
				if r%7 == 0 {
					if err := p.Wait(context.Background()); err != nil {
						t.Error(err)
					}
				}
				if r == rounds/2 {
					var err error
					if epoch, err = l.Claim(context.Background(), id); err != nil {
						t.Error(err)
						return
					}
				}
			}
			if last != 2*rounds+1 {
				t.Errorf("%s: last seq %d", id, last)
			}
		})
		for w := range 3 {
			wg.Go(func() {
				watcher := l.Watch(id, 0)
				defer watcher.Close()
				next := uint64(1)
				for next <= 2*rounds+1 {
					events, _, err := watcher.Next(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					for _, ev := range events {
						if ev.GetSeq() != next {
							t.Errorf("%s watcher %d: seq %d, want %d", id, w, ev.GetSeq(), next)
							return
						}
						next++
					}
				}
			})
		}
	}
	wg.Wait()
}

const crashEnv = "HEDDLE_TEST_CRASH_STORE"

// TestCrashWriter is the process that TestCrash kills. It prints each seq that
// the log acknowledged and each that a watcher saw.
func TestCrashWriter(t *testing.T) {
	path := os.Getenv(crashEnv)
	if path == "" {
		t.Skip("only runs as the child of TestCrash")
	}
	s := openBolt(t, path)
	l := open(t, s, eventlog.Config{})
	epoch, err := l.Claim(t.Context(), "a")
	if errdefs.Is(err, errdefs.ThreadNotFound) {
		epoch, err = l.Create(t.Context(), &heddlev1.Thread{Id: "a", Principal: "local"})
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(os.Stdout, format, args...)
	}
	go func() {
		w := l.Watch("a", 0)
		defer w.Close()
		for {
			events, _, err := w.Next(context.Background())
			if err != nil {
				return
			}
			say("seen %d\n", store.EndOf(events[len(events)-1]))
		}
	}()
	for {
		l.Append("a", epoch, warning("unawaited"))
		p := l.Append("a", epoch, warning(strings.Repeat("x", 300)))
		if err := p.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		say("acked %d\n", p.FirstSeq())
	}
}

// I1: kill -9 while events are appended: nothing that was acknowledged or shown is
// lost, and the log has no hole.
func TestCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	for round := range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrashWriter$")
		cmd.Env = append(os.Environ(), crashEnv+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var promised, lines uint64
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if _, n, ok := strings.Cut(sc.Text(), " "); ok {
				if seq, err := strconv.ParseUint(n, 10, 64); err == nil {
					promised = max(promised, seq)
				}
			}
			if lines++; lines == 150+uint64(round)*37 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait()
		if lines < 150 {
			t.Fatalf("the writer ended by itself: %s", stderr.String())
		}
		checkLog(t, path, promised)
	}
}

func checkLog(t *testing.T, path string, promised uint64) {
	t.Helper()
	s, err := boltstore.Open(t.Context(), boltstore.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	next := uint64(1)
	for {
		events, head, err := s.Events(t.Context(), "a", next-1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			if next-1 != head || head < promised {
				t.Fatalf("the log ends at %d, its head is %d, promised was %d", next-1, head, promised)
			}
			return
		}
		for _, ev := range events {
			if ev.GetSeq() != next || ev.GetRangeCompacted() != nil {
				t.Fatalf("event %v, want seq %d", ev, next)
			}
			next++
		}
	}
}
