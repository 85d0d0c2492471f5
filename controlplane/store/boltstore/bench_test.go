package boltstore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/controlplane/store/storetest"
	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// many fills a store with n threads of one turn each, through the same commits
// as a log makes, many threads to a commit.
func many(tb testing.TB, n int) *boltstore.Store {
	tb.Helper()
	s := open(tb, filepath.Join(tb.TempDir(), "store.db"))
	const batch = 1000
	for i := 0; i < n; i += batch {
		var appends []store.Append
		for j := i; j < min(n, i+batch); j++ {
			appends = append(appends, oneThread(tb, j))
		}
		if err := s.Commit(tb.Context(), appends); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func oneThread(tb testing.TB, i int) store.Append {
	tb.Helper()
	id := fmt.Sprintf("thread-%08d", i)
	turn := fmt.Sprint("turn-", i)
	a := store.Append{ThreadID: id, Epoch: 1, Create: true}
	st := thread.New()
	for n, ev := range []*heddlev1.Event{
		{Payload: &heddlev1.Event_ThreadCreated{ThreadCreated: &heddlev1.ThreadCreated{Thread: &heddlev1.Thread{
			Id: id, Principal: "local", Source: "cli",
			Settings: &heddlev1.ThreadSettings{Cwd: fmt.Sprint("/w/", i%1000), ModelProvider: "openai", Model: "m"},
		}}}},
		storetest.Accepted(turn, fmt.Sprintf("please do number %d of the things on the list", i)),
		storetest.Started(turn),
		storetest.Completed(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED),
	} {
		ev.Seq, ev.ThreadId, ev.TimeMs = uint64(n)+1, id, int64(i)*10+int64(n)+1
		if err := st.Fold(ev, &a.Changes); err != nil {
			tb.Fatal(err)
		}
		a.Events = append(a.Events, ev)
	}
	return a
}

// I11: a page of 50,000 threads costs what a page of 50 costs, and what is open
// is found without looking at the rest.
func TestCostDoesNotGrowWithThreads(t *testing.T) {
	s := many(t, 50_000/raceScale)
	defer s.Close()
	ctx := t.Context()
	for name, c := range map[string]struct {
		limit time.Duration
		run   func() error
	}{
		"page":      {10 * time.Millisecond, func() error { return list(s, &heddlev1.ListThreadsRequest{WithTurns: true}, 25) }},
		"by update": {10 * time.Millisecond, func() error { return list(s, &heddlev1.ListThreadsRequest{SortKey: "updated_at"}, 25) }},
		"by cwd": {100 * time.Millisecond, func() error {
			return list(s, &heddlev1.ListThreadsRequest{Cwds: []string{"/w/7"}}, min(25, 50/raceScale))
		}},
		"search none": {1000 * time.Millisecond, func() error { return list(s, &heddlev1.ListThreadsRequest{SearchTerm: "no such text"}, 0) }},
		"open work":   {10 * time.Millisecond, func() error { _, err := s.OpenTurns(ctx); return err }},
		"load":        {10 * time.Millisecond, func() error { _, err := s.Load(ctx, "thread-00000007"); return err }},
	} {
		best := time.Hour
		for range 5 {
			start := time.Now()
			if err := c.run(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			best = min(best, time.Since(start))
		}
		t.Logf("%s: %v", name, best)
		if best > c.limit {
			t.Errorf("%s took %v among all threads, want at most %v", name, best, c.limit)
		}
	}
}

func list(s *boltstore.Store, req *heddlev1.ListThreadsRequest, want int) error {
	resp, err := s.ListThreads(context.Background(), "local", req)
	if err == nil && len(resp.GetThreads()) != want {
		err = fmt.Errorf("%d threads, want %d", len(resp.GetThreads()), want)
	}
	return err
}

// I11: the last turns of a thread with 10,000 cost what those of a short one
// cost.
func TestCostDoesNotGrowWithTurns(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	defer s.Close()
	h := storetest.NewHarness(t, s)
	h.Create("a", nil)
	const turns, batch = 10_000 / raceScale, 500
	for i := 0; i < turns; i += batch {
		var events []*heddlev1.Event
		for j := i; j < i+batch; j++ {
			turn := fmt.Sprint("t", j)
			events = append(events, storetest.Accepted(turn, "q"), storetest.Started(turn),
				storetest.ItemStarted(turn, storetest.UserItem("u"+turn, "q")), storetest.ItemCompleted(turn, storetest.UserItem("u"+turn, "q")),
				storetest.ItemStarted(turn, storetest.AgentItem("m"+turn, "")), storetest.ItemCompleted(turn, storetest.AgentItem("m"+turn, "answer")),
				storetest.Completed(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED))
		}
		h.Add("a", events...)
	}
	best := time.Hour
	for range 5 {
		start := time.Now()
		page, err := s.ListTurns(t.Context(), &heddlev1.ListTurnsRequest{ThreadId: "a", PageSize: 5})
		if err != nil || len(page.GetTurns()) != 5 || len(page.GetTurns()[0].GetItems()) != 2 {
			t.Fatalf("%v, %v", page, err)
		}
		best = min(best, time.Since(start))
	}
	t.Logf("last 5 of %d turns: %v", turns, best)
	if best > 5*time.Millisecond {
		t.Errorf("last 5 of %d turns took %v", turns, best)
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, threads := range []int{1, 50} {
		b.Run(fmt.Sprint(threads, "threads"), func(b *testing.B) {
			s := many(b, threads)
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			s, err := boltstore.Open(b.Context(), boltstore.Config{Path: s.Path()})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			before := s.Stats()
			seq := uint64(4)
			for b.Loop() {
				var appends []store.Append
				for i := range threads {
					id := fmt.Sprintf("thread-%08d", i)
					ev := storetest.Warning("an event of the usual size, about a hundred bytes long, as most of them are")
					ev.Seq, ev.ThreadId = seq+1, id
					appends = append(appends, store.Append{ThreadID: id, ExpectedSeq: seq, Epoch: 1, Events: []*heddlev1.Event{ev}})
				}
				if err := s.Commit(context.Background(), appends); err != nil {
					b.Fatal(err)
				}
				seq++
			}
			after := s.Stats()
			b.ReportMetric(float64(after["page_bytes"]-before["page_bytes"])/float64(b.N), "page-B/op")
		})
	}
}
