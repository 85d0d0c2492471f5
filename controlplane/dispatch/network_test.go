package dispatch_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// person answers after ready is closed and notes what was asked and told.
type person struct {
	ready chan struct{}

	mu    sync.Mutex
	asked []string
	told  []string
	ended int
}

func (p *person) Ask(ctx context.Context, r *executorv1.NetworkRequest) *executorv1.NetworkVerdict {
	p.mu.Lock()
	p.asked = append(p.asked, r.GetHost())
	p.mu.Unlock()
	select {
	case <-p.ready:
		return &executorv1.NetworkVerdict{Allowed: true, By: "client"}
	case <-ctx.Done():
		p.mu.Lock()
		p.ended++
		p.mu.Unlock()
		return nil
	}
}

func (p *person) Decided(d *heddlev1.NetworkDecided) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, d.GetHost())
}

func (f *fake) askHost(a *executorv1.Action, id, host string) {
	f.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_NetworkRequest{NetworkRequest: &executorv1.NetworkRequest{
		ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(), RequestId: id, Host: host, Port: 443, Protocol: "https"}}})
}

func TestNetworkQuestions(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		p := &person{ready: make(chan struct{})}
		x := r.connect(executor("e"))
		defer x.drop()
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/1", Action: process("a", "curl"), Network: p})
		x.grant()
		a := x.action()
		x.started(a, 7)
		x.askHost(a, "1", "a.test")
		x.askHost(a, "1", "a.test") // as after a lost session
		x.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_NetworkDecision{NetworkDecision: &executorv1.NetworkDecision{
			ActionId: "a", LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch() + 1, Decided: &heddlev1.NetworkDecided{Host: "stale.test"}}}})
		synctest.Wait()
		close(p.ready)
		v := x.next().GetNetworkVerdict()
		if !v.GetAllowed() || v.GetRequestId() != "1" || v.GetActionId() != "a" || v.GetEpoch() != a.GetEpoch() || v.GetLeaseId() != a.GetLeaseId() {
			t.Fatalf("verdict %v", v)
		}
		x.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_NetworkDecision{NetworkDecision: &executorv1.NetworkDecision{
			ActionId: "a", LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(), Decided: &heddlev1.NetworkDecided{Host: "a.test"}}}})
		x.exit(a, 0)
		wantExit(t, h, 0)
		if !slices.Equal(p.asked, []string{"a.test"}) || !slices.Equal(p.told, []string{"a.test"}) {
			t.Errorf("asked %q, told %q", p.asked, p.told)
		}
	})
}

// The end of an action ends its questions; an action that nobody speaks for is
// refused.
func TestNetworkQuestionsEnd(t *testing.T) {
	bubble(t, dispatch.Config{}, func(r *rig) {
		t := r.t
		p := &person{ready: make(chan struct{})}
		x := r.connect(executor("e"))
		defer x.drop()
		h := r.start(t.Context(), dispatch.Spec{Scope: "thread/1", Action: process("a", "curl"), Network: p})
		x.grant()
		a := x.action()
		x.started(a, 7)
		x.askHost(a, "1", "a.test")
		synctest.Wait()
		x.exit(a, 1)
		wantExit(t, h, 1)
		synctest.Wait()
		if p.ended != 1 {
			t.Errorf("%d questions ended", p.ended)
		}
		r.start(t.Context(), dispatch.Spec{Scope: "thread/1", Action: process("b", "curl")})
		b := x.action()
		x.started(b, 8)
		x.askHost(b, "1", "b.test")
		if v := x.next().GetNetworkVerdict(); v == nil || v.GetAllowed() || v.GetBy() != "policy" || v.GetReason() == "" {
			t.Errorf("verdict %v", v)
		}
		x.exit(b, 0)
		synctest.Wait()
	})
}
