package agent

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/approval"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Who decided about a destination besides an approval, as in
// NetworkDecided.by.
const (
	byPolicy  = "policy"
	bySession = "session"
)

// Network takes part in what the proxied network of one action decides.
type Network interface {
	// Ask decides about a destination that the action's policy says nothing about.
	// ctx ends with the action; its cause is ErrSuspended when only this control
	// plane stops.
	Ask(ctx context.Context, r *executorv1.NetworkRequest) *executorv1.NetworkVerdict
	// Decided is told of each decision.
	Decided(d *heddlev1.NetworkDecided)
}

// hosts are the destinations that one process was asked about.
type hosts struct {
	mu    sync.Mutex
	asked map[string]*hostQuestion
	// waiting counts the open questions; idle is closed when it comes back to 0.
	waiting int
	idle    chan struct{}
}

// hostQuestion is one host, asked about once for a process.
type hostQuestion struct {
	done    chan struct{}
	verdict *executorv1.NetworkVerdict // valid when done is closed; nil without an answer
}

// asking returns a channel that is closed when no question is open, nil when none
// is.
func (h *hosts) asking() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == 0 {
		return nil
	}
	return h.idle
}

func (h *hosts) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == 0 {
		h.idle = make(chan struct{})
	}
	h.waiting++
}

func (h *hosts) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting--; h.waiting == 0 {
		close(h.idle)
	}
}

// Ask implements Network. What was decided about a host holds for the process,
// or with the client's word for the thread; the same host is asked about once.
func (p *process) Ask(ctx context.Context, r *executorv1.NetworkRequest) *executorv1.NetworkVerdict {
	host := r.GetHost()
	if p.lt.remembered().HostAllowed(host) || p.lt.remembered().ActionAllowed(hostHash(p.actionHash(), host, r.GetPort())) {
		return &executorv1.NetworkVerdict{Allowed: true, By: bySession}
	}
	p.hosts.mu.Lock()
	if p.hosts.asked == nil {
		p.hosts.asked = map[string]*hostQuestion{}
	}
	q, known := p.hosts.asked[host]
	if !known {
		q = &hostQuestion{done: make(chan struct{})}
		p.hosts.asked[host] = q
	}
	p.hosts.mu.Unlock()
	if !known {
		q.verdict = p.askHost(ctx, r)
		close(q.done)
	}
	select {
	case <-q.done:
		return q.verdict
	case <-ctx.Done():
		return nil
	}
}

// askHost asks a person, where the approval policy lets it.
func (p *process) askHost(ctx context.Context, r *executorv1.NetworkRequest) *executorv1.NetworkVerdict {
	t := p.lt.current()
	if t == nil || t.id() != p.turnID {
		return refuseHost("nobody can be asked about it after the end of the turn")
	}
	settings := t.settings()
	if why := approval.DecideNetwork(approval.NetworkFacts{
		Policy: settings.GetApprovalPolicy(), Granular: settings.GetGranularApproval(),
		Deny: settings.GetSandbox().GetNetworkMiss() == heddlev1.NetworkMiss_NETWORK_MISS_DENY,
	}); why != "" {
		return refuseHost(why)
	}
	p.hosts.begin()
	defer p.hosts.end()
	q, err := t.openHost(p, r)
	if err != nil {
		return refuseHost("the question about it could not be asked: " + err.Error())
	}
	defer t.closeHost(q)
	a, _, ok := t.awaitDecision(ctx, q)
	if !ok {
		return nil
	}
	return p.hostVerdict(t, a, r.GetHost())
}

func (p *process) hostVerdict(t *turn, a *heddlev1.Approval, host string) *executorv1.NetworkVerdict {
	v := &executorv1.NetworkVerdict{By: a.GetDecidedBy(), Reason: "the user declined it"}
	switch a.GetDecision() {
	case heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION:
		p.lt.remember(func(m *approval.Memory) { m.AllowHost(host) })
		v.Allowed, v.Reason = true, ""
	case heddlev1.Decision_DECISION_ACCEPT, heddlev1.Decision_DECISION_ACCEPT_WITH_AMENDMENT:
		v.Allowed, v.Reason = true, ""
	case heddlev1.Decision_DECISION_CANCEL:
		if a.GetDecidedBy() == approval.ByClient {
			t.interrupt(causeApprovalCancelled)
		}
	case heddlev1.Decision_DECISION_UNUSABLE:
		v.Reason = "the approval request failed"
	case heddlev1.Decision_DECISION_DECLINE, heddlev1.Decision_DECISION_UNSPECIFIED:
		switch a.GetDecidedBy() {
		case approval.ByDeadline:
			v.Reason = "nobody answered in time"
		case approval.ByReviewer:
			v.Reason = refusedBy(a)
		}
	}
	return v
}

