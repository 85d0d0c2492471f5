package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heddle-dev/heddle/controlplane/eventlog"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/memstore"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func open(t *testing.T, s store.Store, cfg eventlog.Config) *eventlog.Log {
	t.Helper()
	cfg.Store = s
	l, err := eventlog.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func create(t *testing.T, l *eventlog.Log, id string) uint64 {
	t.Helper()
	epoch, err := l.Create(t.Context(), &heddlev1.Thread{Id: id, Principal: "local"})
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

func accepted(turn string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_TurnAccepted{TurnAccepted: &heddlev1.TurnAccepted{
		Turn: &heddlev1.Turn{Id: turn}, Input: &heddlev1.UserMessage{Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: "do " + turn}}}},
	}}}
}

func started(turn string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_TurnStarted{TurnStarted: &heddlev1.TurnStarted{Turn: &heddlev1.Turn{Id: turn}}}}
}

func completed(turn string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_TurnCompleted{TurnCompleted: &heddlev1.TurnCompleted{
		Turn: &heddlev1.Turn{Id: turn, Status: heddlev1.TurnStatus_TURN_STATUS_COMPLETED},
	}}}
}

func message(id, text string) *heddlev1.Item {
	return &heddlev1.Item{Id: id, Content: &heddlev1.Item_AgentMessage{AgentMessage: &heddlev1.AgentMessage{Text: text}}}
}

func itemStarted(turn string, it *heddlev1.Item) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ItemStarted{ItemStarted: &heddlev1.ItemStarted{Item: it}}}
}

func itemCompleted(turn string, it *heddlev1.Item) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ItemCompleted{ItemCompleted: &heddlev1.ItemCompleted{Item: it}}}
}

func delta(turn, item, text string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ItemDelta{ItemDelta: &heddlev1.ItemDelta{
		ItemId: item, Delta: &heddlev1.ItemDelta_AgentText{AgentText: text},
	}}}
}

func intended(id string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: "t", Payload: &heddlev1.Event_ActionsIntended{ActionsIntended: &heddlev1.ActionsIntended{Actions: []*heddlev1.ActionIntent{{ActionId: id}}}}}
}

func resolved(id string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: "t", Payload: &heddlev1.Event_ActionsResolved{ActionsResolved: &heddlev1.ActionsResolved{ActionIds: []string{id}}}}
}

func wait(t *testing.T, p *eventlog.Pending) {
	t.Helper()
	if err := p.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// Twenty commands whose intents are awaited and whose results are not make one
// commit per intent: the results ride in the next one.
func TestOneCommitPerBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		l := open(t, s, eventlog.Config{})
		epoch := create(t, l, "a")
		before := s.Stats()["commits"]
		wait(t, l.Append("a", epoch, accepted("t")))
		l.Append("a", epoch, started("t"))
		for i := range 20 {
			id := fmt.Sprint("action", i)
			wait(t, l.Append("a", epoch, intended(id)))
			l.Append("a", epoch, resolved(id))
		}
		wait(t, l.Append("a", epoch, completed("t")))
		if got := s.Stats()["commits"] - before; got != 22 {
			t.Errorf("%d commits for 22 barriers", got)
		}
		synctest.Wait()
	})
}

func TestLazyCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		l := open(t, s, eventlog.Config{})
		epoch := create(t, l, "a")
		before := s.Stats()["commits"]
		for range 10 {
			l.Append("a", epoch, warning("w"))
		}
		time.Sleep(4 * time.Millisecond)
		synctest.Wait()
		if got := s.Stats()["commits"]; got != before {
			t.Errorf("%d commits before the lazy time", got-before)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := s.Stats()["commits"]; got != before+1 {
			t.Errorf("%d commits after the lazy time, want 1", got-before)
		}
	})
}

func warning(m string) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_WarningRaised{WarningRaised: &heddlev1.WarningRaised{Message: m}}}
}

