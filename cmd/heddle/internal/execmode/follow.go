package execmode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// follow shows the turn to its end and ends what it left running.
func (r *runner) follow(ctx context.Context, turn *heddlev1.Turn) (Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events := make(chan *heddlev1.Event, 64)
	failed := make(chan error, 1)
	go func() { failed <- r.watch(ctx, r.thread.GetLastSeq(), events) }()

	var deadline <-chan time.Time // set once the turn is asked to end or has ended
	interrupted := false
	for {
		select {
		case ev := <-events:
			if ev.GetTurnId() != turn.GetId() && ev.GetTurnId() != "" {
				continue
			}
			if done := r.state.apply(ev); done {
				turn = ev.GetTurnCompleted().GetTurn()
				if err := r.endProcesses(ctx); err != nil {
					r.view.warning(fmt.Sprintf("processes that the turn left running could not be ended: %v", cause(ctx, err)))
				}
				deadline = time.After(settleLimit)
			} else {
				r.view.event(ev)
				r.decline(ctx, ev)
			}
			if r.state.ended && len(r.state.open) == 0 {
				return r.state.outcome(turn), nil
			}
		case err := <-failed:
			return Outcome{}, cause(ctx, err)
		case <-r.opts.Interrupt:
			if interrupted {
				return Outcome{}, errInterrupted
			}
			interrupted = true
			if !r.state.ended {
				deadline = time.After(interruptLimit)
			}
			go func() {
				_, err := r.turns.InterruptTurn(ctx, &heddlev1.InterruptTurnRequest{ThreadId: r.thread.GetId(), TurnId: turn.GetId()})
				if err != nil && lost(err) {
					cancel(errInterrupted)
				}
			}()
		case <-deadline:
			if !r.state.ended {
				return Outcome{}, errInterrupted
			}
			for id := range r.state.open {
				r.view.warning(fmt.Sprintf("the end of item %s was not reported", id))
			}
			return r.state.outcome(turn), nil
		}
	}
}

// endProcesses ends what outlived the turn; its items complete in the log.
func (r *runner) endProcesses(ctx context.Context) error {
	_, err := retry(ctx, func() (*heddlev1.TerminateBackgroundTerminalResponse, error) {
		return r.threads.TerminateBackgroundTerminal(ctx, &heddlev1.TerminateBackgroundTerminalRequest{ThreadId: r.thread.GetId()})
	})
	return err
}

// decline answers a question at once: nobody is here who could.
func (r *runner) decline(ctx context.Context, ev *heddlev1.Event) {
	approval := ev.GetApprovalRequested().GetApproval()
	if approval == nil || approval.GetReviewer() != "" {
		return
	}
	r.view.warning("an action needs an approval that nobody can give here; it is declined")
	_, err := heddlev1.NewApprovalServiceClient(r.conn).ResolveApproval(ctx, &heddlev1.ResolveApprovalRequest{
		ThreadId: r.thread.GetId(), ApprovalId: approval.GetId(), Decision: heddlev1.Decision_DECISION_DECLINE,
	})
	if err != nil {
		r.view.warning(fmt.Sprintf("decline approval: %v", cause(ctx, err)))
	}
}

// watcher passes on the events of a thread; after is the seq of the last one.
type watcher struct {
	client   heddlev1.EventServiceClient
	thread   string
	after    uint64
	lastSeen time.Time
	out      chan<- *heddlev1.Event
}

// watch passes on the thread's events after a seq, across losses of the control
// plane. It returns when ctx ends or the log cannot be read.
func (r *runner) watch(ctx context.Context, after uint64, out chan<- *heddlev1.Event) error {
	w := &watcher{client: heddlev1.NewEventServiceClient(r.conn), thread: r.thread.GetId(), after: after, lastSeen: time.Now(), out: out}
	for {
		err := w.stream(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// A stream that ends in order is a control plane that stops.
		if !lost(err) && !errors.Is(err, io.EOF) || time.Since(w.lastSeen) > lossLimit {
			return fmt.Errorf("read the thread's events: %w", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retryPause):
		}
	}
}

// stream passes on what one stream brings, and returns why it ended.
func (w *watcher) stream(ctx context.Context) error {
	stream, err := w.client.Watch(ctx, &heddlev1.WatchRequest{ThreadId: w.thread, After: w.after})
	if err != nil {
		return err
	}
	for {
		batch, err := stream.Recv()
		if err != nil {
			return err
		}
		w.lastSeen = time.Now()
		for _, ev := range batch.GetEvents() {
			select {
			case w.out <- ev:
				w.after = max(ev.GetSeq(), ev.GetRangeCompacted().GetLastSeq())
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}
