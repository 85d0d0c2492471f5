package agent

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/controlplane/mcp"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// serversWait bounds how long a turn waits for servers that still start,
	// counted from their start; a later one is offered from then on.
	serversWait = 5 * time.Second
	// maxLooks bounds the starts of servers for an answer alone.
	maxLooks = 4
)

// ServersOf finds the MCP servers of a thread's settings (nil: those of the
// session alone).
type ServersOf func(ctx context.Context, settings *heddlev1.ThreadSettings, sessionID string) ([]mcp.Server, error)

// servers are the MCP servers of a live thread.
type servers struct {
	// gate serialises starts and ends.
	gate chan struct{}
	// ended means that none are started any more; guarded by gate.
	ended   bool
	session string
	// set is guarded by the thread's lock.
	set *mcp.Set
	// allowed are the tools that the person let be called from now on, guarded by
	// the thread's lock.
	allowed map[string]bool
}

func newServers() servers {
	return servers{gate: make(chan struct{}, 1), allowed: map[string]bool{}}
}

// startServers starts the thread's MCP servers unless they run.
func (lt *live) startServers(ctx context.Context, sessionID string) (*mcp.Set, error) {
	a := lt.agent
	if a.cfg.Servers == nil {
		return nil, nil
	}
	select {
	case lt.servers.gate <- struct{}{}:
		defer func() { <-lt.servers.gate }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if set := lt.mcpSet(); set != nil || lt.servers.ended {
		return set, nil
	}
	found, err := a.cfg.Servers(ctx, lt.currentSettings(), sessionID)
	if err != nil {
		return nil, err
	}
	set := mcp.Start(found, lt.host())
	lt.servers.session = sessionID
	lt.mu.Lock()
	lt.servers.set = set
	lt.mu.Unlock()
	return set, nil
}

// RequireServers starts the thread's MCP servers and fails, naming them, when
// required ones do not start; the next call starts all anew.
func (a *Agent) RequireServers(ctx context.Context, threadID, sessionID string) error {
	lt, err := a.thread(ctx, threadID)
	if err != nil {
		return err
	}
	set, err := lt.startServers(ctx, sessionID)
	if err != nil || set == nil {
		return err
	}
	err = set.Require(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	lt.mu.Lock()
	if lt.servers.set == set {
		lt.servers.set = nil
	}
	lt.mu.Unlock()
	set.Retire()
	return errdefs.New(errdefs.InvalidConfig, "required MCP servers did not start: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
}

func (lt *live) mcpSet() *mcp.Set {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.servers.set
}

// host lets a thread's servers run in its scope and tells of their start.
func (lt *live) host() mcp.Host {
	return mcp.Host{
		Version: lt.agent.cfg.Version, Logins: lt.agent.cfg.Logins,
		Launch: func(ctx context.Context, s *mcp.Server, output func(*executorv1.OutputChunk) error) (mcp.Process, error) {
			places, err := lt.placesFor(ctx, s.Cwd, s.Policy)
			if err != nil {
				return nil, err
			}
			return lt.agent.launch(ctx, lt.id, lt.principal, s, places, output)
		},
		Status: func(server, state, problem string) {
			lt.note(&heddlev1.Event{Payload: &heddlev1.Event_McpServerStatus{McpServerStatus: &heddlev1.McpServerStatus{Name: server, Status: state, Error: problem}}})
		},
	}
}

// launch starts a server's program under a scope of its own policy. ctx bounds
// the start alone.
func (a *Agent) launch(ctx context.Context, scope, principal string, s *mcp.Server, places []*heddlev1.Place, output func(*executorv1.OutputChunk) error) (mcp.Process, error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	h, err := a.cfg.Dispatcher.Start(life, Spec{ThreadID: scope, Principal: principal, Output: output, Action: &executorv1.Action{
		ActionId: newID(), Attempt: 1, Policy: proto.CloneOf(s.Policy), Workspace: s.Cwd, Places: places,
		Kind: &executorv1.Action_StartProcess{StartProcess: &executorv1.StartProcess{
			Argv: s.Argv, Cwd: s.Cwd, Env: s.Env, Stdin: executorv1.StdinMode_STDIN_MODE_PIPE, Direct: true,
		}},
	}})
	if err != nil {
		end()
		return nil, err
	}
	return &serverProcess{Handle: h, end: end}, nil
}

// serverProcess is a server's program; its context ends with it.
type serverProcess struct {
	Handle
	end context.CancelFunc
}

// Terminate kills the program.
func (p *serverProcess) Terminate(ctx context.Context) error { return p.Handle.Terminate(ctx) }

// Settle lets go of the program's result.
func (p *serverProcess) Settle() {
	p.Handle.Settle()
	p.end()
}

// endServers ends the thread's servers for good.
func (lt *live) endServers() {
	lt.servers.gate <- struct{}{}
	lt.servers.ended = true
	set := lt.mcpSet()
	<-lt.servers.gate
	if set != nil {
		set.Close()
	}
}

// ReloadServers reads the config anew for every thread and starts its servers
// again. Calls that run are let finish on the old ones.
func (a *Agent) ReloadServers(ctx context.Context) error {
	var errs []error
	for _, lt := range a.threads() {
		errs = append(errs, lt.reloadServers(ctx))
	}
	return errors.Join(errs...)
}

func (lt *live) reloadServers(ctx context.Context) error {
	select {
	case lt.servers.gate <- struct{}{}:
		defer func() { <-lt.servers.gate }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	old := lt.mcpSet()
	if old == nil || lt.servers.ended {
		return nil
	}
	found, err := lt.agent.cfg.Servers(ctx, lt.currentSettings(), lt.servers.session)
	if err != nil {
		return err
	}
	set := mcp.Start(found, lt.host())
	lt.mu.Lock()
	lt.servers.set = set
	lt.mu.Unlock()
	old.Retire()
	return nil
}

// withServers calls f with the servers of a thread, or with those of the
// session's config, which are started for it alone.
func (a *Agent) withServers(ctx context.Context, threadID, sessionID string, f func(*mcp.Set) error) error {
	if a.cfg.Servers == nil {
		return errdefs.New(errdefs.Internal, "this control plane has no MCP servers")
	}
	if threadID != "" {
		lt, err := a.thread(ctx, threadID)
		if err != nil {
			return err
		}
		set, err := lt.startServers(ctx, sessionID)
		if err != nil {
			return err
		}
		if set == nil {
			return errdefs.New(errdefs.Busy, "thread %s is being closed", threadID)
		}
		return f(set)
	}
	select {
	case a.looks <- struct{}{}:
		defer func() { <-a.looks }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	found, err := a.cfg.Servers(ctx, nil, sessionID)
	if err != nil {
		return err
	}
	scope := "mcp-" + newID()
	set := mcp.Start(found, mcp.Host{
		Version: a.cfg.Version, Logins: a.cfg.Logins,
		Launch: func(ctx context.Context, s *mcp.Server, output func(*executorv1.OutputChunk) error) (mcp.Process, error) {
			return a.launch(ctx, scope, "", s, nil, output)
		},
	})
	err = f(set)
	set.Close()
	a.wg.Go(func() {
		if err := a.cfg.Dispatcher.ReleaseThread(context.WithoutCancel(a.ctx), scope); err != nil {
			a.cfg.Logger.Warn("release the lease of MCP servers", "scope", scope, "error", err)
		}
	})
	return err
}

// DescribeServers tells of the MCP servers of a thread or, without one, of the
// session's config.
func (a *Agent) DescribeServers(ctx context.Context, threadID, sessionID, name string, toolsOnly bool) (list []*heddlev1.McpServer, err error) {
	err = a.withServers(ctx, threadID, sessionID, func(s *mcp.Set) error {
		list = s.Describe(ctx, name, toolsOnly)
		return nil
	})
	return list, err
}

// CallServerTool calls a tool of a thread's server for a client. Questions of
// the server are declined: there is no turn to ask in.
func (a *Agent) CallServerTool(ctx context.Context, threadID, sessionID, server, tool string, args map[string]any) (res *structpb.Struct, err error) {
	err = a.withServers(ctx, threadID, sessionID, func(s *mcp.Set) (err error) {
		res, err = s.Call(ctx, server, &mcp.Call{Tool: tool, Arguments: args})
		return serversOwn(err)
	})
	return res, err
}

// ReadServerResource reads a resource of a server.
func (a *Agent) ReadServerResource(ctx context.Context, threadID, sessionID, server, uri string) (contents []*structpb.Struct, err error) {
	err = a.withServers(ctx, threadID, sessionID, func(s *mcp.Set) (err error) {
		contents, err = s.Read(ctx, server, uri)
		return serversOwn(err)
	})
	return contents, err
}

// serversOwn gives the error that an MCP server answered with as the server gave
// it, with its code; every other error stays.
func serversOwn(err error) error {
	if own, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return errdefs.New(errdefs.Internal, "%s", strings.ToValidUTF8(own.Message, "\uFFFD")).With("mcp_code", strconv.FormatInt(own.Code, 10))
	}
	return err
}
