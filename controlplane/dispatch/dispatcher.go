package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/controlplane/lease"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// Errors that callers may branch on.
var (
	// ErrStopped ends the handles of a dispatcher that stops. The actions go on
	// at their executors and can be re-attached after a restart.
	ErrStopped = errors.New("control plane is stopping")
	// ErrEnded says that a control came after the end of the action.
	ErrEnded = errors.New("action has ended")
)

// Dispatcher assigns actions to executors. See the package comment.
type Dispatcher struct {
	cfg Config
	// base is the first epoch of this run; an announced lease below it was
	// granted before the start.
	base    uint64
	started time.Time
	wake    chan struct{}

	mu        sync.Mutex
	lessor    *lease.Lessor
	executors map[string]*executor
	scopes    map[string]*scope
	actions   map[string]*action
	waiting   []*action // by priority, then order
	order     uint64
	// dirty are the sessions with something to write once mu is free.
	dirty []*session
	// swept is set when the grace after the start is over.
	swept    bool
	stopping bool
	// claims are the Reattach calls that wait, by action id.
	claims map[string]*claim
	// expected names the executor that held a recovered scope.
	expected map[string]string
	// absence is why the executor of this machine is not there.
	absence string
}

// executor is one executor, connected or missed.
type executor struct {
	id        string
	principal string
	reg       *executorv1.Register
	peer      Peer
	session   *session // nil while it is away
	// actions it has: sent or started, result not here.
	actions map[string]*action
}

// scope is what is known of one scope besides its lease.
type scope struct {
	name      string
	principal string
	// unowned is set while the principal is not known (re-attached results).
	unowned bool
	actions map[string]*action
	// released are closed when the lease ends.
	released []chan struct{}
}

// New returns a Dispatcher. It asks cfg.Epochs for one epoch to know where this
// run starts.
func New(ctx context.Context, cfg Config) (*Dispatcher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	base, err := cfg.Epochs.Next(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("start dispatcher: %w", err)
	}
	return &Dispatcher{
		cfg:       cfg,
		base:      base,
		started:   cfg.Clock(),
		wake:      make(chan struct{}, 1),
		lessor:    lease.NewLessor(lease.Config{Skew: cfg.Skew}),
		executors: map[string]*executor{},
		scopes:    map[string]*scope{},
		actions:   map[string]*action{},
		claims:    map[string]*claim{},
		expected:  map[string]string{},
	}, nil
}

// Run renews leases and acts on deadlines until ctx ends; then it tells the
// executors, ends their sessions and every handle with ErrStopped. What runs
// goes on at the executors until a fence.
func (d *Dispatcher) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var planned time.Time
	for {
		select {
		case <-ctx.Done():
			d.shutdown()
			return nil
		case <-d.wake:
		case <-timer.C:
		}
		now := d.cfg.Clock()
		late := !planned.IsZero() && now.Sub(planned) > d.cfg.renewBy()/2
		planned = d.tick(now, late)
		timer.Reset(max(planned.Sub(d.cfg.Clock()), 0))
	}
}

// poke makes Run look again.
func (d *Dispatcher) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// unlock frees mu and gets what was queued onto the wire: inline when the caller
// may write, else by the sessions' writers.
func (d *Dispatcher) unlock(inline bool) {
	dirty := d.dirty
	d.dirty = nil
	d.mu.Unlock()
	for _, s := range dirty {
		if inline {
			s.out.flush(inlineBatch)
		} else {
			s.out.signal()
		}
	}
}

// post queues a message for a session and returns its position; mu is held.
func (d *Dispatcher) post(s *session, m *executorv1.ConnectResponse) (pos int64) {
	pos, err := s.out.put(m)
	if err != nil {
		s.end(err)
		return pos
	}
	if !slices.Contains(d.dirty, s) {
		d.dirty = append(d.dirty, s)
	}
	return pos
}

func (d *Dispatcher) scope(name, principal string) *scope {
	sc := d.scopes[name]
	if sc == nil {
		sc = &scope{name: name, principal: principal, actions: map[string]*action{}}
		d.scopes[name] = sc
	}
	if sc.unowned {
		sc.principal, sc.unowned = principal, false
	}
	return sc
}

// dropScope forgets a scope without lease, actions and waiters.
func (d *Dispatcher) dropScope(name string) {
	sc := d.scopes[name]
	if sc == nil || len(sc.actions) > 0 || len(sc.released) > 0 {
		return
	}
	if _, held := d.lessor.Scope(name); !held {
		delete(d.scopes, name)
	}
}

// conclude notes the end of an action; its handle ends when the output that
// came before was consumed. mu is held.
func (d *Dispatcher) conclude(a *action, res *executorv1.ActionResult, err error) {
	if a.state >= stateEnded {
		return
	}
	d.unqueue(a)
	a.state, a.result, a.err, a.lostAt = stateEnded, res, err, time.Time{}
	closeOnce(a.started)
	d.detachAction(a)
	d.kick(a)
}

// finish ends the handle of a concluded action; mu is held.
func (d *Dispatcher) finish(a *action) {
	a.state = stateDone
	if a.failed != nil {
		a.result, a.err = nil, fmt.Errorf("deliver output of action %s: %w", a.id, a.failed)
	}
	a.queue, a.queued, a.stdinKept = nil, 0, nil
	if a.stopCtx != nil {
		a.stopCtx()
	}
	close(a.done)
	if !a.reported || a.acked {
		d.forget(a)
	}
}

// detachAction takes the action off its executor; its place is free.
func (d *Dispatcher) detachAction(a *action) {
	if ex := d.executors[a.executorID]; ex != nil && ex.actions[a.id] == a {
		delete(ex.actions, a.id)
		d.placeAll()
	}
}

// forget drops the record of a done action.
func (d *Dispatcher) forget(a *action) {
	if d.actions[a.id] == a {
		delete(d.actions, a.id)
	}
	if sc := d.scopes[a.spec.Scope]; sc != nil {
		delete(sc.actions, a.id)
		d.dropScope(a.spec.Scope)
	}
}

// ackResult acknowledges a done action's result; mu is held. Without a session
// the executor shows the result again when it comes back and is answered then.
func (d *Dispatcher) ackResult(a *action) {
	if a.acked || !a.reported {
		return
	}
	a.acked = true
	d.forget(a)
	if ex := d.executors[a.executorID]; ex != nil && ex.session != nil {
		d.postResultAck(ex.session, a.id)
	}
}

func (d *Dispatcher) postResultAck(s *session, id string) {
	d.post(s, &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_ResultAck{ResultAck: &executorv1.ResultAck{ActionId: id}}})
}

// shutdown ends everything at this side only.
func (d *Dispatcher) shutdown() {
	d.mu.Lock()
	d.stopping = true
	var open []*session
	for _, ex := range d.executors {
		if ex.session != nil {
			open = append(open, ex.session)
			d.post(ex.session, &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Draining{Draining: &executorv1.Draining{}}})
		}
	}
	for _, a := range d.actions {
		if a.claimed {
			d.conclude(a, nil, ErrStopped)
		}
	}
	for _, c := range d.claims {
		d.failClaim(c, ErrStopped)
	}
	d.unlock(true)
	for _, s := range open {
		s.end(nil)
	}
}
