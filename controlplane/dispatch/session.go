package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/controlplane/lease"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// session is one registration of an executor.
type session struct {
	id   string
	ex   *executor // set once registered
	peer Peer
	// gone tells whether the executor's process is known to be gone; may be nil.
	gone func() bool
	out  *outbox
	dead chan struct{}

	endOnce sync.Once
	cause   error // set before dead is closed

	// Renewal rounds, guarded by Dispatcher.mu. One is in flight at a time, so
	// that an acknowledgement proves that everything sent before was received.
	round, ackedRound uint64
	ackedAt           time.Time
	roundAt           time.Time // when the round in flight was sent
	inFlight          bool
	nextRenew         time.Time
	roundPos          int64 // behind the round's message
}

// end closes the session once, with the status its stream gets.
func (s *session) end(cause error) {
	s.endOnce.Do(func() {
		s.cause = cause
		close(s.dead)
	})
}

func (s *session) ended() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

// Serve runs one session over link until the stream fails, the session is
// superseded or found dead, or the dispatcher stops (then it returns nil). After
// it returns the link must fail, which ends the goroutines that it started.
func (d *Dispatcher) Serve(ctx context.Context, peer Peer, link Link) error {
	s := &session{peer: peer, dead: make(chan struct{})}
	s.out = newOutbox(link.Send, func(err error) { s.end(fmt.Errorf("send to executor: %w", err)) })
	registered := make(chan struct{})
	go func() { s.end(d.receive(s, link, registered)) }()
	go s.out.run(s.dead)
	timer := time.NewTimer(registerWait)
	defer timer.Stop()
	for {
		select {
		case <-s.dead:
		case <-ctx.Done():
			s.end(context.Cause(ctx))
		case <-registered:
			registered = nil
			timer.Stop()
			continue
		case <-timer.C:
			s.end(errdefs.New(errdefs.InvalidArgument, "no register message within %s", registerWait))
		}
		break
	}
	<-s.dead
	d.detach(s)
	return s.cause
}

// receive registers and then handles messages until the link or the session ends.
func (d *Dispatcher) receive(s *session, link Link, registered chan<- struct{}) error {
	first, err := link.Recv()
	if err != nil {
		return fmt.Errorf("receive register: %w", err)
	}
	if err := d.register(s, first.GetRegister()); err != nil {
		return err
	}
	close(registered)
	for {
		m, err := link.Recv()
		if err != nil {
			return fmt.Errorf("receive from executor: %w", err)
		}
		if err := d.handle(s, m); err != nil {
			return err
		}
	}
}

// detach takes an ended session off its executor.
func (d *Dispatcher) detach(s *session) {
	unsent := s.out.close()
	d.mu.Lock()
	defer d.unlock(false)
	ex := s.ex
	if ex == nil || ex.session != s {
		return
	}
	ex.session = nil
	d.cfg.Logger.Info("executor session ended", "executor_id", ex.id, "session_id", s.id, "cause", s.cause)
	d.requeue(ex, unsent)
	d.dropExecutor(ex)
	d.placeAll()
	d.poke()
	if s.gone != nil && !d.stopping && d.executors[ex.id] == ex {
		go d.watchDeath(ex, s.gone)
	}
}

// watchDeath looks for a while whether a lost executor's process ends: sockets
// close a little before the process is gone. It stops when the executor is back.
func (d *Dispatcher) watchDeath(ex *executor, gone func() bool) {
	tick := time.NewTicker(deathPoll)
	defer tick.Stop()
	for range deathPolls {
		if gone() {
			d.mu.Lock()
			defer d.unlock(false)
			if ex.session == nil && d.executors[ex.id] == ex {
				d.died(ex)
			}
			return
		}
		<-tick.C
		d.mu.Lock()
		over := ex.session != nil || d.stopping || d.executors[ex.id] != ex
		d.mu.Unlock()
		if over {
			return
		}
	}
}

