// Package upstream holds a gateway's session with the control plane.
//
// A Session keeps one Attach stream open, dials again and attaches with the
// same session id when it is lost, and runs calls over the current connection.
// The loss of a control plane shows to callers as a pause: calls wait for the
// next one, bounded by Config.Patience. A Session is safe for concurrent use.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// sessionKey is the metadata key that carries the session id.
const sessionKey = "heddle-session"

// Config describes a session.
type Config struct {
	// Dial makes a connection to a running control plane, starting one where
	// that is its task. It is called again after each loss; the session closes
	// what it returned.
	Dial func(ctx context.Context) (*grpc.ClientConn, error)
	// Attach is sent on every attach. Its session id must be set.
	Attach *heddlev1.AttachRequest
	// Patience bounds how long a call waits for a control plane. Default 30 s.
	Patience time.Duration
	// Reattached is called after each attach but the first: another process may
	// have taken over, which knows the session's turns but not its threads. It
	// must not wait for the session.
	Reattached func()
	// Notice is called with what the control plane says of a thread beside its
	// log; nil drops it. It must not wait for the session.
	Notice func(threadID, message string)
	Logger *slog.Logger
}

// ErrAmbiguous says that the connection was lost while a call that must not be
// repeated blindly was under way: it may or may not have taken effect.
var ErrAmbiguous = errors.New("the connection to the control plane was lost while the request was under way")

// Session is one registration of a gateway.
type Session struct {
	cfg    Config
	cancel context.CancelFunc
	ctx    context.Context
	start  sync.Once
	done   chan struct{}
	// id and cwd do not change, as the rest of what is attached with may.
	id, cwd string
	// demand wakes the loop that backs off after a failed dial.
	demand chan struct{}

	mu       sync.Mutex
	closing  bool
	changed  chan struct{}
	conn     *grpc.ClientConn
	gen      uint64
	attached *heddlev1.Attached
	// failure is why the last attempt to reach a control plane failed, with the
	// number of failed attempts since it was last reached.
	failure  error
	attempts int
	fatal    bool
	// draining is set when the control plane of conn is about to stop: calls that
	// begin wait for the next one. calls are those under way.
	draining bool
	calls    int
}

// New prepares a session; Start opens it.
func New(cfg Config) *Session {
	if cfg.Patience == 0 {
		cfg.Patience = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Session{cfg: cfg, id: cfg.Attach.GetSessionId(), cwd: cfg.Attach.GetCwd(), ctx: ctx, cancel: cancel, changed: make(chan struct{}), done: make(chan struct{}), demand: make(chan struct{}, 1)}
}

// ID is the session's id.
func (s *Session) ID() string { return s.id }

// Cwd is the folder of the session's client.
func (s *Session) Cwd() string { return s.cwd }

// Override lays config keys over those of the session, now and whenever it
// attaches again.
func (s *Session) Override(ctx context.Context, keys map[string]any) error {
	config, err := structpb.NewStruct(keys)
	if err != nil {
		return fmt.Errorf("config keys of the session: %w", err)
	}
	s.mu.Lock()
	next := proto.CloneOf(s.cfg.Attach)
	if next.Config == nil {
		next.Config = &structpb.Struct{}
	}
	proto.Merge(next.Config, config)
	s.cfg.Attach = next
	s.mu.Unlock()
	return s.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		_, err := heddlev1.NewSessionServiceClient(cc).UpdateSession(ctx, &heddlev1.UpdateSessionRequest{Config: config})
		return err
	})
}

// Start begins to attach in the background; further calls do nothing.
func (s *Session) Start() { s.start.Do(func() { go s.run() }) }

// Close detaches, so that turns tied to the session end at once, and ends the
// session. The context bounds the farewell.
func (s *Session) Close(ctx context.Context) {
	started := true
	s.start.Do(func() { started = false; close(s.done) })
	s.mu.Lock()
	s.closing = true
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		_, err := heddlev1.NewSessionServiceClient(conn).Detach(s.tag(ctx), &heddlev1.DetachRequest{SessionId: s.ID()})
		if err != nil {
			s.cfg.Logger.Debug("detach failed", "error", err)
		}
	}
	s.cancel()
	if started {
		<-s.done
	}
}

// Attached waits until the session is attached and returns what the control
// plane said about itself.
func (s *Session) Attached(ctx context.Context) (*heddlev1.Attached, error) {
	if _, _, err := s.await(ctx, 0); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached, nil
}

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

func (s *Session) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Session) run() {
	defer close(s.done)
	backoff := 20 * time.Millisecond
	for s.ctx.Err() == nil {
		began := time.Now()
		err, fatal := s.attach()
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
func (s *Session) attach() (err error, fatal bool) {
	conn, err := s.cfg.Dial(s.ctx)
	if err != nil {
		return err, true
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
		return err, errdefs.From(err) != nil
	}
	for {
		msg, err := stream.Recv()
		if err != nil {
			return err, errdefs.From(err) != nil
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

// maxMessage bounds one message of the control plane. A page of items is the
// largest.
const maxMessage = 64 << 20

// roomy is a connection whose calls take messages up to maxMessage.
type roomy struct{ *grpc.ClientConn }

func (r roomy) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return r.ClientConn.Invoke(ctx, method, args, reply, append(opts, grpc.MaxCallRecvMsgSize(maxMessage))...)
}

func (r roomy) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return r.ClientConn.NewStream(ctx, desc, method, append(opts, grpc.MaxCallRecvMsgSize(maxMessage))...)
}

// Conn returns a connection that follows the session: each call goes over the
// connection of the moment, after waiting for one. Calls are not repeated.
func (s *Session) Conn() grpc.ClientConnInterface { return follower{s} }

type follower struct{ s *Session }

func (f follower) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return f.s.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		return cc.Invoke(ctx, method, args, reply, opts...)
	})
}

func (f follower) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (stream grpc.ClientStream, err error) {
	err = f.s.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = cc.NewStream(ctx, desc, method, opts...)
		return err
	})
	return stream, err
}
