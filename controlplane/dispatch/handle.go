package dispatch

import (
	"context"
	"fmt"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// Handle follows one action. Its methods are safe for concurrent use.
type Handle struct {
	d *Dispatcher
	a *action
}

// ActionID is the idempotency key of the action.
func (h *Handle) ActionID() string { return h.a.id }

// Started is closed when the executor reports the start, and at the latest when
// the action ends.
func (h *Handle) Started() <-chan struct{} { return h.a.started }

// Done is closed when Result has something to return.
func (h *Handle) Done() <-chan struct{} { return h.a.done }

// PID of the process on the executor's host; 0 before Started.
func (h *Handle) PID() int64 {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return h.a.pid
}

// ExecutorID names the executor; empty while the action waits for one.
func (h *Handle) ExecutorID() string {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return h.a.executorID
}

// Epoch of the lease the action runs under; 0 while it waits.
func (h *Handle) Epoch() uint64 {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return h.a.epoch
}

// Result waits for the end of the action. What the executor says, an ActionError
// outcome included, is a result; the error is one of ours: ExecutorLost,
// NoExecutor, UnknownOutcome, ErrStopped, the Output function's own error, or
// that of ctx. All output was handed to Output before it returns.
func (h *Handle) Result(ctx context.Context) (*executorv1.ActionResult, error) {
	select {
	case <-h.a.done:
		return h.a.result, h.a.err
	default:
	}
	select {
	case <-h.a.done:
		return h.a.result, h.a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Ack tells the executor that the result is durable here, so that it need not
// keep it. Before Result it does nothing. A result that is never acknowledged is
// kept by its executor and shown again after a reconnect.
func (h *Handle) Ack() {
	d := h.d
	d.mu.Lock()
	defer d.unlock(true)
	if h.a.state == stateDone {
		d.ackResult(h.a)
	}
}

// Stdin writes to the process's standard input, then closes it if asked. It
// returns when the bytes are on their way and will be sent again after a
// reconnect; it blocks while more than 1 MiB is not known to be read by the process (or
// received by an executor that does not tell). It
// fails with ErrEnded after the end of the action.
func (h *Handle) Stdin(ctx context.Context, data []byte, closeAfter bool) error {
	for {
		piece := data[:min(len(data), stdinPiece)]
		data = data[len(piece):]
		last := len(data) == 0
		if err := h.d.stdin(ctx, h.a, piece, closeAfter && last); err != nil {
			return fmt.Errorf("write to standard input of action %s: %w", h.a.id, err)
		}
		if last {
			return nil
		}
	}
}

// Resize changes the terminal's size. The last size is sent again after a
// reconnect. It fails with ErrEnded after the end of the action.
func (h *Handle) Resize(_ context.Context, rows, cols int32) error {
	return h.d.control(h.a, func(a *action) {
		a.resize = &executorv1.Resize{Rows: rows, Cols: cols}
		h.d.sendControl(a, &executorv1.ActionControl{Control: &executorv1.ActionControl_Resize{Resize: a.resize}})
	})
}

// Interrupt ends the process in steps (SIGINT, SIGTERM, kill). It returns at
// once; Result tells the end. An action that has no executor yet ends as
// cancelled. It fails with ErrEnded after the end of the action.
func (h *Handle) Interrupt(context.Context) error {
	return h.d.control(h.a, func(a *action) {
		a.interrupted = true
		h.d.stop(a)
	})
}

// Terminate kills the process at once; else as Interrupt, but it is no error
// after the end of the action.
func (h *Handle) Terminate(context.Context) error {
	h.d.terminate(h.a)
	return nil
}
