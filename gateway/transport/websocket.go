// Package transport carries client connections: lines over a pair of pipes, and
// one WebSocket text frame per message over TCP or a unix socket.
//
// A listener bounds the number of its connections, answers health checks, and
// refuses browsers and callers that may not connect before a connection exists.
package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/heddle-dev/heddle/gateway/auth"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
)

// Authenticator decides whether a request may go on. Its error is shown to the
// caller.
type Authenticator interface {
	Check(r *http.Request) error
}

// Server serves WebSocket connections.
type Server struct {
	// Handle runs one connection until its stream ends.
	Handle func(ctx context.Context, s jsonrpc.Stream) error
	// Auth, unless nil, must let every request pass but those for health.
	Auth   Authenticator
	Logger *slog.Logger
	// REST serves /v1/; nil refuses it.
	REST http.Handler
	// MaxConnections bounds the open connections, MaxMessage the bytes of one
	// message.
	MaxConnections, MaxMessage int

	open atomic.Int64
}

// Serve accepts connections until ctx ends. It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	hs := &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = hs.Close() })
	defer stop()
	if err := hs.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return ctx.Err()
}

// ServeHTTP answers health checks and upgrades every other path.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case auth.FromBrowser(r):
		http.Error(w, "requests with an Origin header are refused", http.StatusForbidden)
	case r.Method == http.MethodGet && (r.URL.Path == "/readyz" || r.URL.Path == "/healthz"):
		w.WriteHeader(http.StatusOK)
	case r.Header.Get("Upgrade") == "":
		s.plain(w, r)
	case !s.allowed(w, r):
	case s.open.Add(1) > int64(s.MaxConnections):
		s.open.Add(-1)
		http.Error(w, "too many connections", http.StatusServiceUnavailable)
	default:
		defer s.open.Add(-1)
		s.upgrade(w, r)
	}
}

// allowed answers a request that may not go on.
func (s *Server) allowed(w http.ResponseWriter, r *http.Request) bool {
	if s.Auth == nil {
		return true
	}
	err := s.Auth.Check(r)
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, err.Error(), http.StatusUnauthorized)
	}
	return err == nil
}

func (s *Server) plain(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.REST == nil || !strings.HasPrefix(r.URL.Path, "/v1/"):
		http.Error(w, "a WebSocket upgrade is expected", http.StatusBadRequest)
	case !s.allowed(w, r):
	case s.Auth == nil && !auth.DirectHost(r):
		http.Error(w, "the host must be named by its address", http.StatusForbidden)
	default:
		s.REST.ServeHTTP(w, r)
	}
}

func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		s.Logger.Debug("upgrade failed", "error", err)
		return
	}
	ws.SetReadLimit(-1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stream := &frames{ws: ws, ctx: ctx, cancel: cancel, limit: int64(s.MaxMessage)}
	if err := s.Handle(ctx, stream); err != nil {
		s.Logger.Debug("connection ended", "error", err)
	}
	_ = ws.CloseNow()
}

// frames is a jsonrpc.Stream of text frames.
type frames struct {
	ws     *websocket.Conn
	ctx    context.Context
	cancel context.CancelFunc
	limit  int64
	buf    []byte
}

// Read returns the next text frame; binary frames are ignored.
func (f *frames) Read() ([]byte, error) {
	for {
		kind, r, err := f.ws.Reader(f.ctx)
		if err != nil {
			if status := websocket.CloseStatus(err); status == websocket.StatusNormalClosure || status == websocket.StatusGoingAway {
				return nil, io.EOF
			}
			return nil, err
		}
		if kind != websocket.MessageText {
			if _, err := io.Copy(io.Discard, r); err != nil {
				return nil, err
			}
			continue
		}
		data, err := f.message(r)
		if err != nil || len(data) > 0 {
			return data, err
		}
	}
}

func (f *frames) message(r io.Reader) ([]byte, error) {
	if cap(f.buf) > 1<<20 {
		f.buf = nil
	}
	buf := f.buf[:0]
	chunk := make([]byte, 32<<10)
	for {
		n, err := r.Read(chunk)
		if int64(len(buf)+n) > f.limit {
			head := append([]byte(nil), buf[:min(len(buf), 4<<10)]...)
			if _, err := io.Copy(io.Discard, r); err != nil {
				return nil, err
			}
			return nil, &jsonrpc.TooLargeError{Limit: int(f.limit), Head: head}
		}
		buf = append(buf, chunk[:n]...)
		if errors.Is(err, io.EOF) {
			f.buf = buf
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Write sends each message as a frame.
func (f *frames) Write(messages [][]byte) error {
	for _, m := range messages {
		if err := f.ws.Write(f.ctx, websocket.MessageText, m); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the connection, with a farewell if the peer still reads.
func (f *frames) Close() error {
	f.cancel()
	return f.ws.CloseNow()
}
