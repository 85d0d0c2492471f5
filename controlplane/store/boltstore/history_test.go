package boltstore_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/controlplane/store/storetest"
	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// bigTurns appends turns whose items hold much text to a thread.
type bigTurns struct {
	s     *boltstore.Store
	st    *thread.State
	turns int
}

func (b *bigTurns) grow(t *testing.T, to, bytes int) {
	t.Helper()
	text := strings.Repeat("x", bytes)
	for b.turns < to {
		a := store.Append{ThreadID: "big", Epoch: 1, Create: b.turns == 0, ExpectedSeq: b.st.LastSeq}
		var events []*heddlev1.Event
		if b.turns == 0 {
			events = append(events, &heddlev1.Event{Payload: &heddlev1.Event_ThreadCreated{ThreadCreated: &heddlev1.ThreadCreated{Thread: &heddlev1.Thread{
				Id: "big", Principal: "local", Settings: &heddlev1.ThreadSettings{Cwd: "/w"}}}}})
		}
		for range 16 {
			b.turns++
			turn := fmt.Sprint("turn-", b.turns)
			item := &heddlev1.Item{Id: turn + "-a", TurnId: turn, Status: heddlev1.ItemStatus_ITEM_STATUS_COMPLETED,
				Content: &heddlev1.Item_AgentMessage{AgentMessage: &heddlev1.AgentMessage{Text: text}}}
			events = append(events, storetest.Accepted(turn, "go on"), storetest.Started(turn),
				&heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ItemStarted{ItemStarted: &heddlev1.ItemStarted{Item: item}}},
				&heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ItemCompleted{ItemCompleted: &heddlev1.ItemCompleted{Item: item}}},
				storetest.Completed(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED))
		}
		for i, ev := range events {
			ev.Seq, ev.ThreadId, ev.TimeMs = b.st.LastSeq+1, "big", int64(b.turns)*100+int64(i)
			if err := b.st.Fold(ev, &a.Changes); err != nil {
				t.Fatal(err)
			}
		}
		a.Events = events
		if err := b.s.Commit(t.Context(), []store.Append{a}); err != nil {
			t.Fatal(err)
		}
	}
}

// P18: what a resume and a list read of a thread does not grow with its history.
func TestP18LongHistory(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	defer s.Close()
	b := &bigTurns{s: s, st: thread.New()}
	// resume reads what a client that resumes and lists is shown first.
	resume := func() uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := s.Load(t.Context(), "big"); err != nil {
			t.Fatal(err)
		}
		row, err := s.Thread(t.Context(), "big")
		if err != nil {
			t.Fatal(err)
		}
		page, err := s.ListTurns(t.Context(), &heddlev1.ListTurnsRequest{ThreadId: "big", PageSize: 5})
		if err != nil || len(page.GetTurns()) == 0 {
			t.Fatal(len(page.GetTurns()), err)
		}
		if _, _, err := s.Events(t.Context(), "big", row.GetLastSeq()-5, 0); err != nil {
			t.Fatal(err)
		}
		if err := list(s, &heddlev1.ListThreadsRequest{}, 1); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	const text = 64 << 10
	b.grow(t, 64, text)
	short := resume()
	b.grow(t, 1024/raceScale, text)
	long := resume()
	if long > 2*short+1<<20 {
		t.Errorf("a resume reads %d KiB of %d MiB of history, %d KiB of a sixteenth of it", long>>10, 1024/raceScale*text>>20, short>>10)
	}
}
