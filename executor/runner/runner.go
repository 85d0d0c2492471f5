// Package runner holds an executor's leases and does its actions.
//
// A Runner outlives sessions: what it holds and runs goes on while no control
// plane is connected, until the fence of its lease. Guarantees:
//
//   - An action id is done at most once; a repeated one is joined to the running
//     action or answered with the recorded outcome.
//   - An action is journalled before it starts and its result before it is sent;
//     the result is sent again on every session until it is acknowledged.
//   - All output of an action is sent before its result.
//   - Nothing of a lease runs past its deadline: the guests hold it, and a timer
//     here that fires a little earlier.
//   - A message under a lease or epoch that is not held is refused.
//
// All methods may be called concurrently. Every goroutine ends with Close.
package runner

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/executor/inspect"
	"github.com/heddle-dev/heddle/executor/journal"
	"github.com/heddle-dev/heddle/executor/login"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// DefaultCapacity is the number of actions done at a time.
	DefaultCapacity = 64
	// maxOutbox bounds results that are not acknowledged. Past it the oldest
	// one whose lease is gone is given up.
	maxOutbox = 1024
	// maxLeases bounds the leases held.
	maxLeases = 4096
	// keptRounds is how many sendings of a RenewAck are remembered.
	keptRounds = 64
)

// Link is a session as far as the runner uses it. Send may block and is called
// concurrently.
type Link interface {
	Send(*executorv1.ConnectRequest) error
	Window() int64
}

// Config of a Runner.
type Config struct {
	Boxes   Boxes
	Journal *journal.Journal
	// SpoolDir is an existing directory for output that is not acknowledged.
	SpoolDir string
	// Capacity is the number of actions at a time; 0 means DefaultCapacity.
	Capacity int
	// Report returns what Prepare answers.
	Report func() *heddlev1.SandboxReport
	// Logger receives diagnostics; nil discards.
	Logger *slog.Logger
}

// Runner is the state of an executor between its sessions.
type Runner struct {
	cfg    Config
	log    *slog.Logger
	logins *login.Profiles
	host   string // of places

	mu      sync.Mutex
	link    Link
	leases  map[string]*lease  // by lease id
	ending  map[*lease]bool    // taken away, their processes may still be there
	granted uint64             // leases so far
	actions map[string]*action // by action id, until their result is acknowledged
	running int                // actions without a result
	acks    ackState
	closed  bool

	work sync.WaitGroup // every goroutine of the runner
	stop chan struct{}  // closed by Close: delivery ends
}

// New returns a Runner without leases.
func New(cfg Config) (*Runner, error) {
	if cfg.Boxes == nil || cfg.Journal == nil || cfg.SpoolDir == "" || cfg.Report == nil {
		return nil, errors.New("runner config: boxes, journal, spool directory and report are needed")
	}
	if cfg.Capacity <= 0 {
		cfg.Capacity = DefaultCapacity
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Runner{
		cfg: cfg, log: cfg.Logger, logins: login.New(), host: inspect.Host(),
		leases:  map[string]*lease{},
		ending:  map[*lease]bool{},
		actions: map[string]*action{},
		stop:    make(chan struct{}),
	}, nil
}

// spawn runs f in a goroutine that Close waits for. The caller holds mu and has
// seen that the runner is not closed, or is such a goroutine.
func (r *Runner) spawn(f func()) { r.work.Go(f) }

// spawnOpen is spawn for everybody else.
func (r *Runner) spawnOpen(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.spawn(f)
	}
}

// Announce fills in what a registration says about leases and running actions,
// and notes its time: the control plane counts from it.
func (r *Runner) Announce(reg *executorv1.Register) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acks = ackState{registered: time.Now(), sent: map[uint64]time.Time{}}
	for _, l := range r.leases {
		reg.Leases = append(reg.Leases, l.proto())
	}
	for l := range r.ending {
		// Its absence would say that nothing runs under it any more. One that
		// only waits for its results to go out is left out, so that the control
		// plane need not ask about it; the results come on the new session.
		if again := r.leases[l.id]; !l.gone && (again == nil || again.epoch != l.epoch) {
			reg.Leases = append(reg.Leases, l.proto())
		}
	}
	for _, a := range r.actions {
		if run := a.announce(); run != nil {
			reg.Running = append(reg.Running, run)
		}
	}
	reg.Capacity, reg.ReportsInput = int32(r.cfg.Capacity), true
}

// Attach makes link the one that everything is sent on, and sends again what is
// not acknowledged.
func (r *Runner) Attach(link Link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.link = link
	for _, a := range r.actions {
		a.poke()
	}
	r.spawn(func() { r.sendRecovered(link) })
}

// Detach ends the use of link.
func (r *Runner) Detach(link Link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link == link {
		r.link = nil
	}
}

func (r *Runner) current() Link {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.link
}

// sendRecovered sends results that an earlier process of this executor left.
func (r *Runner) sendRecovered(link Link) {
	for _, id := range r.cfg.Journal.Unacked() {
		r.mu.Lock()
		live := r.actions[id] != nil
		r.mu.Unlock()
		if live {
			continue
		}
		if res := r.cfg.Journal.Result(id); res != nil {
			if link.Send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Result{Result: res}}) != nil {
				return
			}
		}
	}
}

// Handle takes one message of the session. It never waits for the network or a
// process. The error ends the session.
func (r *Runner) Handle(link Link, m *executorv1.ConnectResponse) error {
	switch m := m.GetMessage().(type) {
	case *executorv1.ConnectResponse_Assignments:
		return r.assign(m.Assignments.GetLeases())
	case *executorv1.ConnectResponse_Grant:
		return r.grant(m.Grant.GetLease())
	case *executorv1.ConnectResponse_Renewal:
		r.renew(link, m.Renewal)
	case *executorv1.ConnectResponse_Revoke:
		r.revoke(m.Revoke)
	case *executorv1.ConnectResponse_Action:
		r.submit(link, m.Action)
	case *executorv1.ConnectResponse_Control:
		r.control(m.Control)
	case *executorv1.ConnectResponse_OutputAck:
		r.outputAck(m.OutputAck)
	case *executorv1.ConnectResponse_ResultAck:
		r.resultAck(m.ResultAck.GetActionId())
	case *executorv1.ConnectResponse_NetworkVerdict:
		r.networkVerdict(m.NetworkVerdict)
	case *executorv1.ConnectResponse_Draining:
		r.log.Info("control plane is draining")
	default:
		return fmt.Errorf("message %T is not known to this executor", m)
	}
	return nil
}

// Held returns the number of leases and of actions that still run.
func (r *Runner) Held() (leases, running int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.leases), r.running
}

// Silence is how long the control plane may say nothing while leases are held:
// the shortest renew_by, 0 without leases.
func (r *Runner) Silence() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var limit time.Duration
	for _, l := range r.leases {
		if l.renewBy > 0 && (limit == 0 || l.renewBy < limit) {
			limit = l.renewBy
		}
	}
	return limit
}
