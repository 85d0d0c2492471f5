// Package appserver speaks the v2 client protocol: it answers requests of
// client connections over a control plane's gRPC services and turns the events
// of threads into notifications.
//
// One Server plays one server of the protocol: the threads that its connections
// started, resumed or forked are its loaded threads. Notifications of a thread
// keep the order of its log, the answer to a request leaves before any
// notification that it causes, and a connection that does not read is served
// from the log later, without holding up anybody else. A Server is safe for
// concurrent use.
package appserver

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	"github.com/heddle-dev/heddle/gateway/upstream"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Config describes a Server.
type Config struct {
	Session *upstream.Session
	// Home is the absolute home folder that clients are told.
	Home    string
	Version string
	// Source is the kind of client that threads are recorded under.
	Source       string
	OnDisconnect heddlev1.OnDisconnect
	Logger       *slog.Logger
	Limits       Limits
	// Clients bounds the versions of clients that are served.
	Clients ClientRange
	// Terminal is named in the user agent; empty means unknown.
	Terminal string
}

// Server serves any number of connections.
type Server struct {
	cfg     Config
	session *upstream.Session
	log     *slog.Logger
	limits  Limits

	mu         sync.Mutex
	clients    map[*client]struct{}
	threads    map[string]*loaded
	order      []string
	originator string
	closed     bool
	delay      time.Duration
	delayKnown bool

	sections sectionCache
}

// New makes a Server.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Source == "" {
		cfg.Source = "vscode"
	}
	return &Server{
		cfg: cfg, session: cfg.Session, log: cfg.Logger, limits: cfg.Limits.WithDefaults(),
		clients: map[*client]struct{}{}, threads: map[string]*loaded{},
	}
}

// Close ends all connections and lets the threads go.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	clients := make([]*client, 0, len(s.clients))
	for c := range s.clients {
		clients = append(clients, c)
	}
	threads := make([]*loaded, 0, len(s.threads))
	for _, t := range s.threads {
		threads = append(threads, t)
	}
	s.mu.Unlock()
	for _, c := range clients {
		c.conn.Close()
	}
	for _, t := range threads {
		t.close()
	}
}

// path is the folder that holds a thread's output.
func (s *Server) path(thread string) string { return filepath.Join(s.cfg.Home, "streams", thread) }

// wire makes the wire form of a thread as this server sees it.
func (s *Server) wire(t *heddlev1.Thread) protocol.Thread {
	status := protocol.NotLoaded
	if s.thread(t.GetId()) != nil {
		status = protocol.StatusOf(t.GetState(), t.GetWaitingOnApproval(), t.GetWaitingOnUserInput())
	}
	out := protocol.FromThread(t, status, s.path(t.GetId()))
	if out.Section = s.section(t.GetSection().GetSectionId()); out.Section != nil {
		out.SectionEnteredAt = ms(t.GetSection().GetEnteredAtMs() / 1000)
	}
	return out
}

// itsPath says that a path that a client gives beside a thread's id is none, or
// the one that it was told for the thread.
func (s *Server) itsPath(p *protocol.Path, thread string) bool {
	return p == nil || filepath.Clean(string(*p)) == s.path(thread)
}

// thread returns a loaded thread, nil when it is not loaded.
func (s *Server) thread(id string) *loaded {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.threads[id]
}

// loadedIDs returns the loaded threads in the order of their loading.
func (s *Server) loadedIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

// load registers a thread as loaded. fresh is false when it was loaded already.
func (s *Server) load(t *heddlev1.Thread, pending []*heddlev1.Approval) (l *loaded, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, errors.New("the server is closing")
	}
	if l = s.threads[t.GetId()]; l != nil {
		return l, false, nil
	}
	if len(s.threads) >= s.limits.Threads {
		return nil, false, overloaded()
	}
	l = newLoaded(s, t, pending)
	s.threads[l.id] = l
	s.order = append(s.order, l.id)
	return l, true, nil
}

// unload forgets a loaded thread. It reports whether it was loaded.
func (s *Server) unload(id string) bool {
	l := s.forget(id)
	if l != nil {
		l.close()
	}
	return l != nil
}

// forget takes a thread off those that are loaded and returns it, nil when it
// was none of them.
func (s *Server) forget(id string) *loaded {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.threads[id]
	delete(s.threads, id)
	s.order = slices.DeleteFunc(s.order, func(o string) bool { return o == id })
	return l
}

// broadcast offers a note to every initialized connection but those skipped.
func (s *Server) broadcast(n note, skip func(*client) bool) {
	s.mu.Lock()
	clients := make([]*client, 0, len(s.clients))
	for c := range s.clients {
		clients = append(clients, c)
	}
	s.mu.Unlock()
	for _, c := range clients {
		if (skip == nil || !skip(c)) && c.wants(n) {
			c.offer(n)
		}
	}
}

// unloadDelay is how long a thread without subscribers stays loaded.
func (s *Server) unloadDelay(ctx context.Context) time.Duration {
	s.mu.Lock()
	delay, known := s.delay, s.delayKnown
	s.mu.Unlock()
	if known {
		return delay
	}
	delay = 30 * time.Minute
	config, err := s.readConfig(ctx, "")
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("reading thread_unload_delay_secs failed", "error", err)
		}
		return delay
	}
	if v, ok := config.GetConfig().AsMap()["thread_unload_delay_secs"].(float64); ok && v >= 0 {
		delay = time.Duration(v * float64(time.Second))
	}
	s.mu.Lock()
	s.delay, s.delayKnown = delay, true
	s.mu.Unlock()
	return delay
}

// invalid makes a refusal.
func invalid(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: message}
}

// failure turns an error of the control plane into one for the client, for the
// cases that have no text of their own.
func failure(err error) *jsonrpc.Error {
	var rpc *jsonrpc.Error
	if errors.As(err, &rpc) {
		return rpc
	}
	e := errdefs.From(err)
	if e == nil {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: err.Error()}
	}
	out := &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: e.Message, Data: map[string]any{"reason": string(e.Reason)}}
	switch e.Reason {
	case errdefs.Overloaded:
		return overloaded()
	case errdefs.InvalidCursor:
		out.Data = nil
	case errdefs.Internal, errdefs.NoExecutor, errdefs.ExecutorLost, errdefs.NotEnforceable, errdefs.StoreUnavailable, errdefs.UnknownOutcome, errdefs.StaleEpoch:
		out.Code = jsonrpc.CodeInternal
	}
	return out
}
