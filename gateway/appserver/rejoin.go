package appserver

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// errReached ends a stream that has come to the seq it was read for.
var errReached = errors.New("reached")

// advance moves a thread's row and its pending approvals on to a later seq, so
// that an answer, which shows history at that seq, and the subscription, which
// begins after it, leave nothing out and show nothing twice. The row's name,
// goal and the like stay as they were read: their notifications say the whole,
// and come again.
func (s *Server) advance(ctx context.Context, t *heddlev1.Thread, pending []*heddlev1.Approval, to uint64) (*heddlev1.Thread, []*heddlev1.Approval, error) {
	if to <= t.GetLastSeq() {
		return t, pending, nil
	}
	tr := newTranslator(t, pending)
	t, pending = proto.CloneOf(t), slices.Clone(pending)
	after := t.GetLastSeq()
	err := watch(ctx, s.session, t.GetId(), after, func(events []*heddlev1.Event) error {
		for _, e := range events {
			if e.GetSeq() > to {
				return errReached
			}
			if a := e.GetApprovalRequested().GetApproval(); a != nil {
				pending = append(pending, a)
			}
			if a := e.GetApprovalResolved().GetApproval(); a != nil {
				pending = without(pending, func(q *heddlev1.Approval) bool { return q.GetId() == a.GetId() })
			}
			if done := e.GetTurnCompleted().GetTurn(); done != nil {
				pending = without(pending, func(q *heddlev1.Approval) bool { return q.GetTurnId() == done.GetId() })
			}
			if err := tr.silently(ctx, e); err != nil {
				return err
			}
			if lastSeq([]*heddlev1.Event{e}) >= to {
				return errReached
			}
		}
		return nil
	})
	if !errors.Is(err, errReached) {
		return nil, nil, err
	}
	t.LastSeq, t.State, t.ReadState = to, tr.state, tr.unread
	return t, pending, nil
}

func without(pending []*heddlev1.Approval, drop func(*heddlev1.Approval) bool) []*heddlev1.Approval {
	return slices.DeleteFunc(pending, drop)
}

// silently follows an event without telling anybody.
func (tr *translator) silently(ctx context.Context, e *heddlev1.Event) error {
	if e.GetOutputAdvanced() != nil {
		return nil
	}
	return tr.event(ctx, e, func(note) error { return nil })
}
