// Package session is one registration of an executor with a control plane.
//
// A session starts with the register message and ends with the first error of
// the stream, for whatever cause; it is never repaired. Run hands incoming
// messages to a Handler in order, from one goroutine. Send may be called
// concurrently; it blocks while the peer does not read.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

const (
	// DefaultHandshake bounds the time until the registered message.
	DefaultHandshake = 10 * time.Second
	// DefaultWindow is used when the control plane names no output window.
	DefaultWindow = 1 << 20
	// silenceCheck is how often the silence limit is looked at.
	silenceCheck = time.Second
)

var (
	// ErrEnded is returned by Send after the session has ended.
	ErrEnded = errors.New("session has ended")
	// ErrSilent ends a session whose control plane stopped renewing.
	ErrSilent = errors.New("control plane is silent")
	// ErrProtocol ends a session on a message that the protocol forbids.
	ErrProtocol = errors.New("protocol violation")
)

// Handler receives a session's messages. Its methods must not wait for the
// network: a handler that sends does so from a goroutine of its own.
type Handler interface {
	// Connected is called once, before the first message.
	Connected(s *Session)
	// Handle is called for each message after registered. An error ends the
	// session.
	Handle(s *Session, m *executorv1.ConnectResponse) error
}

// Config of a session.
type Config struct {
	Conn     grpc.ClientConnInterface
	Register *executorv1.Register
	Handler  Handler
	// Handshake bounds the wait for registered; 0 means DefaultHandshake.
	Handshake time.Duration
	// Silence returns how long the control plane may say nothing; 0 means for
	// ever. It is asked again and again, because it depends on the leases held.
	Silence func() time.Duration
}

// Session is the sending side of a registration.
type Session struct {
	registered *executorv1.Registered
	ctx        context.Context // ends with the session; nothing else is read from it

	mu     sync.Mutex // one sender at a time, as gRPC asks
	stream executorv1.ExecutorService_ConnectClient
}

// ID is the control plane's name of the session.
func (s *Session) ID() string { return s.registered.GetSessionId() }

// Window is the number of unacknowledged output bytes allowed per action.
func (s *Session) Window() int64 {
	if w := s.registered.GetOutputWindow(); w > 0 {
		return w
	}
	return DefaultWindow
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Send sends one message. The message is not kept. An error means that the
// session is over and that the message may or may not have arrived.
func (s *Session) Send(m *executorv1.ConnectRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return ErrEnded
	}
	return s.stream.Send(m)
}

// Run registers and serves the session until it ends. The error is never nil
// and tells why; context.Cause(ctx) when ctx ended it.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(ErrEnded)
	limit := cfg.Handshake
	if limit <= 0 {
		limit = DefaultHandshake
	}
	late := time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("register: no answer within %v: %w", limit, ErrSilent))
	})
	defer late.Stop()
	stream, err := executorv1.NewExecutorServiceClient(cfg.Conn).Connect(ctx)
	if err != nil {
		return causeOr(ctx, fmt.Errorf("open session: %w", err))
	}
	s := &Session{ctx: ctx, stream: stream}
	if err := s.handshake(cfg); err != nil {
		return causeOr(ctx, err)
	}
	if !late.Stop() {
		return causeOr(ctx, ErrSilent)
	}
	var heard atomic.Int64
	start := time.Now()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		watchSilence(ctx, cfg.Silence, start, &heard, cancel)
	}()
	cfg.Handler.Connected(s)
	err = s.receive(cfg.Handler, start, &heard)
	err = causeOr(ctx, err)
	cancel(ErrEnded)
	<-watching
	return err
}

// causeOr prefers the reason for which the context was ended over the error
// that the stream made of it.
func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (s *Session) handshake(cfg Config) error {
	err := s.stream.Send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Register{Register: cfg.Register}})
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the reason is in Recv
		return fmt.Errorf("register: %w", err)
	}
	m, err := s.stream.Recv()
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if s.registered = m.GetRegistered(); s.registered == nil {
		return fmt.Errorf("register: first message is %T: %w", m.GetMessage(), ErrProtocol)
	}
	if v := s.registered.GetProtocol(); v < cfg.Register.GetMinProtocol() || v > cfg.Register.GetMaxProtocol() {
		return fmt.Errorf("register: control plane chose protocol %d, this executor speaks %d to %d: %w",
			v, cfg.Register.GetMinProtocol(), cfg.Register.GetMaxProtocol(), ErrProtocol)
	}
	return nil
}

func (s *Session) receive(h Handler, start time.Time, heard *atomic.Int64) error {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return fmt.Errorf("session %s: %w", s.ID(), err)
		}
		heard.Store(int64(time.Since(start)))
		if m.GetRegistered() != nil {
			return fmt.Errorf("session %s: registered twice: %w", s.ID(), ErrProtocol)
		}
		if err := h.Handle(s, m); err != nil {
			return fmt.Errorf("session %s: %w", s.ID(), err)
		}
	}
}

// watchSilence ends the session when nothing was heard for the limit.
func watchSilence(ctx context.Context, limit func() time.Duration, start time.Time, heard *atomic.Int64, cancel context.CancelCauseFunc) {
	if limit == nil {
		return
	}
	tick := time.NewTicker(silenceCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		quiet := time.Since(start) - time.Duration(heard.Load())
		if max := limit(); max > 0 && quiet > max {
			cancel(fmt.Errorf("nothing heard for %v: %w", quiet.Round(time.Millisecond), ErrSilent))
			return
		}
	}
}
