// Package httpapi serves the client API over HTTP: REST under /v1 (JSON through
// grpc-gateway), a thread's events as server-sent events, and health. It holds
// no state of its own; every answer comes from the control plane's log, and an
// event stream can be resumed after any seq with Last-Event-ID.
package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// sessionKey is the metadata key that names the gateway's session on each call.
const sessionKey = "heddle-session"

// Config says whom the handler speaks for.
type Config struct {
	// Conn reaches the control plane.
	Conn grpc.ClientConnInterface
	// SessionID is the session that calls act for; REST clients have none of
	// their own.
	SessionID string
	// Authorize decides on each request except health; nil lets every request
	// through and is for loopback listeners only.
	Authorize func(*http.Request) error
	// Ready reports whether the control plane answers.
	Ready func(context.Context) error
	// KeepAlive is the interval of comment lines on an idle event stream; zero
	// means 15 seconds.
	KeepAlive time.Duration
}

// New returns the handler of /v1, /healthz and /readyz. A request that carries
// an Origin header is refused: browsers of other sites must not reach it.
func New(ctx context.Context, cfg Config) (http.Handler, error) {
	if cfg.Conn == nil {
		return nil, errors.New("http api: no connection to a control plane")
	}
	if cfg.KeepAlive == 0 {
		cfg.KeepAlive = 15 * time.Second
	}
	rest := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{
			MarshalOptions:   protojson.MarshalOptions{EmitDefaultValues: true},
			UnmarshalOptions: protojson.UnmarshalOptions{},
		}),
		runtime.WithMetadata(func(context.Context, *http.Request) metadata.MD {
			return metadata.Pairs(sessionKey, cfg.SessionID)
		}),
	)
	for _, register := range []func(context.Context, *runtime.ServeMux, grpc.ClientConnInterface) error{
		func(ctx context.Context, m *runtime.ServeMux, c grpc.ClientConnInterface) error {
			return heddlev1.RegisterThreadServiceHandlerClient(ctx, m, heddlev1.NewThreadServiceClient(c))
		},
		func(ctx context.Context, m *runtime.ServeMux, c grpc.ClientConnInterface) error {
			return heddlev1.RegisterTurnServiceHandlerClient(ctx, m, heddlev1.NewTurnServiceClient(c))
		},
		func(ctx context.Context, m *runtime.ServeMux, c grpc.ClientConnInterface) error {
			return heddlev1.RegisterApprovalServiceHandlerClient(ctx, m, heddlev1.NewApprovalServiceClient(c))
		},
		func(ctx context.Context, m *runtime.ServeMux, c grpc.ClientConnInterface) error {
			return heddlev1.RegisterEventServiceHandlerClient(ctx, m, heddlev1.NewEventServiceClient(c))
		},
		func(ctx context.Context, m *runtime.ServeMux, c grpc.ClientConnInterface) error {
			return heddlev1.RegisterArtifactServiceHandlerClient(ctx, m, heddlev1.NewArtifactServiceClient(c))
		},
	} {
		if err := register(ctx, rest, cfg.Conn); err != nil {
			return nil, err
		}
	}
	events := &eventStream{client: heddlev1.NewEventServiceClient(cfg.Conn), sessionID: cfg.SessionID, keepAlive: cfg.KeepAlive}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if cfg.Ready != nil {
			if err := cfg.Ready(r.Context()); err != nil {
				http.Error(w, "control plane: "+err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.Handle("/v1/", guard(cfg.Authorize, func(w http.ResponseWriter, r *http.Request) {
		if thread, ok := eventsPath(r); ok {
			events.serve(w, r, thread)
			return
		}
		rest.ServeHTTP(w, r)
	}))
	return mux, nil
}

func guard(authorize func(*http.Request) error, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" {
			http.Error(w, "requests with an Origin header are refused", http.StatusForbidden)
			return
		}
		if authorize != nil {
			if err := authorize(r); err != nil {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, err.Error(), http.StatusUnauthorized)
				return
			}
		}
		next(w, r)
	})
}

// eventsPath reports the thread of a request for server-sent events. Without
// that Accept type the same path is the REST stream of JSON lines.
func eventsPath(r *http.Request) (string, bool) {
	if r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return "", false
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/threads/")
	if !ok {
		return "", false
	}
	thread, ok := strings.CutSuffix(rest, "/events")
	if !ok || thread == "" || strings.Contains(thread, "/") {
		return "", false
	}
	return thread, true
}
