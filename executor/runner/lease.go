package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/proto/failpoint"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	"github.com/heddle-dev/heddle/sandbox"
)

const (
	// earlyShare of the fence time, at most earlyMost, is how much earlier than
	// the guests this process ends a scope by itself.
	earlyShare = 10
	earlyMost  = 2 * time.Second
	// releaseTime bounds ending a scope's sandboxes.
	releaseTime = 10 * time.Second
	// deliverGrace is how long a confirmation of the end waits for results.
	deliverGrace = 250 * time.Millisecond
)

var errLeaseEnded = errors.New("lease has ended")

// ackState is what deadlines of the current session are counted from.
type ackState struct {
	registered time.Time
	sent       map[uint64]time.Time // by round
	round      uint64               // to acknowledge
	sending    bool
}

// lease is the right to act for one scope. deadline, timer, renewBy and gone are
// guarded by Runner.mu, the rest by mu.
type lease struct {
	id, scope, principal string
	epoch                uint64
	key                  string // of its sandboxes
	fence, renewBy       time.Duration
	deadline             time.Time
	timer                *time.Timer
	gone                 bool // it was taken away and nothing of it is left

	mu         sync.Mutex
	boxes      map[string]Box
	forwarding bool
	dirty      bool
	ended      bool

	active sync.WaitGroup // actions without a result
}

func (l *lease) proto() *executorv1.Lease {
	return &executorv1.Lease{
		LeaseId: l.id, Scope: l.scope, Epoch: l.epoch, Principal: l.principal,
		FenceAfterMs: l.fence.Milliseconds(), RenewByMs: l.renewBy.Milliseconds(),
	}
}

// assign takes the full list: what is not on it ends.
func (r *Runner) assign(list []*executorv1.Lease) error {
	r.mu.Lock()
	keep := map[string]uint64{}
	for _, x := range list {
		keep[x.GetLeaseId()] = x.GetEpoch()
	}
	for id, l := range r.leases {
		if epoch, ok := keep[id]; !ok || epoch != l.epoch {
			r.endLocked(l, endedf(codeCancelled, "the control plane does not count on this lease any more"))
		}
	}
	r.mu.Unlock()
	for _, x := range list {
		if err := r.grant(x); err != nil {
			return err
		}
	}
	return nil
}

// grant takes a lease, or renews one that is held.
func (r *Runner) grant(x *executorv1.Lease) error {
	if x.GetLeaseId() == "" || x.GetScope() == "" || x.GetFenceAfterMs() <= 0 {
		return fmt.Errorf("lease grant without id, scope or fence: %v", x)
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	if l := r.leases[x.GetLeaseId()]; l != nil {
		if l.epoch == x.GetEpoch() {
			r.extendLocked(l, x, now)
			return nil
		}
		r.endLocked(l, endedf(codeCancelled, "the lease was granted again under epoch %d", x.GetEpoch()))
	}
	for _, l := range r.leases {
		if l.scope == x.GetScope() {
			r.endLocked(l, endedf(codeCancelled, "the scope was granted again under epoch %d", x.GetEpoch()))
		}
	}
	if len(r.leases) >= maxLeases {
		return fmt.Errorf("lease grant: %d leases are held already", len(r.leases))
	}
	failpoint.Hit("executor/lease-granted")
	l := &lease{id: x.GetLeaseId(), scope: x.GetScope(), principal: x.GetPrincipal(), epoch: x.GetEpoch(), boxes: map[string]Box{}}
	// What an ended lease leaves is never shared with its successor, which may
	// even have the same id and epoch.
	r.granted++
	l.key = fmt.Sprintf("%s@%d.%d", l.scope, l.epoch, r.granted)
	r.leases[l.id] = l
	l.timer = time.AfterFunc(time.Hour, func() { r.fence(l) })
	r.extendLocked(l, x, now)
	return nil
}

// extendLocked moves the deadline of a held lease. It never counts from later
// than the control plane does, however long the message lay in a buffer.
func (r *Runner) extendLocked(l *lease, x *executorv1.Lease, now time.Time) {
	l.fence = time.Duration(x.GetFenceAfterMs()) * time.Millisecond
	l.renewBy = time.Duration(x.GetRenewByMs()) * time.Millisecond
	deadline := now.Add(l.fence)
	base, known := r.acks.registered, x.GetAckedRound() == 0
	if !known {
		base, known = r.acks.sent[x.GetAckedRound()]
	}
	if known && !base.IsZero() {
		if d := base.Add(time.Duration(x.GetSinceAckMs())*time.Millisecond + l.fence); d.Before(deadline) {
			deadline = d
		}
	}
	l.deadline = deadline
	l.timer.Reset(time.Until(deadline) - min(l.fence/earlyShare, earlyMost))
	r.forward(l)
}

// renew moves deadlines and answers from a goroutine of its own.
func (r *Runner) renew(link Link, m *executorv1.LeaseRenewal) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range m.GetLeases() {
		l := r.leases[x.GetLeaseId()]
		if l == nil || l.epoch != x.GetEpoch() {
			r.log.Warn("renewal of a lease that is not held", "lease_id", x.GetLeaseId(), "epoch", x.GetEpoch())
			continue
		}
		r.extendLocked(l, x, now)
	}
	failpoint.Hit("executor/renewed")
	r.acks.round = m.GetRound()
	if !r.acks.sending && !r.closed {
		r.acks.sending = true
		r.spawn(func() { r.sendAcks(link) })
	}
}

