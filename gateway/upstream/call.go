package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

// ErrAmbiguous says that the connection was lost while a call that must not be
// repeated blindly was under way: it may or may not have taken effect.
var ErrAmbiguous = errors.New("the connection to the control plane was lost while the request was under way")

// Do runs a call that may be repeated: when the connection is lost it is made
// again over the next one.
func (s *Session) Do(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error {
	return s.do(ctx, true, call)
}

// DoOnce runs a call that must not be repeated. A loss under way is reported as
// ErrAmbiguous.
func (s *Session) DoOnce(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error {
	return s.do(ctx, false, call)
}

func (s *Session) do(ctx context.Context, repeat bool, call func(context.Context, grpc.ClientConnInterface) error) error {
	var after uint64
	deadline := time.Now().Add(s.cfg.Patience)
	for {
		conn, gen, err := s.await(ctx, after)
		if err != nil {
			return err
		}
		err = s.count(func() error { return call(s.tag(ctx), roomy{conn}) })
		switch {
		case err != nil && time.Now().After(deadline):
			return err
		case errdefs.Is(err, errdefs.SessionUnknown):
			// The call overtook the attach, or the control plane forgot the
			// session: it did nothing. A short wait lets the attach arrive.
			if err := s.pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		case errdefs.Is(err, errdefs.Busy) && s.drains(gen):
			// It was refused because of the stop, and did nothing.
			after = gen
		case !Lost(err) || ctx.Err() != nil:
			return err
		case !repeat:
			return fmt.Errorf("%w: %w", ErrAmbiguous, err)
		default:
			after = s.lost(gen)
			if err := s.pause(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
	}
}

// drainWord is how long a refusal may come before the word of its cause.
const drainWord = 100 * time.Millisecond

// drains reports whether the control plane of a generation is about to stop, or
// gone already.
func (s *Session) drains(gen uint64) bool {
	for deadline := time.Now().Add(drainWord); ; {
		s.mu.Lock()
		stops := s.gen != gen || s.draining || s.conn == nil
		s.mu.Unlock()
		if stops || time.Now().After(deadline) || s.pause(s.ctx, 10*time.Millisecond) != nil {
			return stops
		}
	}
}

// count runs a call that a leaving session waits for.
func (s *Session) count(call func() error) error {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.calls--
		last := s.draining && s.calls == 0
		s.mu.Unlock()
		if last {
			s.set(func() {})
		}
	}()
	return call()
}

// Stream opens a stream over the current connection; it is not repeated.
func (s *Session) Stream(ctx context.Context, open func(context.Context, grpc.ClientConnInterface) error) error {
	conn, _, err := s.await(ctx, 0)
	if err != nil {
		return err
	}
	return open(s.tag(ctx), roomy{conn})
}

// Lost reports whether an error means that the connection or its control plane
// is gone, as opposed to an answer of the control plane. A call whose context
// has not ended is cancelled only when its connection is given up.
func Lost(err error) bool {
	if err == nil || errdefs.From(err) != nil {
		return false
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.Canceled
}

func (s *Session) tag(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, sessionKey, s.ID())
}

func (s *Session) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return errors.New("the session has ended")
	}
}

// lost notes that a connection failed and returns its generation, so that the
// caller waits for a later one when the attach stream has noticed too.
func (s *Session) lost(gen uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil || s.gen > gen {
		return gen
	}
	return 0
}

// await waits for a connection of a generation later than after.
func (s *Session) await(ctx context.Context, after uint64) (*grpc.ClientConn, uint64, error) {
	s.Start()
	deadline := time.NewTimer(s.cfg.Patience)
	defer deadline.Stop()
	s.mu.Lock()
	seen := s.attempts
	s.mu.Unlock()
	for {
		s.mu.Lock()
		conn, gen, failure, changed := s.conn, s.gen, s.failure, s.changed
		if s.draining {
			conn = nil
		}
		fatal := s.fatal && s.attempts != seen
		s.mu.Unlock()
		if conn != nil && gen > after {
			return conn, gen, nil
		}
		if fatal {
			return nil, 0, failure
		}
		select {
		case s.demand <- struct{}{}:
		default:
		}
		select {
		case <-changed:
		case <-deadline.C:
			if failure == nil {
				failure = errors.New("no answer")
			}
			return nil, 0, fmt.Errorf("the control plane is not reachable: %w", failure)
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-s.ctx.Done():
			return nil, 0, errors.New("the session has ended")
		}
	}
}
