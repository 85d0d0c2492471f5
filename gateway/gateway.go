// Package gateway connects clients of the v2 protocol to a control plane. It
// reaches the control plane through gRPC only, touches no workspace and starts
// no process.
//
// A Gateway is one server of the protocol with one session at the control plane,
// whatever the number of its client connections. It answers initialize by
// itself, so that clients never wait for the rest to start.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/heddle-dev/heddle/gateway/appserver"
	"github.com/heddle-dev/heddle/gateway/httpapi"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	"github.com/heddle-dev/heddle/gateway/transport"
	"github.com/heddle-dev/heddle/gateway/upstream"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

// Config describes a Gateway.
type Config struct {
	// Dial connects to a running control plane, starting one where that is its
	// task. It is called again when the connection is lost.
	Dial func(ctx context.Context) (*grpc.ClientConn, error)
	// Home is the absolute home folder that clients are told.
	Home    string
	Version string
	// Env and Cwd are those of the client, filtered by policy before any of it
	// reaches a command.
	Env map[string]string
	Cwd string
	// Overrides are dotted config keys laid over the home's config.
	Overrides        map[string]any
	Profile          string
	IgnoreUserConfig bool
	// Source is the kind of client that threads are recorded under; empty means
	// vscode, as the protocol has it.
	Source string
	// OnDisconnect says what becomes of turns when this gateway is gone.
	OnDisconnect heddlev1.OnDisconnect
	// Remote is true when the control plane is on another machine.
	Remote bool
	Logger *slog.Logger
	// Auth, unless nil, must let the requests of WebSocket clients pass.
	Auth transport.Authenticator
	// Patience bounds how long a request waits for the control plane; 0 means
	// 30 s.
	Patience time.Duration
	// Limits bound what clients can make this gateway hold.
	Limits appserver.Limits
	// ClientVersions bounds the versions of clients that are served.
	ClientVersions appserver.ClientRange
	// REST serves the HTTP API under /v1/ beside WebSocket clients.
	REST bool
	// WrapListener guards a listener before it is served; may be nil.
	WrapListener func(net.Listener) net.Listener
}

// Gateway serves clients.
type Gateway struct {
	cfg     Config
	session *upstream.Session
	server  *appserver.Server
}

// New prepares a gateway. The session with the control plane is opened by the
// first client.
func New(cfg Config) (*Gateway, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.Limits.Check(); err != nil {
		return nil, err
	}
	cfg.Limits = cfg.Limits.WithDefaults()
	overrides, err := structpb.NewStruct(cfg.Overrides)
	if err != nil {
		return nil, fmt.Errorf("config overrides: %w", err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make a session id: %w", err)
	}
	attach := &heddlev1.AttachRequest{
		SessionId: id.String(), ClientVersion: cfg.Version, OnDisconnect: cfg.OnDisconnect, Cwd: cfg.Cwd, Env: cfg.Env,
		Config: overrides, Profile: cfg.Profile, IgnoreUserConfig: cfg.IgnoreUserConfig,
	}
	if !cfg.Remote {
		attach.Pid = int64(os.Getpid())
	}
	g := &Gateway{cfg: cfg}
	g.session = upstream.New(upstream.Config{
		Dial: cfg.Dial, Attach: attach, Logger: cfg.Logger, Patience: cfg.Patience,
		Reattached: func() { go g.server.Rehold() },
		Notice:     func(threadID, message string) { g.server.Notice(threadID, message) },
	})
	g.server = appserver.New(appserver.Config{
		Session: g.session, Home: cfg.Home, Version: WireVersion(cfg.Version), Source: cfg.Source, OnDisconnect: cfg.OnDisconnect,
		Logger: cfg.Logger, Terminal: cfg.Env["TERM_PROGRAM"], Clients: cfg.ClientVersions, Limits: cfg.Limits,
	})
	return g, nil
}

// Start opens the session with the control plane before the first client.
func (g *Gateway) Start() { g.session.Start() }

// Close ends the connections and detaches from the control plane, so that turns
// tied to this gateway end at once. The context bounds the farewell.
func (g *Gateway) Close(ctx context.Context) {
	g.server.Close()
	g.session.Close(ctx)
}

// ServeStdio serves one client over a pair of pipes until in ends or ctx does.
func (g *Gateway) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	stream := jsonrpc.NewLines(in, out, func() error { return errors.Join(in.Close(), out.Close()) })
	stream.Limit(g.cfg.Limits.MessageBytes)
	return g.server.Serve(ctx, stream)
}

// Listen opens ws://IP:PORT or unix://PATH and serves clients in the background
// until ctx ends. The returned address is the bound one; the channel gives the
// reason of the end.
func (g *Gateway) Listen(ctx context.Context, address transport.Address) (net.Addr, <-chan error, error) {
	var rest http.Handler
	if g.cfg.REST {
		var err error
		if rest, err = g.rest(ctx); err != nil {
			return nil, nil, err
		}
	}
	l, err := address.Listen(ctx)
	if err != nil {
		return nil, nil, err
	}
	bound := l.Addr()
	if g.cfg.WrapListener != nil {
		l = g.cfg.WrapListener(l)
	}
	ws := &transport.Server{Handle: g.server.Serve, Auth: g.cfg.Auth, Logger: g.cfg.Logger, REST: rest,
		MaxConnections: g.cfg.Limits.Connections, MaxMessage: g.cfg.Limits.MessageBytes}
	done := make(chan error, 1)
	go func() { done <- ws.Serve(ctx, l) }()
	return bound, done, nil
}

// rest makes the HTTP API over this gateway's session.
func (g *Gateway) rest(ctx context.Context) (http.Handler, error) {
	return httpapi.New(ctx, httpapi.Config{Conn: g.session.Conn(), SessionID: g.session.ID(), Ready: func(ctx context.Context) error {
		_, err := g.session.Attached(ctx)
		return err
	}})
}