func refuseHost(why string) *executorv1.NetworkVerdict {
	return &executorv1.NetworkVerdict{By: byPolicy, Reason: why}
}

// Decided implements Network.
func (p *process) Decided(d *heddlev1.NetworkDecided) {
	d = proto.CloneOf(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return
	}
	d.ItemId = p.item.GetId()
	p.lt.note(&heddlev1.Event{TurnId: p.turnID, Payload: &heddlev1.Event_NetworkDecided{NetworkDecided: d}})
}

// hostQuestions are a turn's open questions about hosts.
type hostQuestions struct {
	mu     sync.Mutex
	closed bool
	open   map[*approval.Pending]bool
	// past are from before a restart, by item and host; their process asks again.
	past map[string]*approval.Pending
}

func pastKey(itemID, host string) string { return itemID + " " + host }

// adoptHost keeps a question from before a restart.
func (t *turn) adoptHost(q *approval.Pending) {
	t.hosts.mu.Lock()
	defer t.hosts.mu.Unlock()
	if t.hosts.past == nil {
		t.hosts.past = map[string]*approval.Pending{}
	}
	a := q.Approval()
	t.hosts.past[pastKey(a.GetItemId(), a.GetCommand().GetNetwork().GetHost())] = q
}

// openHost shows a question about a host, durably, or finds the one that was
// shown before a restart.
func (t *turn) openHost(p *process, r *executorv1.NetworkRequest) (*approval.Pending, error) {
	p.mu.Lock()
	item := proto.CloneOf(p.item)
	p.mu.Unlock()
	t.hosts.mu.Lock()
	defer t.hosts.mu.Unlock()
	if t.hosts.closed {
		return nil, fmt.Errorf("the turn has ended")
	}
	if t.hosts.open == nil {
		t.hosts.open = map[*approval.Pending]bool{}
	}
	key := pastKey(item.GetId(), r.GetHost())
	if q := t.hosts.past[key]; q != nil {
		delete(t.hosts.past, key)
		t.hosts.open[q] = true
		return q, nil
	}
	hash := p.actionHash()
	reason := fmt.Sprintf("The command wants to connect to %s, port %d.", r.GetHost(), r.GetPort())
	a, err := t.newApproval(item, reason, heddlev1.Risk_RISK_MEDIUM, hash)
	if err != nil {
		return nil, err
	}
	c := item.GetCommandExecution()
	a.Subject = &heddlev1.Approval_Command{Command: &heddlev1.CommandApproval{
		Command: c.GetCommand(), Argv: c.GetArgv(), Cwd: c.GetCwd(), Actions: c.GetActions(), Policy: t.settings().GetSandbox(),
		Network: &heddlev1.NetworkContext{Host: r.GetHost(), Protocol: r.GetProtocol(), Port: r.GetPort()},
	}}
	q := t.open(a)
	if err := t.lt.append(approvalRequested(a)).Wait(context.WithoutCancel(t.ctx)); err != nil {
		q.Suspend()
		return nil, err
	}
	t.hosts.open[q] = true
	return q, nil
}

// actionHash is the digest of the command, also of one from before a restart.
func (p *process) actionHash() []byte {
	if hash := p.action.GetActionHash(); hash != nil {
		return hash
	}
	return p.intent.GetActionHash()
}

// hostHash is the digest of one command that reaches one destination; nil where
// the command has none.
func hostHash(command []byte, host string, port uint32) []byte {
	if len(command) == 0 {
		return nil
	}
	h := sha256.New()
	fmt.Fprintf(h, "host\x00%x\x00%d\x00%s", command, port, host)
	return h.Sum(nil)
}

func (t *turn) closeHost(q *approval.Pending) {
	t.hosts.mu.Lock()
	defer t.hosts.mu.Unlock()
	delete(t.hosts.open, q)
}

// closeHosts cancels the open questions about hosts; no more are asked. It is
// called before the turn's end is recorded.
func (t *turn) closeHosts() {
	t.hosts.mu.Lock()
	t.hosts.closed = true
	var open []*approval.Pending
	for q := range t.hosts.open {
		open = append(open, q)
	}
	for _, q := range t.hosts.past {
		open = append(open, q)
	}
	t.hosts.past = nil
	t.hosts.mu.Unlock()
	for _, q := range open {
		t.cancelQuestion(q)
	}
}
