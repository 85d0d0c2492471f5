package approval

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type recorder struct {
	mu     sync.Mutex
	events []*heddlev1.Event
	err    error
}

func (r *recorder) append(events ...*heddlev1.Event) Barrier {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, events...)
	return r
}

func (r *recorder) Wait(context.Context) error { return r.err }

func question(r *recorder, expires time.Time) Question {
	return Question{
		Approval: &heddlev1.Approval{Id: "a", ThreadId: "t", TurnId: "u", ExpiresAtMs: expires.UnixMilli(), DefaultDecision: heddlev1.Decision_DECISION_DECLINE},
		Append:   r.append,
		With: func(a *heddlev1.Approval) []*heddlev1.Event {
			if a.GetDecision() != heddlev1.Decision_DECISION_ACCEPT {
				return nil
			}
			return []*heddlev1.Event{{Payload: &heddlev1.Event_ActionsIntended{ActionsIntended: &heddlev1.ActionsIntended{}}}}
		},
	}
}

// P8: many answers at once, one wins, all see the same decision.
func TestP8FirstAnswerWins(t *testing.T) {
	rec := &recorder{}
	b := NewBroker(nil)
	p := b.Open(question(rec, time.Now().Add(time.Hour)))
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 16 {
		wg.Go(func() {
			d := heddlev1.Decision_DECISION_ACCEPT
			if i%2 == 0 {
				d = heddlev1.Decision_DECISION_DECLINE
			}
			a, ok, err := p.Decide(t.Context(), d, nil, ByClient)
			if err != nil || a.GetDecision() == heddlev1.Decision_DECISION_UNSPECIFIED {
				t.Error(a, err)
			}
			if ok {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	<-p.Done()
	a, _, err := p.Decided()
	if won != 1 || err != nil || a.GetDecidedBy() != ByClient || a.GetDecidedAtMs() == 0 {
		t.Fatal(won, a, err)
	}
	want := 1
	if a.GetDecision() == heddlev1.Decision_DECISION_ACCEPT {
		want = 2 // the intent rides with the acceptance
	}
	if len(rec.events) != want || b.Len() != 0 {
		t.Fatalf("%d events, %d pending", len(rec.events), b.Len())
	}
}

// P9: nobody answers; the stated default holds at the deadline, not before.
func TestP9Deadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBroker(nil)
		p := b.Open(question(&recorder{}, time.Now().Add(time.Minute)))
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		select {
		case <-p.Done():
			t.Fatal("decided early")
		default:
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		<-p.Done()
		if a, _, _ := p.Decided(); a.GetDecision() != heddlev1.Decision_DECISION_DECLINE || a.GetDecidedBy() != ByDeadline {
			t.Fatal(a)
		}
	})
}

func TestUndurableDecisionIsAnError(t *testing.T) {
	rec := &recorder{err: errors.New("disk full")}
	p := NewBroker(nil).Open(question(rec, time.Now().Add(time.Hour)))
	if _, _, err := p.Decide(t.Context(), heddlev1.Decision_DECISION_ACCEPT, nil, ByClient); err == nil {
		t.Fatal("no error")
	}
	if _, _, err := p.Decided(); err == nil {
		t.Fatal("the waiting turn is told of a decision that is not durable")
	}
}

func TestSuspendKeepsTheQuestionPending(t *testing.T) {
	rec := &recorder{}
	b := NewBroker(nil)
	p := b.Open(question(rec, time.Now().Add(time.Hour)))
	p.Suspend()
	if len(rec.events) != 0 || b.Len() != 0 {
		t.Fatal(rec.events, b.Len())
	}
	select {
	case <-p.Done():
		t.Fatal("decided")
	default:
	}
}
