package approval

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/proto/errdefs"
	"github.com/heddle-dev/heddle/proto/failpoint"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Who decided, as recorded in Approval.decided_by.
const (
	ByClient    = "client"
	ByDeadline  = "deadline"
	ByInterrupt = "interrupt"
	ByReviewer  = "reviewer"
)

// Barrier is an append that can be waited for until it is durable.
type Barrier interface {
	Wait(ctx context.Context) error
}

// Question is one approval with the way its decision is recorded.
type Question struct {
	Approval *heddlev1.Approval
	// Append puts events into the thread's log under the owner's epoch.
	Append func(events ...*heddlev1.Event) Barrier
	// With returns events that become durable in the same commit as the
	// decision (the intent of the accepted action); may be nil.
	With func(*heddlev1.Approval) []*heddlev1.Event
}

// Broker holds the pending questions of one control plane.
type Broker struct {
	clock func() time.Time

	mu      sync.Mutex
	pending map[string]*Pending
}

// NewBroker returns an empty Broker; clock nil means time.Now.
func NewBroker(clock func() time.Time) *Broker {
	if clock == nil {
		clock = time.Now
	}
	return &Broker{clock: clock, pending: map[string]*Pending{}}
}

// Pending is one question that waits for its decision.
type Pending struct {
	broker *Broker
	q      Question
	timer  *time.Timer

	// decide serialises decisions; the first one sets decided.
	decide  sync.Mutex
	decided bool

	done      chan struct{}
	approval  *heddlev1.Approval
	amendment []string
	err       error
}

// Open registers a question. Its deadline starts to count at once; the caller
// appends ApprovalRequested right after, so that a decision always follows it
// in the log.
func (b *Broker) Open(q Question) *Pending {
	p := &Pending{broker: b, q: q, done: make(chan struct{}), approval: proto.CloneOf(q.Approval)}
	b.mu.Lock()
	b.pending[pendingKey(q.Approval.GetThreadId(), q.Approval.GetId())] = p
	b.mu.Unlock()
	if at := q.Approval.GetExpiresAtMs(); at > 0 {
		wait := max(0, time.UnixMilli(at).Sub(b.clock()))
		p.decide.Lock()
		defer p.decide.Unlock()
		p.timer = time.AfterFunc(wait, func() {
			// A store that fails is reported to the waiting turn through Done.
			_, _, _ = p.Decide(context.Background(), q.Approval.GetDefaultDecision(), nil, ByDeadline)
		})
	}
	return p
}

// Lookup finds a pending question.
func (b *Broker) Lookup(threadID, approvalID string) (*Pending, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.pending[pendingKey(threadID, approvalID)]
	return p, ok
}

// Len is the number of pending questions.
func (b *Broker) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending)
}

// Decide records a decision and returns the approval as decided. won is false
// when another decision came first; that is not an error. The decision is
// durable on return.
func (p *Pending) Decide(ctx context.Context, d heddlev1.Decision, amendment []string, by string) (a *heddlev1.Approval, won bool, err error) {
	return p.Answer(ctx, d, amendment, nil, by)
}

// Answer is Decide for a question that has an answer of its own; answer is nil
// where there is none.
func (p *Pending) Answer(ctx context.Context, d heddlev1.Decision, amendment []string, answer *structpb.Value, by string) (a *heddlev1.Approval, won bool, err error) {
	return p.settle(ctx, d, amendment, by, func(a *heddlev1.Approval) { a.Answer = answer })
}

// Judge is Decide for the reviewer, whose verdict is recorded with the decision.
func (p *Pending) Judge(ctx context.Context, d heddlev1.Decision, v *heddlev1.ReviewVerdict) (a *heddlev1.Approval, won bool, err error) {
	return p.settle(ctx, d, nil, ByReviewer, func(a *heddlev1.Approval) { a.Review = v })
}

func (p *Pending) settle(ctx context.Context, d heddlev1.Decision, amendment []string, by string, note func(*heddlev1.Approval)) (a *heddlev1.Approval, won bool, err error) {
	p.decide.Lock()
	defer p.decide.Unlock()
	if p.decided {
		return p.approval, false, p.err
	}
	p.decided = true
	if p.timer != nil {
		p.timer.Stop()
	}
	if d == heddlev1.Decision_DECISION_UNSPECIFIED {
		d = heddlev1.Decision_DECISION_UNUSABLE
	}
	decided := proto.CloneOf(p.approval)
	decided.Decision = d
	decided.DecidedBy = by
	note(decided)
	decided.DecidedAtMs = p.broker.clock().UnixMilli()
	events := []*heddlev1.Event{{TurnId: decided.GetTurnId(), Payload: &heddlev1.Event_ApprovalResolved{
		ApprovalResolved: &heddlev1.ApprovalResolved{Approval: proto.CloneOf(decided)}}}}
	if p.q.With != nil {
		events = append(events, p.q.With(decided)...)
	}
	// The events are in the log's queue whatever becomes of the caller.
	if err := p.q.Append(events...).Wait(context.WithoutCancel(ctx)); err != nil {
		p.err = errdefs.New(errdefs.StoreUnavailable, "record the decision: %w", err)
	}
	failpoint.Hit("approval/decided")
	p.approval, p.amendment = decided, amendment
	p.broker.forget(p)
	close(p.done)
	return decided, true, p.err
}

// Approval is the question as it was asked; nil for no question.
func (p *Pending) Approval() *heddlev1.Approval {
	if p == nil {
		return nil
	}
	return p.q.Approval
}

// Done is closed when a decision was recorded.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Decided returns the decision after Done: the approval, the amendment that the
// client chose, and an error when the decision could not be made durable.
func (p *Pending) Decided() (*heddlev1.Approval, []string, error) {
	return p.approval, p.amendment, p.err
}

// Suspend takes the question out of the Broker without a decision, for the
// orderly stop of a control plane; it stays pending in the store.
func (p *Pending) Suspend() {
	p.decide.Lock()
	defer p.decide.Unlock()
	if p.decided {
		return
	}
	p.decided = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.broker.forget(p)
}

func (b *Broker) forget(p *Pending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pending, pendingKey(p.q.Approval.GetThreadId(), p.q.Approval.GetId()))
}

func pendingKey(threadID, approvalID string) string { return threadID + "/" + approvalID }
