// Package controlplane wires the parts of heddle's control plane: the store and
// the event log, sessions and settings, the agent that runs turns, the
// dispatcher that leases executors, and the gRPC services in front of them.
//
// A ControlPlane is made by New, put on a gRPC server by Register, and works
// while Run does. It holds no listener and no lock of the home; that is its
// caller's part.
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/provider"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/controlplane/command"
	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/controlplane/dispatch"
	"github.com/heddle-dev/heddle/controlplane/eventlog"
	"github.com/heddle-dev/heddle/controlplane/lease"
	"github.com/heddle-dev/heddle/controlplane/mcp/oauth"
	"github.com/heddle-dev/heddle/controlplane/server"
	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/controlplane/settings"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
	"github.com/heddle-dev/heddle/proto/failpoint"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// closeBound is how long the parts may take to stop.
const closeBound = 2 * time.Second

// Config configures a ControlPlane. Every field but Home has a default.
type Config struct {
	// Home is where configuration and state live. With an empty Dir there is no
	// config file, and nothing may be written but streams (Streams must be set).
	Home config.Home
	// Streams is the folder of output files; empty means Home.Dir/streams.
	Streams string
	Version string
	Logger  *slog.Logger
	// Store is "bolt" (default) or "memory".
	Store string
	// Grace is how long a lost session may come back; 0 means 5 s.
	Grace time.Duration
	// FenceAfter is how long a silent executor's leases hold; 0 means 30 s.
	FenceAfter time.Duration
	// ExecutorWait is how long an action waits for any executor; 0 means 10 s.
	ExecutorWait time.Duration
	// Env is the control plane's own environment.
	Env map[string]string
	// JoinToken that executors must show; empty means none.
	JoinToken string
	// ApprovalTimeout is the deadline of approvals where the config sets none; 0
	// means 1 h.
	ApprovalTimeout time.Duration
	// Limits bound what is taken on, over the config's [control_plane].
	Limits config.PlaneLimits
	// Clients overrides the clients of model providers, for tests; nil means those
	// of the config.
	Clients settings.Clients
}

// ControlPlane is one control plane of a home.
type ControlPlane struct {
	cfg        Config
	store      store.Store
	log        *eventlog.Log
	outputs    *outputs
	dispatcher *dispatch.Dispatcher
	sessions   *session.Registry
	agent      *agent.Agent
	server     *server.Server
	executors  *server.ExecutorService
	workspace  *server.WorkspaceService

	stopOnce sync.Once
	stop     chan struct{}
}

