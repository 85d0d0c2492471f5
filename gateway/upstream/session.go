// Package upstream holds a gateway's session with the control plane.
//
// A Session keeps one Attach stream open, dials again and attaches with the
// same session id when it is lost, and runs calls over the current connection.
// The loss of a control plane shows to callers as a pause: calls wait for the
// next one, bounded by Config.Patience. A Session is safe for concurrent use.
package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
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

func (s *Session) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}
