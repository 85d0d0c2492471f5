// Package executor runs actions for a control plane, in sandboxes, under leases.
//
// An Executor dials the control plane, registers, takes leases and does actions
// until it is told to stop. Losing the control plane ends the session and
// nothing else: work goes on until the fence of its lease, and the executor
// comes back with what it holds. Sub-packages: session is one registration,
// runner holds leases and actions, journal survives the process, output keeps
// bytes until they are acknowledged, patch and inspect do file work.
package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/heddle-dev/heddle/executor/journal"
	"github.com/heddle-dev/heddle/executor/runner"
	"github.com/heddle-dev/heddle/executor/session"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Protocol versions that this executor speaks.
const (
	MinProtocol = 1
	MaxProtocol = 1
)

const (
	backoffFirst = 20 * time.Millisecond
	// backoffMost bounds the wait between attempts: a control plane on this
	// machine is asked often, one of a fleet seldom.
	backoffMost      = 10 * time.Second
	backoffMostLocal = 500 * time.Millisecond
	// healthy is how long a session must have lived to start over with backoffFirst.
	healthy = 5 * time.Second
	// stopTime bounds a graceful stop.
	stopTime = 4 * time.Second
)

// ErrOrphaned is returned by Run when the parent is gone and nothing is left to
// do for anyone.
var ErrOrphaned = errors.New("parent process is gone and no lease is held")

var errNewReport = errors.New("what the sandboxes enforce has changed")

// Config of an Executor.
type Config struct {
	// Addrs are control planes, tried in turn: unix:///path or host:port.
	Addrs []string
	// TLS secures host:port addresses. Without it only loopback ones are dialled.
	TLS credentials.TransportCredentials
	// DialOptions are added to those of each connection.
	DialOptions []grpc.DialOption
	// StateDir keeps the executor's id, journal and output; made when missing,
	// mode 0700, for one executor at a time.
	StateDir string
	// ID overrides the id kept in StateDir.
	ID string
	// Labels for matching; arch and os are added.
	Labels map[string]string
	// Capacity in actions at a time; 0 means runner.DefaultCapacity.
	Capacity int
	// JoinToken is shown at registration when not empty.
	JoinToken string
	// Boxes makes sandboxes and Report says what they enforce (see SetReport).
	Boxes  runner.Boxes
	Report *heddlev1.SandboxReport
	// Orphaned is closed when the process that wanted this executor is gone:
	// from then on Run ends as soon as it has neither session nor lease.
	Orphaned <-chan struct{}
	Version  string
	// Logger receives diagnostics; nil discards.
	Logger *slog.Logger
}

// Executor is one executor process.
type Executor struct {
	cfg     Config
	log     *slog.Logger
	targets []target
	state   *stateDir
	boot    string
	journal *journal.Journal
	runner  *runner.Runner

	mu      sync.Mutex
	report  *heddlev1.SandboxReport
	session context.CancelCauseFunc // ends the present session; nil without one
}

// New opens the state directory. Close it with Run.
func New(cfg Config) (*Executor, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Executor{cfg: cfg, log: cfg.Logger, report: cfg.Report}
	for _, addr := range cfg.Addrs {
		t, err := parseTarget(addr, cfg.TLS)
		if err != nil {
			return nil, err
		}
		e.targets = append(e.targets, t)
	}
	if len(e.targets) == 0 {
		return nil, errors.New("executor config: no address of a control plane")
	}
	var err error
	if e.state, err = openState(cfg.StateDir, cfg.ID); err != nil {
		return nil, err
	}
	if err := e.open(); err != nil {
		return nil, errors.Join(err, e.state.close())
	}
	return e, nil
}

func (e *Executor) open() (err error) {
	if e.boot, err = bootID(); err != nil {
		return err
	}
	if e.journal, err = journal.Open(journal.Config{Dir: e.state.dir, BootID: e.boot, Logger: e.log}); err != nil {
		return err
	}
	e.runner, err = runner.New(runner.Config{
		Boxes: e.cfg.Boxes, Journal: e.journal, SpoolDir: e.state.spool, Capacity: e.cfg.Capacity,
		Report: e.Report, Logger: e.log,
	})
	return err
}

// ID is what the control plane knows the executor by.
func (e *Executor) ID() string { return e.state.id }

// Report is what the executor says about its sandboxes.
func (e *Executor) Report() *heddlev1.SandboxReport {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.report
}

// Held returns the number of leases and of actions that still run.
func (e *Executor) Held() (leases, running int) { return e.runner.Held() }

