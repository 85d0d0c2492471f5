package httpstream

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errIdle = errors.New("idle timeout waiting for the model service")

// watchdog cancels a request when nothing was read for a while.
type watchdog struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func newWatchdog(parent context.Context, idle time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(parent)
	w := &watchdog{ctx: ctx, cancel: cancel, idle: idle}
	w.timer = time.AfterFunc(idle, func() { cancel(errIdle) })
	return ctx, w
}

// alive starts the time anew.
func (w *watchdog) alive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.timer.Reset(w.idle)
	}
}

// limit sets a last deadline that reading does not move any more.
func (w *watchdog) limit(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Reset(d)
}

// stop releases the request; a connection in the middle of an answer is closed.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
	w.cancel(nil)
}

func (w *watchdog) cause() error { return context.Cause(w.ctx) }
