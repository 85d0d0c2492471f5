package agent

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Kinds of turns that are not asked for by a person's message.
const (
	kindReview = "review"
	kindShell  = "shell"
	kindGoal   = "goal"
)

// steerable reports whether a turn of a kind takes input while it runs.
func steerable(kind string) bool { return kind != kindCompact && kind != kindReview }

// Compact starts a turn that replaces the history by a summary.
func (a *Agent) Compact(ctx context.Context, r TurnRequest) (*heddlev1.Turn, error) {
	r.kind = kindCompact
	return a.startTask(ctx, r)
}

// Review starts a turn in which a reviewer looks at changes.
func (a *Agent) Review(ctx context.Context, r TurnRequest, task *heddlev1.ReviewTask) (*heddlev1.Turn, error) {
	r.kind, r.task = kindReview, &heddlev1.TurnTask{Task: &heddlev1.TurnTask_Review{Review: task}}
	return a.startTask(ctx, r)
}

// startTask starts a turn of its own kind. It fails with Busy while another turn
// runs.
func (a *Agent) startTask(ctx context.Context, r TurnRequest) (*heddlev1.Turn, error) {
	lt, err := a.acquired(ctx, r.ThreadID)
	if err != nil {
		return nil, err
	}
	defer lt.release()
	if err := lt.idle(ctx); err != nil {
		return nil, err
	}
	ans, err := a.begin(ctx, lt, r)
	if err != nil {
		return nil, err
	}
	return ans.Turn, nil
}

// idle waits for a turn that is ending and refuses where one goes on.
func (lt *live) idle(ctx context.Context) error {
	t := lt.current()
	if t == nil {
		return nil
	}
	if !t.ending() {
		return errdefs.New(errdefs.Busy, "a turn is running in thread %s", lt.id).With("turn_id", t.id())
	}
	return t.awaitEnd(ctx)
}

// taskInput is the input a turn of the kind begins with; nil where it has none
// of its own.
func taskInput(r TurnRequest) *heddlev1.UserMessage {
	if r.kind != "" {
		return nil
	}
	if r.Input == nil {
		return &heddlev1.UserMessage{}
	}
	return r.Input
}

// workOnTask does what is special about the turn's kind. ended is true when
// nothing is left to do for the model.
func (t *turn) workOnTask() (ended bool, err error) {
	switch t.row.GetKind() {
	case kindCompact:
		return true, t.compact()
	case kindReview:
		t.enterReview()
	case kindShell:
		if err := t.shellTurn(); err != nil {
			return false, err
		}
		inputs, closed := t.takeInputs(true)
		for _, in := range inputs {
			t.takeInput(in)
		}
		return closed, nil
	case kindGoal:
		return false, t.takeGoal()
	}
	return false, nil
}

// completedItem returns the two events of an item that is whole from the start.
func (t *turn) completedItem(item *heddlev1.Item) []*heddlev1.Event {
	now := t.agent.now()
	item.TurnId, item.StartedAtMs = t.id(), now
	if item.GetId() == "" {
		item.Id = newID()
	}
	begun := proto.CloneOf(item)
	begun.Status = heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS
	item.Status, item.CompletedAtMs = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, now
	return []*heddlev1.Event{itemStarted(begun), itemCompleted(item)}
}