// requeue takes back the actions that never reached the wire, so that any
// executor may still get them.
func (d *Dispatcher) requeue(ex *executor, unsent map[string]bool) {
	for _, a := range ex.actions {
		if a.state == stateSent && unsent[a.id] {
			delete(ex.actions, a.id)
			a.executorID, a.leaseID, a.epoch = "", "", 0
			d.enqueue(a)
		}
	}
}

// dropExecutor forgets an executor that is away and holds nothing.
func (d *Dispatcher) dropExecutor(ex *executor) {
	if ex.session == nil && len(ex.actions) == 0 && d.lessor.Count(ex.id) == 0 && d.executors[ex.id] == ex {
		delete(d.executors, ex.id)
	}
}

// wire is a lease as the executor sees it.
func (d *Dispatcher) wire(s *session, l lease.Lease, now time.Time) *executorv1.Lease {
	return &executorv1.Lease{
		LeaseId: l.ID, Scope: l.Scope, Epoch: l.Epoch, Principal: l.Principal,
		FenceAfterMs: l.Fence.Milliseconds(),
		RenewByMs:    d.cfg.renewBy().Milliseconds(),
		AckedRound:   s.ackedRound,
		SinceAckMs:   now.Sub(s.ackedAt).Milliseconds(),
	}
}

// register validates the first message and makes the session the executor's
// current one.
func (d *Dispatcher) register(s *session, reg *executorv1.Register) error {
	if err := d.checkRegister(s.peer, reg); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.unlock(false)
	if d.stopping {
		return errdefs.New(errdefs.Busy, "control plane is stopping")
	}
	if s.ended() {
		return errors.New("session ended while it registered")
	}
	id := reg.GetExecutorId()
	ex := d.executors[id]
	if ex != nil && ex.principal != s.peer.Principal {
		return errdefs.New(errdefs.PermissionDenied, "executor id %s belongs to another principal", id)
	}
	if ex == nil {
		ex = &executor{id: id, principal: s.peer.Principal, actions: map[string]*action{}}
		d.executors[id] = ex
	}
	if old := ex.session; old != nil {
		// The newer registration wins: the old stream may be half dead.
		old.end(errdefs.New(errdefs.StaleEpoch, "session %s is superseded by a new one of executor %s", old.id, id))
	}
	now := d.cfg.Clock()
	s.id, s.ex, s.ackedAt = d.cfg.NewID(), ex, now
	if s.peer.Probe != nil && reg.GetPid() > 0 {
		s.gone = s.peer.Probe(reg.GetPid())
	}
	s.nextRenew = now.Add(d.nextRenewal())
	ex.session, ex.reg, ex.peer = s, reg, s.peer
	d.absence = ""
	d.resume(s, now)
	d.cfg.Logger.Info("executor registered", "executor_id", id, "session_id", s.id, "address", s.peer.Address,
		"leases", len(reg.GetLeases()), "running", len(reg.GetRunning()))
	d.placeAll()
	d.poke()
	return nil
}

func (d *Dispatcher) checkRegister(peer Peer, reg *executorv1.Register) error {
	switch {
	case reg == nil:
		return errdefs.New(errdefs.InvalidArgument, "the first message of a session is register")
	case reg.GetExecutorId() == "" || len(reg.GetExecutorId()) > 200:
		return errdefs.New(errdefs.InvalidArgument, "register needs an executor id of 1 to 200 bytes")
	case reg.GetCapacity() < 0:
		return errdefs.New(errdefs.InvalidArgument, "register: capacity %d is negative", reg.GetCapacity())
	case !tokenEqual(d.cfg.JoinToken, reg.GetJoinToken()):
		return errdefs.New(errdefs.PermissionDenied, "join token of executor %s at %s is missing or wrong", reg.GetExecutorId(), peer.Address)
	case reg.GetMinProtocol() > MaxProtocol || reg.GetMaxProtocol() < MinProtocol:
		return errdefs.New(errdefs.VersionUnsupported,
			"executor %s (%s) speaks protocol %d to %d, this control plane (%s) %d to %d: run the same version on both",
			reg.GetExecutorId(), reg.GetVersion(), reg.GetMinProtocol(), reg.GetMaxProtocol(), d.cfg.Version, MinProtocol, MaxProtocol)
	}
	return nil
}
