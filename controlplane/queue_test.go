package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (r *rig) queues() heddlev1.QueueServiceClient { return heddlev1.NewQueueServiceClient(r.conn) }

func (r *rig) enqueue(ctx context.Context, thread, text string) string {
	r.t.Helper()
	resp, err := r.queues().AddQueued(ctx, &heddlev1.AddQueuedRequest{ThreadId: thread, Input: say(text)})
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.GetMessage().GetId()
}

// queued shows the texts that wait, and whether the queue is held.
func (r *rig) queued(ctx context.Context, thread string) string {
	r.t.Helper()
	resp, err := r.queues().ListQueued(ctx, &heddlev1.ListQueuedRequest{ThreadId: thread})
	if err != nil {
		r.t.Fatal(err)
	}
	out := ""
	for _, m := range resp.GetQueue().GetMessages() {
		out += m.GetInput().GetParts()[0].GetText() + " "
	}
	return out + fmt.Sprint(resp.GetQueue().GetHeld())
}

func refusal(t *testing.T, what string, err error, text string) {
	t.Helper()
	e := errdefs.From(err)
	if e == nil || !strings.Contains(e.Message, text) {
		t.Errorf("%s: got %v, want %q", what, err, text)
	}
}

// What waits is taken up in its order, after a completed turn and after a failed
// one; each with its own turn.
func TestQueueFollowsTurns(t *testing.T) {
	r, _ := durable(t)
	open := make(chan struct{})
	r.model.script(gated(open, speak("m1", "one")), speak("m2", "two"))
	ctx, th := r.thread(nil)
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "first")
	r.enqueue(ctx, th.GetId(), "a")
	b := r.enqueue(ctx, th.GetId(), "b")
	c := r.enqueue(ctx, th.GetId(), "c")
	d := r.enqueue(ctx, th.GetId(), "d")
	if _, err := r.queues().ReorderQueued(ctx, &heddlev1.ReorderQueuedRequest{ThreadId: th.GetId(), Ids: []string{c, b}}); err == nil {
		t.Error("an order without some messages was taken")
	}
	resp, err := r.queues().DeleteQueued(ctx, &heddlev1.DeleteQueuedRequest{ThreadId: th.GetId(), Id: d})
	if err != nil || !resp.GetDeleted() {
		t.Fatal(resp, err)
	}
	if _, err := r.queues().UpdateQueued(ctx, &heddlev1.UpdateQueuedRequest{ThreadId: th.GetId(), Id: b, Input: say("b2")}); err != nil {
		t.Fatal(err)
	}
	if got := r.queued(ctx, th.GetId()); got != "a b2 c false" {
		t.Fatal(got)
	}
	_, err = r.queues().StartQueued(ctx, &heddlev1.StartQueuedRequest{ThreadId: th.GetId()})
	refusal(t, "start while a turn runs", err, "already has an active or pending turn")
	close(open)
	// The script is over with the third turn, so that it fails and the fourth does too.
	var ends []string
	for range 4 {
		ends = append(ends, f.turnEnd().GetStatus().String())
	}
	if got := strings.Join(ends, " "); got != "TURN_STATUS_COMPLETED TURN_STATUS_COMPLETED TURN_STATUS_FAILED TURN_STATUS_FAILED" {
		t.Error(got)
	}
	var asked []string
	for _, ev := range f.seen {
		if it := ev.GetItemCompleted().GetItem(); it.GetUserMessage() != nil {
			asked = append(asked, it.GetUserMessage().GetParts()[0].GetText())
		}
	}
	if got := strings.Join(asked, " "); got != "first a b2 c" {
		t.Error(got)
	}
	if got := r.queued(ctx, th.GetId()); got != "false" {
		t.Error(got)
	}
	r.model.script(speak("m5", "five"))
	r.enqueue(ctx, th.GetId(), "at once")
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Error(end)
	}
}

// An interruption holds the queue until a turn begins, also over a restart.
func TestInterruptHoldsTheQueue(t *testing.T) {
	r, restart := durable(t)
	r.model.script(hang("m1", "par"))
	ctx, th := r.thread(nil)
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "first")
	r.enqueue(ctx, th.GetId(), "a")
	b := r.enqueue(ctx, th.GetId(), "b")
	r.interrupt(ctx, th.GetId(), turn.GetId())
	f.turnEnd()
	r.enqueue(ctx, th.GetId(), "c")
	if got := r.queued(ctx, th.GetId()); got != "a b c true" {
		t.Fatal(got)
	}
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	_, err := r.queues().StartQueued(ctx, &heddlev1.StartQueuedRequest{ThreadId: th.GetId()})
	refusal(t, "start in a thread that is not loaded", err, "resume the thread")
	if _, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Fatal(err)
	}
	if got := r.queued(ctx, th.GetId()); got != "a b c true" {
		t.Fatal(got)
	}
	r.model.script(speak("m2", "b"), speak("m3", "a"), speak("m4", "c"))
	f = r.follow(th.GetId(), r.row(th.GetId()).GetLastSeq())
	started, err := r.queues().StartQueued(ctx, &heddlev1.StartQueuedRequest{ThreadId: th.GetId(), Id: b})
	if err != nil {
		t.Fatal(err)
	}
	if end := f.turnEnd(); end.GetId() != started.GetTurn().GetId() {
		t.Error(end)
	}
	f.turnEnd()
	f.turnEnd()
	if got := r.queued(ctx, th.GetId()); got != "false" {
		t.Error(got)
	}
	wantShown(t, r.last(), []string{"first", "c"})
	_, err = r.queues().StartQueued(ctx, &heddlev1.StartQueuedRequest{ThreadId: th.GetId()})
	refusal(t, "start of nothing", err, "queue is empty")
}

