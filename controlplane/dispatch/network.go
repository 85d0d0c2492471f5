package dispatch

import (
	"context"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxNetworkRequests bounds the questions of one action that wait at a time.
const maxNetworkRequests = 64

// Network takes part in what the proxied network of a running action decides.
type Network interface {
	// Ask decides about a destination. It is called on a goroutine of its own and
	// may wait for a person; ctx ends with the action, by ErrStopped when only the
	// dispatcher stops. Only allowed, by and reason
	// of the verdict count.
	Ask(ctx context.Context, r *executorv1.NetworkRequest) *executorv1.NetworkVerdict
	// Decided is told of each decision, in order, before the result. It must not
	// wait.
	Decided(d *heddlev1.NetworkDecided)
}

// SetNetwork says who takes part for an action that was re-attached; for one that
// was started Spec.Network does. What was asked before is asked now.
func (h *Handle) SetNetwork(n Network) {
	d := h.d
	d.mu.Lock()
	defer d.unlock(true)
	a := h.a
	a.spec.Network = n
	waiting, told := a.networkAsked, a.networkTold
	a.networkAsked, a.networkTold = nil, nil
	for _, m := range told {
		n.Decided(m)
	}
	for _, m := range waiting {
		d.askNetwork(a, m)
	}
}

// networkRequest takes a question of an executor. mu is held.
func (d *Dispatcher) networkRequest(a *action, m *executorv1.NetworkRequest) {
	switch {
	case a == nil || a.state >= stateEnded:
	case a.networkOpen[m.GetRequestId()]: // asked again on a new session
	case a.spec.Network == nil && a.msg == nil && !a.terminated && len(a.networkAsked) < maxNetworkRequests:
		a.networkAsked = append(a.networkAsked, m) // until somebody has re-attached
	case a.spec.Network == nil:
		d.answerNetwork(a, m, &executorv1.NetworkVerdict{By: "policy", Reason: "nobody can be asked about it here"})
	default:
		d.askNetwork(a, m)
	}
}

// askNetwork asks on a goroutine of its own. mu is held.
func (d *Dispatcher) askNetwork(a *action, m *executorv1.NetworkRequest) {
	id := m.GetRequestId()
	if a.networkOpen[id] {
		return
	}
	if len(a.networkOpen) >= maxNetworkRequests {
		d.answerNetwork(a, m, &executorv1.NetworkVerdict{By: "limit", Reason: "too many other hosts are being asked about"})
		return
	}
	if a.networkOpen == nil {
		a.networkOpen = map[string]bool{}
	}
	a.networkOpen[id] = true
	n := a.spec.Network
	go func() {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		go func() {
			select {
			case <-a.done:
				cancel(a.err) // ErrStopped when only the dispatcher stops
			case <-ctx.Done():
			}
		}()
		v := n.Ask(ctx, m)
		d.mu.Lock()
		defer d.unlock(true)
		delete(a.networkOpen, id)
		d.answerNetwork(a, m, v)
	}()
}

// answerNetwork sends a verdict when the executor is there; one that it did not
// get is asked for again. mu is held.
func (d *Dispatcher) answerNetwork(a *action, m *executorv1.NetworkRequest, v *executorv1.NetworkVerdict) {
	s := d.sessionOf(a)
	if s == nil || !a.live() || v == nil {
		return
	}
	d.post(s, &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_NetworkVerdict{NetworkVerdict: &executorv1.NetworkVerdict{
		ActionId: a.id, LeaseId: a.leaseID, Epoch: a.epoch, RequestId: m.GetRequestId(),
		Allowed: v.GetAllowed(), By: v.GetBy(), Reason: v.GetReason()}}})
}

// networkDecision passes on what was decided. mu is held.
func (d *Dispatcher) networkDecision(a *action, m *executorv1.NetworkDecision) {
	switch {
	case a == nil || m.GetDecided() == nil:
	case a.spec.Network != nil:
		a.spec.Network.Decided(proto.CloneOf(m.GetDecided()))
	case a.msg == nil && len(a.networkTold) < maxNetworkRequests:
		a.networkTold = append(a.networkTold, m.GetDecided())
	}
}