// New opens the store and makes the parts. What was open at the last stop is
// found here, so that questions can be answered as soon as the services are
// served; it goes on when Run is called.
func New(ctx context.Context, cfg Config) (*ControlPlane, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Env == nil {
		cfg.Env = map[string]string{}
	}
	if cfg.Streams == "" {
		cfg.Streams = filepath.Join(cfg.Home.Dir, "streams")
	}
	st, err := openStore(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{cfg: cfg, store: st, stop: make(chan struct{})}
	if err := c.wire(ctx); err != nil {
		return nil, errors.Join(err, c.close(ctx))
	}
	return c, nil
}

// limits are the bounds of the config's [control_plane], with those of the
// Config over them. A config that cannot be read bounds nothing: turns say what
// is wrong with it.
func (c *ControlPlane) limits() config.PlaneLimits {
	l := c.cfg.Limits
	if c.cfg.Home.Dir == "" {
		return l
	}
	loaded, err := config.Load(config.Options{Home: c.cfg.Home, Env: c.cfg.Env})
	if err != nil {
		c.cfg.Logger.Warn("read the limits of the config", "error", err)
		return l
	}
	set := loaded.PlaneLimits()
	return config.PlaneLimits{
		Threads: cmp.Or(l.Threads, set.Threads), Turns: cmp.Or(l.Turns, set.Turns),
		TurnsPerPrincipal: cmp.Or(l.TurnsPerPrincipal, set.TurnsPerPrincipal), WaitingActions: cmp.Or(l.WaitingActions, set.WaitingActions),
	}
}

func (c *ControlPlane) wire(ctx context.Context) error {
	cfg, limits := c.cfg, c.limits()
	var err error
	if c.log, err = eventlog.Open(ctx, eventlog.Config{Store: c.store, Logger: cfg.Logger}); err != nil {
		return err
	}
	outputs, err := newOutputs(cfg.Streams, filepath.Join(filepath.Dir(cfg.Streams), "artifacts"), cfg.Streams+"-ephemeral")
	if err != nil {
		return fmt.Errorf("open output streams: %w", err)
	}
	c.outputs = outputs
	var numbers lease.Meta = c.store
	if cfg.Store != "memory" {
		numbers = fileMeta{cfg.Home.Dir}
	}
	epochs, err := lease.OpenEpochs(ctx, numbers)
	if err != nil {
		return err
	}
	c.dispatcher, err = dispatch.New(ctx, dispatch.Config{
		Epochs: epochs, QueueLimit: limits.WaitingActions, FenceAfter: cfg.FenceAfter, Wait: cfg.ExecutorWait, JoinToken: cfg.JoinToken, Version: cfg.Version, Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	rules, problems, err := command.LoadRules(cfg.Home.Dir)
	if err != nil {
		return fmt.Errorf("load rules: %w", err)
	}
	for _, p := range problems {
		cfg.Logger.Warn("rules", "file", p.Path, "line", p.Line, "problem", p.Text)
	}
	c.sessions = session.NewRegistry(session.Config{
		Grace:    cfg.Grace,
		OnGone:   func(s *session.Session) { c.sessionGone(s) },
		OnUnheld: func(threadID string) { c.agent.Unheld(threadID) },
	})
	models := model.NewCatalog()
	clients := cfg.Clients
	if clients == nil {
		clients = provider.New(provider.Config{Logger: cfg.Logger})
	}
	account := config.NewAccount(cfg.Home)
	if err := account.Prepare(); err != nil {
		return err
	}
	resolver := settings.New(settings.Config{Home: cfg.Home, Account: account, Sessions: c.sessions, Models: models, Clients: clients, Env: cfg.Env, Version: cfg.Version, ApprovalTimeout: cfg.ApprovalTimeout, Logger: cfg.Logger,
		ReadFirst: func(ctx context.Context, sessionID string, paths []string) (string, []byte, error) {
			return c.workspace.ReadFirst(ctx, sessionID, paths)
		}})
	broker := approval.NewBroker(nil)
	logins := oauth.New(oauth.Config{Dir: filepath.Join(cfg.Home.Dir, config.SecretsDir), Version: cfg.Version, Logger: cfg.Logger})
	if cfg.Home.Dir != "" {
		if err := logins.Prepare(); err != nil {
			return err
		}
	}
	c.agent = agent.New(agent.Config{
		Log: c.log, Streams: outputs, Blobs: outputs, Dispatcher: &executors{c.dispatcher}, Broker: broker, Resolver: resolver, Rules: rules, Instructions: resolver.Instructions, Servers: resolver.Servers, Version: cfg.Version,
		Marks: c.store, Held: c.sessions.Held, Lost: c.sessions.Lost, Logger: cfg.Logger, Notify: c.sessions.Notify, MaxTurns: limits.Turns, MaxTurnsOf: limits.TurnsPerPrincipal, MaxThreads: limits.Threads, Home: cfg.Home.Dir, Logins: logins,
		CreateThread: func(ctx context.Context, sessionID string, row *heddlev1.Thread) (*heddlev1.Thread, error) {
			return c.server.CreateThread(ctx, sessionID, row)
		},
	})
	c.server = server.New(server.Config{
		Files: func(ctx context.Context, sessionID string, op *heddlev1.FileOperation) ([]byte, *heddlev1.FileOutcome, error) {
			return c.workspace.FileOperation(ctx, sessionID, op)
		},
		Log: c.log, Agent: c.agent, Broker: broker, Sessions: c.sessions, Settings: resolver, Models: models, Outputs: outputs, ConfigFile: config.NewWriter(cfg.Home), Account: account,
		Fleet: c.dispatcher, Home: cfg.Home.Dir, Version: cfg.Version, Stop: c.requestStop, Logger: cfg.Logger, Backup: backupOf(c.store),
	})
	c.executors = server.NewExecutorService(c.dispatcher)
	c.workspace = server.NewWorkspaceService(c.dispatcher, &views{sessions: c.sessions, settings: resolver})
	return c.agent.Recover(ctx, c.awaitSession)
}

// Register puts every service on a gRPC server.
func (c *ControlPlane) Register(r grpc.ServiceRegistrar) {
	c.server.Register(r)
	executorv1.RegisterExecutorServiceServer(r, c.executors)
	heddlev1.RegisterWorkspaceServiceServer(r, c.workspace)
}

// ServerOptions are the options that a gRPC server of these services needs.
func (c *ControlPlane) ServerOptions() []grpc.ServerOption { return ServerOptions() }

// ServerOptions are the interceptors that give errors their wire form, and the
// bounds of messages.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(errdefs.UnaryServer, server.FitUnary),
		grpc.ChainStreamInterceptor(errdefs.StreamServer, server.FitStream),
		grpc.MaxRecvMsgSize(64 << 20),
	}
}

// Run works until ctx ends, then suspends what is open and closes the store.
func (c *ControlPlane) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- c.dispatcher.Run(work) }()
	c.agent.Resume()
	var tidy sync.WaitGroup
	tidy.Go(func() { c.sweep(work) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-done:
		done <- nil
	}
	failpoint.Hit("controlplane/stopping")
	c.sessions.Drain()
	bound, stop := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
	defer stop()
	closed := c.agent.Close(bound)
	failpoint.Hit("controlplane/suspended")
	cancel()
	tidy.Wait()
	return errors.Join(err, closed, <-done, c.close(bound))
}

