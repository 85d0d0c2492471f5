package execmode

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// retryPause is the wait between two attempts to reach a lost control plane.
const retryPause = 50 * time.Millisecond

// session holds one registration open and renews it after a loss.
type session struct {
	client heddlev1.SessionServiceClient
	req    *heddlev1.AttachRequest
	first  chan attachResult
	cancel context.CancelFunc
	done   chan struct{}
	// notice is called with what the control plane says beside the log.
	notice func(string)
}

type attachResult struct {
	attached *heddlev1.Attached
	err      error
}

func newSession(conn *grpc.ClientConn, req *heddlev1.AttachRequest) *session {
	return &session{client: heddlev1.NewSessionServiceClient(conn), req: req, first: make(chan attachResult, 1), done: make(chan struct{})}
}

// open attaches and returns the control plane's first message.
func (s *session) open(ctx context.Context) (*heddlev1.Attached, error) {
	// The stream must live until Detach also when the run is interrupted.
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	go s.keep(streamCtx)
	select {
	case r := <-s.first:
		return r.attached, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *session) keep(ctx context.Context) {
	defer close(s.done)
	lastSeen := time.Now()
	for ctx.Err() == nil {
		attached, err := s.once(ctx)
		if attached {
			lastSeen = time.Now()
		}
		if !lost(err) && !attached || time.Since(lastSeen) > lossLimit {
			s.report(attachResult{err: err})
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// once runs one stream to its end and reports whether it was attached. A
// control plane that is about to stop is let go at once, since it waits for its
// streams.
func (s *session) once(ctx context.Context) (attached bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.client.Attach(ctx, s.req)
	if err != nil {
		return false, err
	}
	for {
		msg, err := stream.Recv()
		if err != nil {
			return attached, err
		}
		if a := msg.GetAttached(); a != nil {
			attached = true
			s.report(attachResult{attached: a})
		}
		if n := msg.GetNotice(); n != nil && s.notice != nil {
			s.notice(n.GetMessage())
		}
		if msg.GetDraining() != nil {
			return attached, nil
		}
	}
}

// report delivers the first result only.
func (s *session) report(r attachResult) {
	if r.err == nil && r.attached == nil {
		r.err = errors.New("the control plane closed the session")
	}
	select {
	case s.first <- r:
	default:
	}
}

// close ends the session on purpose.
func (s *session) close() {
	if s.cancel == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_, _ = s.client.Detach(ctx, &heddlev1.DetachRequest{SessionId: s.req.GetSessionId()})
	s.cancel()
	<-s.done
}
