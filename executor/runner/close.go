package runner

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/proto/failpoint"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// bound replaces a result that would not fit into one message.
func bound(res *executorv1.ActionResult) {
	if n := proto.Size(res); n > maxResult {
		res.Outcome = &executorv1.ActionResult_Error{Error: &heddlev1.ActionError{
			Code: codeIO, Message: "the result is too large to be sent",
			Fix: "make the patch or the part of the file smaller"}}
	}
}

// Close ends every lease with everything under it, tells the control plane while
// a session is attached, and returns when no goroutine is left. It waits for
// processes to be gone until ctx ends.
func (r *Runner) Close(ctx context.Context) error {
	failpoint.Hit("executor/stopping")
	r.mu.Lock()
	for _, l := range r.leases {
		r.endLocked(l, endedf(codeExecutorLost, "the executor was shut down"))
	}
	r.mu.Unlock()
	err := r.settle(ctx)
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	close(r.stop)
	done := make(chan struct{})
	go func() { r.work.Wait(); close(done) }()
	select {
	case <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// settle waits until nothing runs and results had a moment to go out.
func (r *Runner) settle(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var quiet time.Time
	for {
		r.mu.Lock()
		running, left := r.running+len(r.ending), 0
		if r.link != nil {
			left = len(r.actions)
		}
		r.mu.Unlock()
		if running == 0 {
			if left == 0 {
				return nil
			}
			if quiet.IsZero() {
				quiet = time.Now()
			} else if time.Since(quiet) > 2*deliverGrace {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