// close lets go of what New opened.
func (c *ControlPlane) close(ctx context.Context) error {
	var err error
	if c.log != nil {
		err = c.log.Close(ctx)
	}
	if c.outputs != nil {
		err = errors.Join(err, c.outputs.Close())
	}
	return errors.Join(err, c.store.Close())
}

// Drain tells clients that the end is near.
func (c *ControlPlane) Drain() { c.sessions.Drain() }

// Busy reports whether a session, turn or process needs the control plane.
func (c *ControlPlane) Busy() bool {
	return c.sessions.Len() > 0 || c.agent.Busy() > 0 || c.dispatcher.Active() > 0
}

// Stop is closed when a client asked for the end.
func (c *ControlPlane) Stop() <-chan struct{} { return c.stop }

func (c *ControlPlane) requestStop() { c.stopOnce.Do(func() { close(c.stop) }) }

// ExecutorExited is told that a local executor process ended: what it ran is
// lost now, not only at its fence.
func (c *ControlPlane) ExecutorExited(pid int, err error) {
	if err != nil {
		c.dispatcher.ExecutorAbsent(err.Error())
	}
	for _, e := range c.dispatcher.Status() {
		if e.GetPid() == int64(pid) {
			c.cfg.Logger.Warn("executor ended", "executor", e.GetExecutorId(), "pid", pid, "error", err)
			c.dispatcher.ExecutorDied(e.GetExecutorId())
		}
	}
}

func (c *ControlPlane) sessionGone(s *session.Session) {
	c.agent.SessionGone(s.ID)
	go c.releaseConnections(s.ID)
	if s.Peer.PID != 0 {
		if err := c.store.SetMeta(context.Background(), session.PeerKey(s.ID), nil); err != nil {
			c.cfg.Logger.Warn("forget a session", "session", s.ID, "error", err)
		}
	}
}

// releaseConnections ends what the connections of a session ran: they end with
// it, whether their gateway said so or not.
func (c *ControlPlane) releaseConnections(sessionID string) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseBound)
	defer cancel()
	if err := c.workspace.ReleaseConnection(ctx, sessionID, ""); err != nil {
		c.cfg.Logger.Warn("end what a session's connections ran", "session", sessionID, "error", err)
	}
}

// awaitSession waits for the client of a turn that was open at the last stop.
func (c *ControlPlane) awaitSession(ctx context.Context, sessionID string) bool {
	if sessionID == "" {
		return false
	}
	v, err := c.store.Meta(ctx, session.PeerKey(sessionID))
	if err != nil {
		c.cfg.Logger.Warn("look up a session", "session", sessionID, "error", err)
	}
	return c.sessions.AwaitBack(ctx, sessionID, session.ParsePeer(string(v)))
}
