package runner

import (
	"context"
	"strconv"
	"sync"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/netproxy"
)

const (
	// maxQuestions bounds the destinations of one action that are asked about at
	// the same time; more are refused.
	maxQuestions = 32
	// maxDecisions bounds the different decisions that are reported of one action.
	maxDecisions = 256
)

// network is what one action's proxy asks and reports. It is delivered with the
// action: questions again on every session until they are answered, decisions
// before the result.
type network struct {
	poke func()

	mu        sync.Mutex
	next      int
	questions map[string]*question // by request id
	reported  map[decisionKey]bool
	decisions []*heddlev1.NetworkDecided // not sent yet
}

// question waits for a verdict.
type question struct {
	msg    *executorv1.NetworkRequest
	sentOn Link // not yet sent while nil
	answer chan netproxy.Verdict
}

type decisionKey struct {
	request netproxy.Request
	allowed bool
	by      string
}

func newNetwork(poke func()) *network {
	return &network{poke: poke, questions: map[string]*question{}, reported: map[decisionKey]bool{}}
}

// hooks lets a command's proxy ask the control plane about what its policy does
// not decide, and report.
func (n *network) hooks() sandbox.Network {
	return sandbox.Network{Ask: n.ask, Decided: n.decided}
}

func (n *network) ask(ctx context.Context, r netproxy.Request) (netproxy.Verdict, error) {
	q := &question{answer: make(chan netproxy.Verdict, 1)}
	n.mu.Lock()
	if len(n.questions) >= maxQuestions {
		n.mu.Unlock()
		return netproxy.Verdict{By: "limit", Reason: "too many other hosts are being asked about"}, nil
	}
	n.next++
	id := strconv.Itoa(n.next)
	q.msg = &executorv1.NetworkRequest{RequestId: id, Host: r.Host, Port: uint32(r.Port), Protocol: string(r.Protocol)}
	n.questions[id] = q
	n.mu.Unlock()
	n.poke()
	defer func() {
		n.mu.Lock()
		delete(n.questions, id)
		n.mu.Unlock()
	}()
	select {
	case v := <-q.answer:
		return v, nil
	case <-ctx.Done():
		return netproxy.Verdict{}, context.Cause(ctx)
	}
}

// decided keeps a decision for delivery, the first time that it is taken.
func (n *network) decided(d netproxy.Decision) {
	n.mu.Lock()
	key := decisionKey{d.Request, d.Allowed, d.By}
	if n.reported[key] || len(n.reported) >= maxDecisions {
		n.mu.Unlock()
		return
	}
	n.reported[key] = true
	n.decisions = append(n.decisions, &heddlev1.NetworkDecided{
		Host: valid(d.Host), Port: uint32(d.Port), Protocol: string(d.Protocol), Allowed: d.Allowed, By: d.By, Reason: valid(d.Reason),
	})
	n.mu.Unlock()
	n.poke()
}

// push sends what was not sent on this session yet. Only one goroutine calls it.
func (n *network) push(a *action, link Link) error {
	for {
		m := n.take(a, link)
		if m == nil {
			return nil
		}
		if err := link.Send(m); err != nil {
			if d := m.GetNetworkDecision(); d != nil {
				n.mu.Lock()
				n.decisions = append([]*heddlev1.NetworkDecided{d.GetDecided()}, n.decisions...)
				n.mu.Unlock()
			}
			return err
		}
	}
}

// take returns the next message, decisions first, in order.
func (n *network) take(a *action, link Link) *executorv1.ConnectRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.decisions) > 0 {
		d := n.decisions[0]
		n.decisions = n.decisions[1:]
		return &executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_NetworkDecision{NetworkDecision: &executorv1.NetworkDecision{
			ActionId: a.id, LeaseId: a.leaseID, Epoch: a.epoch, Decided: d}}}
	}
	for _, q := range n.questions {
		if q.sentOn != link {
			q.sentOn = link
			q.msg.ActionId, q.msg.LeaseId, q.msg.Epoch = a.id, a.leaseID, a.epoch
			return &executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_NetworkRequest{NetworkRequest: q.msg}}
		}
	}
	return nil
}

// networkVerdict hands an answer to the command that waits for it.
func (r *Runner) networkVerdict(m *executorv1.NetworkVerdict) {
	r.mu.Lock()
	a := r.actions[m.GetActionId()]
	r.mu.Unlock()
	if a == nil || a.network == nil || a.leaseID != m.GetLeaseId() || a.epoch != m.GetEpoch() {
		return
	}
	a.network.mu.Lock()
	defer a.network.mu.Unlock()
	if q := a.network.questions[m.GetRequestId()]; q != nil {
		select {
		case q.answer <- netproxy.Verdict{Allowed: m.GetAllowed(), By: m.GetBy(), Reason: m.GetReason()}:
		default: // a second answer
		}
	}
}

// proxied reports whether an action's command gets a proxy.
func proxied(m *executorv1.Action) bool {
	return m.GetPolicy().GetNetwork() == heddlev1.NetworkMode_NETWORK_MODE_PROXIED
}

// listsOf translates the destinations of a policy.
func listsOf(p *heddlev1.SandboxPolicy) netproxy.Lists {
	l := netproxy.Lists{Allow: p.GetNetworkAllow(), Deny: p.GetNetworkDeny()}
	for _, port := range p.GetNetworkPorts() {
		if port > 0xffff {
			port = 0 // no port at all, not another one
		}
		l.Ports = append(l.Ports, uint16(port))
	}
	return l
}
