package agent

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/approval"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// defaultApprovalTimeout is the deadline of a question where config sets none.
const defaultApprovalTimeout = time.Hour

// newApproval makes a question about an item's action; the caller sets its
// subject.
func (t *turn) newApproval(item *heddlev1.Item, reason string, risk heddlev1.Risk, hash []byte) (*heddlev1.Approval, error) {
	id, err := t.agent.store.NextRequestID(t.ctx, t.lt.id)
	if err != nil {
		return nil, err
	}
	timeout := t.rt.ApprovalTimeout
	if timeout <= 0 {
		timeout = defaultApprovalTimeout
	}
	now := t.agent.now()
	return &heddlev1.Approval{
		Id: newID(), RequestId: id, ThreadId: t.lt.id, TurnId: t.id(), ItemId: item.GetId(), Principal: t.lt.principal,
		Reason: reason, Risk: risk, ActionHash: hash, RequestedAtMs: now, ExpiresAtMs: now + timeout.Milliseconds(),
		DefaultDecision: heddlev1.Decision_DECISION_DECLINE, ItemStartedAtMs: item.GetStartedAtMs(),
	}, nil
}

// open registers a question; an acceptance makes the intents durable in the same
// commit.
func (t *turn) open(a *heddlev1.Approval, intents ...*heddlev1.ActionIntent) *approval.Pending {
	if a.GetReviewer() == "" {
		a.Reviewer = reviewedBy(t.settings(), a)
	}
	return t.agent.cfg.Broker.Open(approval.Question{
		Approval: a,
		Append:   func(events ...*heddlev1.Event) approval.Barrier { return t.lt.append(events...) },
		With: func(decided *heddlev1.Approval) []*heddlev1.Event {
			if !accepts(decided.GetDecision()) || len(intents) == 0 {
				return nil
			}
			return []*heddlev1.Event{actionsIntended(decided.GetTurnId(), intents...)}
		},
	})
}

func accepts(d heddlev1.Decision) bool {
	switch d {
	case heddlev1.Decision_DECISION_ACCEPT, heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION, heddlev1.Decision_DECISION_ACCEPT_WITH_AMENDMENT:
		return true
	}
	return false
}

// awaitDecision waits for the decision. ok is false when the turn was
// interrupted first; the question is durably cancelled then.
func (t *turn) awaitDecision(ctx context.Context, p *approval.Pending) (a *heddlev1.Approval, amendment []string, ok bool) {
	if p.Approval().GetReviewer() != "" {
		review, stop := context.WithCancel(ctx)
		defer stop()
		judged := make(chan struct{})
		t.agent.wg.Go(func() { defer close(judged); t.judge(review, p) })
		// A denial that stops the turn has done so before the turn goes on.
		defer func() {
			if a.GetDecidedBy() == approval.ByReviewer {
				<-judged
			}
		}()
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		if suspended(ctx) {
			p.Suspend()
			return nil, nil, false
		}
		if _, won, _ := p.Decide(ctx, heddlev1.Decision_DECISION_CANCEL, nil, approval.ByInterrupt); won {
			return nil, nil, false
		}
	}
	a, amendment, err := p.Decided()
	if err != nil {
		// A decision that is not durable is not acted on.
		t.agent.cfg.Logger.Error("approval not recorded", "thread", t.lt.id, "approval", a.GetId(), "error", err)
		a = proto.CloneOf(a)
		a.Decision = heddlev1.Decision_DECISION_UNUSABLE
	}
	return a, amendment, ctx.Err() == nil
}
