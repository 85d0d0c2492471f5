package server

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	return &WorkspaceService{dispatcher: d, sessions: sessions, log: slog.Default(), conns: map[string]*connection{}}
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

// relay connects one Exec stream with one action.
type relay struct {
	stream grpc.BidiStreamingServer[heddlev1.ExecRequest, heddlev1.ExecResponse]
	caps   caps

	// mu lets one sender at a time send; it guards told and the setting of h.
	mu sync.Mutex
	// told is set when the started message was sent, which goes first.
	told bool
	h    *dispatch.Handle
}

// run follows the process to its end.
func (r *relay) run(ctx context.Context, h *dispatch.Handle) error {
	go r.requests(ctx, h)
	select {
	case <-h.Started():
		if h.PID() != 0 {
			if err := r.send(nil); err != nil {
				return err // the end of the stream's context ends the process
			}
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	res, err := h.Result(ctx)
	if err != nil {
		return err
	}
	h.Ack()
	return r.send(&heddlev1.ExecResponse{Message: &heddlev1.ExecResponse_Exited{Exited: exited(res)}})
}

func exited(res *executorv1.ActionResult) *heddlev1.ExecExited {
	if e := res.GetError(); e != nil {
		return &heddlev1.ExecExited{Error: e}
	}
	p := res.GetProcess()
	return &heddlev1.ExecExited{ExitCode: p.GetExitCode(), Verdict: p.GetVerdict(), DurationMs: p.GetDurationMs()}
}

// requests passes on what the client sends until its stream ends, which ends
// the process.
func (r *relay) requests(ctx context.Context, h *dispatch.Handle) {
	for {
		m, err := r.stream.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				slog.Default().Debug("exec request stream failed", "action_id", h.ActionID(), "err", err)
			}
			_ = h.Terminate(ctx)
			return
		}
		switch k := m.GetMessage().(type) {
		case *heddlev1.ExecRequest_Stdin:
			err = h.Stdin(ctx, k.Stdin.GetData(), k.Stdin.GetClose())
		case *heddlev1.ExecRequest_Resize:
			err = h.Resize(ctx, k.Resize.GetRows(), k.Resize.GetCols())
		case *heddlev1.ExecRequest_Terminate:
			err = h.Terminate(ctx)
		default:
			_ = h.Terminate(ctx)
			return
		}
		if err != nil {
			return // the process has ended
		}
	}
}

// output passes on a chunk; it is called in order.
func (r *relay) output(c *executorv1.OutputChunk) error {
	data, reached, pass := r.caps.cut(c.GetStream(), c.GetData())
	if !pass {
		return nil
	}
	return r.send(&heddlev1.ExecResponse{Message: &heddlev1.ExecResponse_Output{Output: &heddlev1.ExecOutput{
		Stream: c.GetStream(), Data: data, CapReached: reached,
	}}})
}

// send sends a message, started before anything else; nil means only that.
func (r *relay) send(m *heddlev1.ExecResponse) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told && m.GetExited().GetError() == nil {
		r.told = true
		started := &heddlev1.ExecResponse{Message: &heddlev1.ExecResponse_Started{Started: &heddlev1.ExecStarted{Pid: r.h.PID()}}}
		if err := r.stream.Send(started); err != nil {
			return fmt.Errorf("send exec started: %w", err)
		}
	}
	if m == nil {
		return nil
	}
	if err := r.stream.Send(m); err != nil {
		return fmt.Errorf("send exec answer: %w", err)
	}
	return nil
}

// caps cuts each stream after a number of bytes; 0 means no cap.
type caps struct {
	limit  int64
	passed map[int32]int64
}

func newCaps(limit int64) caps { return caps{limit: limit, passed: map[int32]int64{}} }

// cut returns the part of data to pass on, whether the cap is reached with it,
// and whether there is anything to pass on at all.
func (c *caps) cut(stream int32, data []byte) (part []byte, reached, pass bool) {
	if c.limit <= 0 {
		return data, false, len(data) > 0
	}
	room := c.limit - c.passed[stream]
	if room <= 0 || len(data) == 0 {
		return nil, false, false
	}
	part = data[:min(room, int64(len(data)))]
	c.passed[stream] += int64(len(part))
	return part, c.passed[stream] == c.limit, true
}