// I4: what makes an append stale is a newer epoch.
func TestClaimFencesTheOldOwner(t *testing.T) {
	l := open(t, memstore.New(memstore.Config{}), eventlog.Config{})
	old := create(t, l, "a")
	queued := l.Append("a", old, warning("queued before the claim"))
	epoch, err := l.Claim(t.Context(), "a")
	if err != nil || epoch != old+1 {
		t.Fatalf("claim: epoch %d, error %v", epoch, err)
	}
	wait(t, queued)
	if err := l.Append("a", old, warning("late")).Wait(t.Context()); !errdefs.Is(err, errdefs.StaleEpoch) {
		t.Errorf("append of the old owner: %v, want StaleEpoch", err)
	}
	p := l.Append("a", epoch, warning("new"))
	wait(t, p)
	if p.FirstSeq() != 3 {
		t.Errorf("first seq %d, want 3", p.FirstSeq())
	}
	row, err := l.Store().Thread(t.Context(), "a")
	if err != nil || row.GetEpoch() != epoch || row.GetLastSeq() != 3 {
		t.Errorf("row %v, error %v", row, err)
	}
}

func TestRefusedAppendChangesNothing(t *testing.T) {
	l := open(t, memstore.New(memstore.Config{}), eventlog.Config{})
	epoch := create(t, l, "a")
	p := l.Append("a", epoch, accepted("t"), started("t"), completed("other"))
	if err := p.Wait(t.Context()); err == nil || p.Err() == nil {
		t.Fatal("the end of an unknown turn was accepted")
	}
	p = l.Append("a", epoch, accepted("t"), started("t"))
	wait(t, p)
	if p.FirstSeq() != 2 {
		t.Errorf("first seq %d, want 2: the refused append took seqs", p.FirstSeq())
	}
}

// I1: every watcher sees each event once, in order, whatever seq it begins at.
func TestWatchSeesEverythingInOrder(t *testing.T) {
	l := open(t, memstore.New(memstore.Config{}), eventlog.Config{})
	epoch := create(t, l, "a")
	const n = 5000
	go func() {
		for i := range n {
			l.Append("a", epoch, warning(fmt.Sprint(i)))
		}
	}()
	for _, after := range []uint64{0, 1, 700} {
		w := l.Watch("a", after)
		next := after + 1
		for next <= n+1 {
			events, head, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range events {
				if ev.GetSeq() != next {
					t.Fatalf("seq %d, want %d", ev.GetSeq(), next)
				}
				next++
			}
			if head < next-1 {
				t.Fatalf("head %d behind seq %d", head, next-1)
			}
		}
		w.Close()
	}
}

func TestWatchEndsWithTheThread(t *testing.T) {
	l := open(t, memstore.New(memstore.Config{}), eventlog.Config{})
	create(t, l, "a")
	w := l.Watch("a", 1)
	defer w.Close()
	errs := make(chan error)
	go func() {
		_, _, err := w.Next(context.Background())
		errs <- err
	}()
	if err := l.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := <-errs; !errdefs.Is(err, errdefs.ThreadNotFound) {
		t.Errorf("watch of a deleted thread: %v", err)
	}
	// What was committed before the deletion is shown before the end.
	epoch := create(t, l, "b")
	late := l.Watch("b", 1)
	defer late.Close()
	wait(t, l.Append("b", epoch, accepted("t1"), started("t1"), completed("t1")))
	if err := l.Delete(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if events, head, err := late.Next(t.Context()); err != nil || len(events) != 3 || head != 4 || events[2].GetTurnCompleted() == nil {
		t.Errorf("before the end: %v, %d, %v", events, head, err)
	}
	if _, _, err := late.Next(t.Context()); !errdefs.Is(err, errdefs.ThreadNotFound) {
		t.Errorf("then: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.Watch("a", 0).Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("watch with an ended context: %v", err)
	}
}