// sendAcks acknowledges the latest round until there is no later one.
func (r *Runner) sendAcks(link Link) {
	var done uint64
	for {
		r.mu.Lock()
		round := r.acks.round
		if r.link != link || round == done {
			r.acks.sending = false
			r.mu.Unlock()
			return
		}
		if r.acks.sent == nil {
			r.acks.sent = map[uint64]time.Time{}
		}
		r.acks.sent[round] = time.Now()
		for old := range r.acks.sent {
			if old+keptRounds < round {
				delete(r.acks.sent, old)
			}
		}
		r.mu.Unlock()
		if link.Send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_RenewAck{RenewAck: &executorv1.RenewAck{Round: round}}}) != nil {
			r.mu.Lock()
			r.acks.sending = false
			r.mu.Unlock()
			return
		}
		done = round
	}
}

// forward tells the guests of a lease its deadline, from a goroutine, so that a
// guest that does not answer holds up nothing. A guest that was not reached
// keeps the earlier deadline.
func (r *Runner) forward(l *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirty = true
	if l.forwarding || len(l.boxes) == 0 || r.closed {
		return
	}
	l.forwarding = true
	r.spawn(func() {
		for {
			r.mu.Lock()
			deadline := l.deadline
			l.mu.Lock()
			if !l.dirty || l.ended {
				l.forwarding = false
				l.mu.Unlock()
				r.mu.Unlock()
				return
			}
			l.dirty = false
			boxes := make([]Box, 0, len(l.boxes))
			for _, b := range l.boxes {
				boxes = append(boxes, b)
			}
			l.mu.Unlock()
			r.mu.Unlock()
			for _, b := range boxes {
				if err := b.SetDeadline(deadline); err != nil {
					r.log.Warn("moving a sandbox's deadline failed", "lease_id", l.id, "cause", err)
				}
			}
		}
	})
}

// box returns the lease's sandbox for a policy, with its deadline set.
func (r *Runner) box(ctx context.Context, l *lease, p sandbox.Policy) (Box, error) {
	key := p.Key()
	l.mu.Lock()
	b, ended := l.boxes[key], l.ended
	l.mu.Unlock()
	if ended {
		return nil, errLeaseEnded
	}
	if b != nil {
		return b, nil
	}
	b, err := r.cfg.Boxes.Acquire(ctx, l.key, p)
	if err != nil {
		return nil, err
	}
	for {
		r.mu.Lock()
		deadline := l.deadline
		r.mu.Unlock()
		if err := b.SetDeadline(deadline); err != nil {
			return nil, fmt.Errorf("set the sandbox's deadline: %w", err)
		}
		r.mu.Lock()
		l.mu.Lock()
		same := l.deadline.Equal(deadline)
		if same {
			l.boxes[key] = b
		}
		ended = l.ended
		l.mu.Unlock()
		r.mu.Unlock()
		if ended {
			return nil, errLeaseEnded
		}
		if same {
			return b, nil
		}
	}
}

// fence ends a lease whose deadline is near and was not moved.
func (r *Runner) fence(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	early := min(l.fence/earlyShare, earlyMost)
	if r.leases[l.id] != l || time.Until(l.deadline) > early {
		return // renewed or ended while the timer fired
	}
	r.log.Warn("no renewal before the fence", "lease_id", l.id, "epoch", l.epoch, "scope", l.scope)
	r.endLocked(l, endedf(codeExecutorLost, "no renewal of the lease came within %v; everything under it was ended", l.fence))
}

func (r *Runner) revoke(m *executorv1.LeaseRevoke) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.leases[m.GetLeaseId()]
	if l == nil || l.epoch != m.GetEpoch() {
		r.confirm(m.GetLeaseId(), m.GetEpoch())
		return
	}
	reason := m.GetReason()
	if reason == "" {
		reason = "the lease was revoked"
	}
	r.endLocked(l, endedf(codeCancelled, "%s", reason))
}

// confirm tells the control plane, on the present session, that nothing runs
// under a lease, if that is so. A later session is told by the lease's absence.
func (r *Runner) confirm(id string, epoch uint64) {
	link := r.link
	if link == nil || r.closed {
		return
	}
	if l := r.leases[id]; l != nil && l.epoch == epoch {
		return // granted again
	}
	for l := range r.ending {
		if l.id == id && l.epoch == epoch {
			return // told when it has ended
		}
	}
	r.spawn(func() {
		_ = link.Send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_LeaseReleased{
			LeaseReleased: &executorv1.LeaseReleased{LeaseId: id, Epoch: epoch}}})
	})
}

// endLocked takes a lease away and ends everything under it. When all is gone,
// the control plane is told.
func (r *Runner) endLocked(l *lease, cause *endedError) {
	if r.leases[l.id] != l {
		return
	}
	delete(r.leases, l.id)
	r.ending[l] = true
	l.timer.Stop()
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	var mine []*action
	for _, a := range r.actions {
		if a.lease == l {
			mine = append(mine, a)
			a.cancel(cause)
		}
	}
	r.spawn(func() {
		r.release(l)
		l.active.Wait()
		r.release(l) // what an action was acquiring meanwhile
		r.mu.Lock()
		l.gone = true
		r.mu.Unlock()
		r.waitDelivered(mine)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ending, l)
		r.confirm(l.id, l.epoch)
	})
}

func (r *Runner) release(l *lease) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	if err := r.cfg.Boxes.Release(ctx, l.key); err != nil {
		r.log.Error("ending the sandboxes of a lease failed", "lease_id", l.id, "cause", err)
	}
}

// waitDelivered gives results a moment to go out before the end is confirmed.
func (r *Runner) waitDelivered(list []*action) {
	late := time.NewTimer(deliverGrace)
	defer late.Stop()
	for _, a := range list {
		select {
		case <-a.delivered:
		case <-late.C:
			return
		case <-r.stop:
			return
		}
	}
}
