package upstream

import (
	"context"
	"time"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// run attaches, and again after each loss, until the session ends.
func (s *Session) run() {
	defer close(s.done)
	backoff := 20 * time.Millisecond
	for s.ctx.Err() == nil {
		began := time.Now()
		fatal, err := s.attach()
		s.mu.Lock()
		closing := s.closing
		s.mu.Unlock()
		if closing || s.ctx.Err() != nil {
			return
		}
		s.cfg.Logger.Info("session with the control plane ended", "error", err)
		if time.Since(began) > 5*time.Second {
			backoff = 20 * time.Millisecond
		}
		s.set(func() { s.conn, s.failure, s.fatal, s.attempts, s.draining = nil, err, fatal, s.attempts+1, false })
		if s.pause(s.ctx, backoff) != nil {
			return
		}
		backoff = min(2*backoff, time.Second)
		if fatal {
			s.awaitDemand()
		}
	}
}

// awaitDemand waits for a call, or long enough to try again without one, so that
// a control plane that cannot start is not started over and over for nobody.
func (s *Session) awaitDemand() {
	t := time.NewTimer(10 * time.Second)
	defer t.Stop()
	select {
	case <-s.demand:
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// attach dials, attaches and holds the stream until it ends. A fatal error is
// one that waiting calls are told at once.
func (s *Session) attach() (fatal bool, err error) {
	conn, err := s.cfg.Dial(s.ctx)
	if err != nil {
		return true, err
	}
	defer func() {
		s.mu.Lock()
		closing := s.closing
		s.mu.Unlock()
		if closing {
			// The answer to Detach is still to come over this connection.
			<-s.ctx.Done()
		}
		if err := conn.Close(); err != nil {
			s.cfg.Logger.Debug("closing the connection failed", "error", err)
		}
	}()
	ctx, cancel := context.WithCancel(s.tag(s.ctx))
	defer cancel()
	s.mu.Lock()
	request := s.cfg.Attach
	s.mu.Unlock()
	stream, err := heddlev1.NewSessionServiceClient(conn).Attach(ctx, request)
	if err != nil {
		return errdefs.From(err) != nil, err
	}
	for {
		msg, err := stream.Recv()
		if err != nil {
			return errdefs.From(err) != nil, err
		}
		if n := msg.GetNotice(); n != nil && s.cfg.Notice != nil {
			s.cfg.Notice(n.GetThreadId(), n.GetMessage())
		}
		if d := msg.GetDraining(); d != nil {
			s.cfg.Logger.Info("the control plane is about to stop", "reason", d.GetReason())
			s.set(func() { s.draining = true })
			// It waits for its clients to go, which start the next one.
			go s.leave(ctx, cancel)
		}
		if a := msg.GetAttached(); a != nil {
			again := false
			s.set(func() {
				s.conn, s.attached, s.failure, s.fatal, s.draining = conn, a, nil, false, false
				s.gen++
				again = s.gen > 1
			})
			if again && s.cfg.Reattached != nil {
				s.cfg.Reattached()
			}
		}
	}
}

// drainBound is how long calls under way keep the connection to a control plane
// that is about to stop.
const drainBound = time.Second

// leave ends the attachment to a control plane that is about to stop, once it has
// answered what it was asked.
func (s *Session) leave(ctx context.Context, end context.CancelFunc) {
	defer end()
	bound, cancel := context.WithTimeout(ctx, drainBound)
	defer cancel()
	for {
		s.mu.Lock()
		calls, changed := s.calls, s.changed
		s.mu.Unlock()
		if calls == 0 {
			return
		}
		select {
		case <-changed:
		case <-bound.Done():
			return
		}
	}
}
