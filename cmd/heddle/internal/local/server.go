package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/peer"
)

// Backend is what a Server serves: the control plane itself.
type Backend interface {
	// Register puts the services on a gRPC server.
	Register(grpc.ServiceRegistrar)
	// ServerOptions are the options the services need.
	ServerOptions() []grpc.ServerOption
	// Run works until ctx ends, then closes what it holds.
	Run(ctx context.Context) error
	// Drain tells clients that the end is near. Turns of theirs that may go on
	// elsewhere are suspended durably.
	Drain()
	// Busy reports whether a session, turn or process needs the control plane.
	Busy() bool
	// Stop is closed when a client asked for the end (Shutdown).
	Stop() <-chan struct{}
	// ExecutorExited is told when the local executor process ended.
	ExecutorExited(pid int, err error)
}

// ServerConfig configures a Server.
type ServerConfig struct {
	// Home is the folder whose lock is held.
	Home string
	// Open makes the backend once the home's lock is held.
	Open func(ctx context.Context) (Backend, error)
	// Listeners are served beside the home's socket. The server closes them.
	Listeners []net.Listener
	// Credentials protect the TCP listeners; nil for none.
	Credentials credentials.TransportCredentials
	// Socket serves the home's control socket.
	Socket bool
	// Executor describes the local executor; nil for none.
	Executor *ExecutorConfig
	// IdleAfter ends the server when nothing needed it for so long; 0 never.
	IdleAfter time.Duration
	// LockWait is how long a control plane that is just ending is waited for.
	// Default 10 s.
	LockWait time.Duration
	// Ready is called once, with nil when clients can connect.
	Ready  func(error)
	Logger *slog.Logger
}

// drainTimeout bounds how long open calls may take at the end. Clients that are
// told to go do so at once.
const drainTimeout = 300 * time.Millisecond

// keepaliveEvery is how often a silent connection is tried; peers may ask twice
// as often.
const keepaliveEvery = 20 * time.Second

// Serve runs a control plane until ctx ends, a client stops it, or it is idle.
func Serve(ctx context.Context, cfg ServerConfig) (err error) {
	if cfg.LockWait == 0 {
		cfg.LockWait = 10 * time.Second
	}
	ready := cfg.Ready
	tell := func(err error) {
		if ready != nil {
			ready(err)
			ready = nil
		}
	}
	defer func() { tell(err) }()
	defer func() {
		for _, l := range cfg.Listeners {
			_ = l.Close()
		}
	}()

	p, err := pathsOf(cfg.Home)
	if err != nil {
		return err
	}
	lock, err := lockHome(ctx, p, cfg.LockWait)
	if err != nil {
		return err
	}
	defer lock.release()

	backend, err := cfg.Open(ctx)
	if err != nil {
		return err
	}
	if cfg.Socket {
		l, err := listenSocket(p)
		if err != nil {
			return errors.Join(err, closeBackend(ctx, backend))
		}
		cfg.Listeners = append(cfg.Listeners, l)
	}
	if cfg.Executor != nil && cfg.Executor.Args == nil {
		return errors.Join(errors.New("the executor needs arguments"), closeBackend(ctx, backend))
	}
	s := &server{cfg: cfg, paths: p, backend: backend, started: time.Now()}
	return s.run(ctx, func() { tell(nil) })
}

// closeBackend ends a backend that was opened and never run.
func closeBackend(ctx context.Context, b Backend) error {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := b.Run(ended); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func lockHome(ctx context.Context, p paths, wait time.Duration) (*fileLock, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errors.New("held by another process"))
	defer cancel()
	lock, err := acquireLock(ctx, p.lock)
	if err != nil {
		return nil, fmt.Errorf("home %s is in use by a control plane (pid %d): %w", p.home, holder(p.lock), err)
	}
	if err := lock.note(os.Getpid()); err != nil {
		lock.release()
		return nil, fmt.Errorf("write lock file: %w", err)
	}
	return lock, nil
}

// listenSocket opens the home's socket. The caller holds the home's lock, so a
// file that is already there belongs to nobody.
func listenSocket(p paths) (net.Listener, error) {
	if err := os.Remove(p.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove stale socket: %w", err)
	}
	// Every process of this user may set its own umask; the mode must be right
	// from the moment the name exists.
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", p.socket)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on the home's socket: %w", err)
	}
	if err := os.WriteFile(p.socketRecord, []byte(p.socket+"\n"), 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("record socket path: %w", err)
	}
	return l, nil
}

type server struct {
	cfg     ServerConfig
	paths   paths
	backend Backend
	started time.Time
}