// SetReport replaces the report. The executor registers anew, with what it holds,
// so that the control plane learns of it.
func (e *Executor) SetReport(r *heddlev1.SandboxReport) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.report = r
	if e.session != nil {
		e.session(errNewReport)
	}
}

// Run serves until ctx ends or, orphaned, until nothing is left to do. It ends
// every sandbox before it returns. Run may be called once.
func (e *Executor) Run(ctx context.Context) error {
	// Sessions outlive ctx, so that results and the end of leases can be told.
	sessions, endSessions := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endSessions(nil)
	ended := make(chan error, 1)
	go func() { ended <- e.reconnect(sessions) }()
	var err error
	select {
	case <-ctx.Done():
		e.log.Info("executor is stopping", "cause", context.Cause(ctx))
	case err = <-ended:
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if cerr := e.runner.Close(stop); cerr != nil {
		err = errors.Join(err, fmt.Errorf("stop executor: %w", cerr))
	}
	endSessions(errors.New("executor was stopped"))
	if ctx.Err() != nil {
		<-ended
	}
	return errors.Join(err, e.journal.Close(), e.state.close())
}

// reconnect makes one session after the other.
func (e *Executor) reconnect(ctx context.Context) error {
	wait, at, said := backoffFirst, 0, ""
	for {
		t := e.targets[at%len(e.targets)]
		began := time.Now()
		registered, err := e.once(ctx, t)
		if ctx.Err() != nil {
			return nil
		}
		// Each cause once: an address that nobody listens on is tried many times.
		level := slog.LevelDebug
		if text := fmt.Sprint(t.addr, err); text != said {
			level, said = slog.LevelWarn, text
		}
		e.log.Log(ctx, level, "session ended", "address", t.addr, "cause", err)
		if !registered {
			at++
		}
		if registered && time.Since(began) >= healthy {
			wait = backoffFirst
		}
		if err := e.pause(ctx, wait/2+rand.N(wait/2+1)); err != nil || ctx.Err() != nil {
			return err
		}
		most := backoffMost
		if t.local {
			most = backoffMostLocal
		}
		wait = min(2*wait, most)
	}
}

// pause waits before the next attempt. It fails with ErrOrphaned once nobody
// could want the executor any more.
func (e *Executor) pause(ctx context.Context, d time.Duration) error {
	gone := e.cfg.Orphaned
	if e.orphaned() {
		gone, d = nil, min(d, backoffMostLocal)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-gone:
	case <-timer.C:
	}
	if leases, running := e.runner.Held(); e.orphaned() && leases == 0 && running == 0 {
		return ErrOrphaned
	}
	return nil
}

func (e *Executor) orphaned() bool {
	select {
	case <-e.cfg.Orphaned:
		return true
	default:
		return false
	}
}

// once is one session from dialling to its end.
func (e *Executor) once(ctx context.Context, t target) (registered bool, err error) {
	conn, err := t.dial(e.cfg.DialOptions)
	if err != nil {
		return false, fmt.Errorf("dial %s: %w", t.addr, err)
	}
	defer conn.Close()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	e.mu.Lock()
	e.session = end
	e.mu.Unlock()
	h := &handler{r: e.runner, log: e.log}
	err = session.Run(ctx, session.Config{Conn: conn, Register: e.register(), Handler: h, Silence: e.runner.Silence})
	if h.s != nil {
		e.runner.Detach(h.s)
	}
	return h.s != nil, err
}

func (e *Executor) register() *executorv1.Register {
	labels := map[string]string{"arch": runtime.GOARCH, "os": runtime.GOOS}
	maps.Copy(labels, e.cfg.Labels)
	reg := &executorv1.Register{
		ExecutorId: e.state.id, Version: e.cfg.Version, MinProtocol: MinProtocol, MaxProtocol: MaxProtocol,
		Labels: labels, SandboxReport: e.Report(), BootId: e.boot, Pid: int64(os.Getpid()), JoinToken: e.cfg.JoinToken,
	}
	e.runner.Announce(reg)
	return reg
}

// handler ties one session to the runner.
type handler struct {
	r   *runner.Runner
	log *slog.Logger
	s   *session.Session
}

func (h *handler) Connected(s *session.Session) {
	h.s = s
	h.log.Info("registered", "session_id", s.ID())
	h.r.Attach(s)
}

func (h *handler) Handle(s *session.Session, m *executorv1.ConnectResponse) error {
	return h.r.Handle(s, m)
}
