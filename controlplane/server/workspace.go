package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// connectionIdle is how long a connection's sandbox is kept without a command.
	connectionIdle = time.Minute
	// maxExecs bounds the processes of one connection.
	maxExecs = 256
	// releaseWait bounds the wait for an executor to end a connection's scope.
	releaseWait = 10 * time.Second
)

// Sessions finds the session that a call belongs to.
type Sessions interface {
	// Lookup fails with SessionUnknown when the call names no attached session.
	Lookup(ctx context.Context) (SessionView, error)
}

// SessionView is what connection-scoped work needs of a session.
type SessionView interface {
	ID() string
	// Env is the environment for commands, filtered by shell_environment_policy,
	// as NAME=value.
	Env() []string
	// Cwd is the client's working folder.
	Cwd() string
	// DefaultPolicy is the configured sandbox policy.
	DefaultPolicy() *heddlev1.SandboxPolicy
	Principal() string
}

// WorkspaceService runs processes for client connections. It is safe for
// concurrent use.
type WorkspaceService struct {
	heddlev1.UnimplementedWorkspaceServiceServer
	dispatcher *dispatch.Dispatcher
	sessions   Sessions
	log        *slog.Logger

	mu    sync.Mutex
	conns map[string]*connection // by scope
}

// connection counts the processes of one client connection, whose scope is
// released when it has been idle.
type connection struct {
	session, id string
	execs       int
	idle        *time.Timer
}

// NewWorkspaceService returns the service.
func NewWorkspaceService(d *dispatch.Dispatcher, sessions Sessions) *WorkspaceService {
	return &WorkspaceService{dispatcher: d, sessions: sessions, log: d.Logger(), conns: map[string]*connection{}}
}

// Exec runs one process; see the proto.
func (s *WorkspaceService) Exec(stream grpc.BidiStreamingServer[heddlev1.ExecRequest, heddlev1.ExecResponse]) error {
	ctx := stream.Context()
	view, err := s.sessions.Lookup(ctx)
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("receive exec start: %w", err)
	}
	start := first.GetStart()
	action, err := execAction(view, start)
	if err != nil {
		return err
	}
	scope, err := s.enter(view.ID(), start.GetConnectionId())
	if err != nil {
		return err
	}
	defer s.leave(scope)
	r := &relay{stream: stream, caps: newCaps(start.GetOutputCap())}
	r.mu.Lock() // output waits until the relay knows its handle
	r.h, err = s.dispatcher.Start(ctx, dispatch.Spec{Scope: scope, Principal: view.Principal(), Action: action, Output: r.output})
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.run(ctx, r.h)
}

// execAction builds the action of an ExecStart.
func execAction(view SessionView, start *heddlev1.ExecStart) (*executorv1.Action, error) {
	switch {
	case start == nil:
		return nil, errdefs.New(errdefs.InvalidArgument, "the first message of exec is start")
	case len(start.GetArgv()) == 0:
		return nil, errdefs.New(errdefs.InvalidArgument, "command must not be empty")
	case start.GetConnectionId() == "":
		return nil, errdefs.New(errdefs.InvalidArgument, "exec needs a connection id")
	case start.GetOutputCap() < 0 || start.GetTimeoutMs() < 0:
		return nil, errdefs.New(errdefs.InvalidArgument, "timeout and output cap must not be negative")
	}
	cwd := start.GetCwd()
	if cwd == "" {
		cwd = view.Cwd()
	}
	if !strings.HasPrefix(cwd, "/") {
		return nil, errdefs.New(errdefs.InvalidArgument, "cwd %q is not an absolute path", cwd)
	}
	policy := start.GetPolicy()
	if policy == nil {
		policy = view.DefaultPolicy()
	}
	stdin := executorv1.StdinMode_STDIN_MODE_NONE
	if start.GetStdin() || start.GetTty() {
		stdin = executorv1.StdinMode_STDIN_MODE_PIPE
	}
	return &executorv1.Action{
		ActionId: uuid.Must(uuid.NewV7()).String(), Attempt: 1, Policy: policy, Workspace: cwd,
		Kind: &executorv1.Action_StartProcess{StartProcess: &executorv1.StartProcess{
			Argv: start.GetArgv(), Cwd: cwd,
			Env: overlayEnv(view.Env(), start.GetEnv(), start.GetUnsetEnv()),
			Tty: start.GetTty(), Rows: start.GetRows(), Cols: start.GetCols(), Stdin: stdin,
			TimeoutMs: start.GetTimeoutMs(), Direct: true,
		}},
	}, nil
}

// overlayEnv lays set over base and removes unset; the order is stable.
func overlayEnv(base []string, set map[string]string, unset []string) []string {
	vars := map[string]string{}
	for _, kv := range base {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			vars[k] = v
		}
	}
	for k, v := range set {
		vars[k] = v
	}
	for _, k := range unset {
		delete(vars, k)
	}
	out := make([]string, 0, len(vars))
	for k, v := range vars {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

func connectionScope(sessionID, connectionID string) string {
	return "connection/" + sessionID + "." + connectionID
}

func (s *WorkspaceService) enter(sessionID, connectionID string) (scope string, err error) {
	scope = connectionScope(sessionID, connectionID)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conns[scope]
	if c == nil {
		c = &connection{session: sessionID, id: connectionID}
		s.conns[scope] = c
	}
	if c.execs >= maxExecs {
		return "", errdefs.New(errdefs.Overloaded, "connection has %d processes, no more are started", c.execs)
	}
	c.execs++
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	return scope, nil
}

func (s *WorkspaceService) leave(scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conns[scope]
	if c == nil {
		return // released meanwhile
	}
	if c.execs--; c.execs == 0 {
		c.idle = time.AfterFunc(connectionIdle, func() { s.releaseIdle(scope, c) })
	}
}

// releaseIdle gives an idle connection's sandbox back.
func (s *WorkspaceService) releaseIdle(scope string, c *connection) {
	s.mu.Lock()
	idle := s.conns[scope] == c && c.execs == 0
	if idle {
		delete(s.conns, scope)
	}
	s.mu.Unlock()
	if !idle {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), releaseWait, errors.New("executor did not confirm in time"))
	defer cancel()
	if err := s.dispatcher.ReleaseScope(ctx, scope); err != nil {
		s.log.Warn("release an idle connection", "scope", scope, "err", err)
	}
}

// ReleaseConnection ends everything that runs for one connection of a session
// and gives its lease back. The connection id may be empty: then all connections
// of the session, whose end it is.
func (s *WorkspaceService) ReleaseConnection(ctx context.Context, sessionID, connectionID string) error {
	var scopes []string
	s.mu.Lock()
	for scope, c := range s.conns {
		if c.session != sessionID || connectionID != "" && c.id != connectionID {
			continue
		}
		if c.idle != nil {
			c.idle.Stop()
		}
		delete(s.conns, scope)
		scopes = append(scopes, scope)
	}
	s.mu.Unlock()
	var errs []error
	for _, scope := range scopes {
		errs = append(errs, s.dispatcher.ReleaseScope(ctx, scope))
	}
	return errors.Join(errs...)
}