func (s *server) run(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	activity := newActivity()
	plain, secured := s.newServer(activity, nil), (*grpc.Server)(nil)
	if s.cfg.Credentials != nil {
		secured = s.newServer(activity, s.cfg.Credentials)
	}

	// The backend outlives the listeners: what they accepted must be finished
	// before it closes its store.
	backendCtx, stopBackend := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackend()
	backendDone := make(chan error, 1)
	go func() { backendDone <- s.backend.Run(backendCtx) }()
	for _, l := range s.cfg.Listeners {
		serve, guarded := plain, peer.Guard(l, s.cfg.Logger)
		if _, tcp := l.(*net.TCPListener); tcp && secured != nil {
			serve, guarded = secured, l // the certificate says who it is
		}
		go func() {
			if err := serve.Serve(guarded); err != nil {
				cancel(fmt.Errorf("serve %s: %w", l.Addr(), err))
			}
		}()
	}
	stopExecutor := s.startExecutor(ctx)
	ready()
	s.cfg.Logger.Info("control plane ready", "home", s.paths.home, "pid", os.Getpid(), "after", time.Since(s.started))

	var runErr error
	handOver := false
	select {
	case runErr = <-backendDone:
		backendDone <- nil
		cancel(runErr)
	case <-s.backend.Stop():
		s.cfg.Logger.Info("control plane stops: a client asked for it")
	case <-s.idle(ctx, activity):
		s.cfg.Logger.Info("control plane stops: idle")
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			runErr = cause
		}
		// What runs now can be taken back by the next control plane, for as
		// long as the executor's fence allows.
		handOver = s.backend.Busy()
		s.cfg.Logger.Info("control plane stops", "cause", context.Cause(ctx), "hand_over", handOver)
	}
	// From here on no new client may come; one that does starts the next
	// control plane, which waits for the home's lock.
	for _, l := range s.cfg.Listeners {
		_ = l.Close()
	}
	s.backend.Drain()
	stopExecutor(handOver)
	stopServers(plain, secured)
	stopBackend()
	if err := <-backendDone; err != nil && !errors.Is(err, context.Canceled) {
		runErr = errors.Join(runErr, err)
	}
	return runErr
}

// startExecutor keeps the local executor until stop is called. With leave it
// goes on by itself.
func (s *server) startExecutor(ctx context.Context) (stop func(leave bool)) {
	if s.cfg.Executor == nil {
		return func(bool) {}
	}
	k := executorKeeper{
		cfg: *s.cfg.Executor, args: s.cfg.Executor.Args("unix://" + s.paths.socket), lockPath: s.paths.executorLock,
		exited: s.backend.ExecutorExited, log: s.cfg.Logger,
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { defer close(done); k.run(ctx) }()
	return func(leave bool) {
		if leave && !s.cfg.Executor.Tied {
			cancel(errLeave)
		} else {
			cancel(nil)
		}
		<-done
	}
}

func (s *server) newServer(a *activity, creds credentials.TransportCredentials) *grpc.Server {
	opts := append(s.backend.ServerOptions(),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.StatsHandler(a),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveEvery, Timeout: keepaliveEvery}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveEvery / 2, PermitWithoutStream: true}))
	if creds != nil {
		opts = append(opts, grpc.Creds(creds))
	}
	srv := grpc.NewServer(opts...)
	s.backend.Register(srv)
	return srv
}

// stopServers lets open calls finish for a while, then cuts them.
func stopServers(servers ...*grpc.Server) {
	var wg sync.WaitGroup
	for _, srv := range servers {
		if srv == nil {
			continue
		}
		wg.Go(func() {
			cut := time.AfterFunc(drainTimeout, srv.Stop)
			srv.GracefulStop()
			cut.Stop()
		})
	}
	wg.Wait()
}

// idle is closed when nothing needed the control plane for IdleAfter.
func (s *server) idle(ctx context.Context, activity *activity) <-chan struct{} {
	if s.cfg.IdleAfter <= 0 {
		return nil
	}
	idle := make(chan struct{})
	go func() {
		tick := time.NewTicker(max(s.cfg.IdleAfter/8, time.Millisecond))
		defer tick.Stop()
		since := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if s.backend.Busy() || activity.open() {
					since = now
				}
				since = later(since, activity.last())
				if now.Sub(since) >= s.cfg.IdleAfter {
					close(idle)
					return
				}
			}
		}
	}()
	return idle
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Embedded starts a control plane inside this process. Its clients dial the
// returned function; the home's lock is held until stop returns.
func Embedded(ctx context.Context, cfg ServerConfig) (dial func(context.Context) (*grpc.ClientConn, error), stop func() error, err error) {
	pipe := newPipe()
	cfg.Listeners = append(cfg.Listeners, pipe)
	ready := make(chan error, 1)
	cfg.Ready = func(err error) { ready <- err }
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, cfg) }()
	if err := <-ready; err != nil {
		cancel()
		<-done
		return nil, nil, err
	}
	stop = func() error {
		cancel()
		err := <-done
		done <- io.EOF // a second call gets an answer too
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	return pipe.dial, stop, nil
}