// What is queued in a thread that nobody holds waits for somebody who loads it,
// or, where its turn needs no client, for the next start.
func TestQueueOfAnUnloadedThread(t *testing.T) {
	r, restart := durable(t)
	ctx, th := r.thread(nil)
	if _, err := r.threads.UnloadThread(ctx, &heddlev1.UnloadThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Fatal(err)
	}
	f := r.follow(th.GetId(), 1)
	r.enqueue(ctx, th.GetId(), "a")
	if got := r.queued(ctx, th.GetId()); got != "a false" {
		t.Fatal(got)
	}
	r.model.script(speak("m1", "one"))
	if _, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Fatal(err)
	}
	f.turnEnd()
	if _, err := r.threads.UnloadThread(ctx, &heddlev1.UnloadThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Fatal(err)
	}
	r.enqueue(context.Background(), th.GetId(), "b")
	seq := r.row(th.GetId()).GetLastSeq()
	r.model.script(speak("m2", "two"))
	restart()
	f = r.follow(th.GetId(), seq)
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Error(end)
	}
}

// What a person queued comes before the next turn of an active goal.
func TestQueueBeforeGoal(t *testing.T) {
	r, _ := durable(t)
	open := make(chan struct{})
	r.model.script(gated(open, speak("m1", "one")), speak("m2", "two"), speak("m3", "three"))
	ctx, th := r.thread(nil)
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "first")
	if _, err := r.threads.SetGoal(ctx, &heddlev1.SetGoalRequest{ThreadId: th.GetId(), Objective: "win"}); err != nil {
		t.Fatal(err)
	}
	r.enqueue(ctx, th.GetId(), "a")
	close(open)
	var kinds []string
	for range 3 {
		kinds = append(kinds, f.turnEnd().GetKind())
	}
	if got := strings.Join(kinds, " "); got != "regular regular goal" {
		t.Error(got)
	}
}

// The queue stays with an archived thread; a fork begins without one.
func TestQueueOfArchivesAndForks(t *testing.T) {
	r, _ := durable(t)
	r.model.script(hang("m1", "par"))
	ctx, th := r.thread(nil)
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "first")
	f.until(func(e *heddlev1.Event) bool { return e.GetItemDelta() != nil })
	r.enqueue(ctx, th.GetId(), "a")
	fork, err := r.threads.ForkThread(ctx, &heddlev1.ForkThreadRequest{ThreadId: th.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.queued(ctx, fork.GetThread().GetId()); got != "false" {
		t.Error(got)
	}
	if _, err := r.threads.ArchiveThread(ctx, &heddlev1.ArchiveThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Fatal(err)
	}
	_, err = r.queues().AddQueued(ctx, &heddlev1.AddQueuedRequest{ThreadId: th.GetId(), Input: say("b")})
	if !errdefs.Is(err, errdefs.ThreadArchived) {
		t.Error(err)
	}
	if _, err := r.threads.UnarchiveThread(ctx, &heddlev1.UnarchiveThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Fatal(err)
	}
	if got := r.queued(ctx, th.GetId()); got != "a true" {
		t.Error(got)
	}
}

func TestQueueIsBounded(t *testing.T) {
	r := newRig(t)
	r.model.script(hang("m1", "par"))
	ctx, th := r.thread(nil)
	r.startTurn(ctx, th.GetId(), "first")
	add := func(m *heddlev1.UserMessage, meta map[string]string) error {
		_, err := r.queues().AddQueued(ctx, &heddlev1.AddQueuedRequest{ThreadId: th.GetId(), Input: m, ClientMetadata: meta})
		return err
	}
	refusal(t, "no input", add(&heddlev1.UserMessage{}, nil), "only user input")
	refusal(t, "metadata", add(say("x"), map[string]string{"k": strings.Repeat("v", 17<<10)}), "client metadata must not exceed")
	big := say(strings.Repeat("x", 1<<20))
	for range 3 {
		if err := add(big, nil); err != nil {
			t.Fatal(err)
		}
	}
	refusal(t, "bytes", add(big, nil), "queue cannot hold more than")
	for range 97 {
		if err := add(say("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	refusal(t, "messages", add(say("x"), nil), "queue cannot contain more than 100 submissions")
	_, err := r.queues().UpdateQueued(ctx, &heddlev1.UpdateQueuedRequest{ThreadId: th.GetId(), Id: "nope", Input: say("x")})
	refusal(t, "unknown", err, "queued submission not found: nope")
	eph, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.queues().AddQueued(ctx, &heddlev1.AddQueuedRequest{ThreadId: eph.GetThread().GetId(), Input: say("x")})
	refusal(t, "ephemeral", err, "ephemeral thread does not support queued submissions")
}
