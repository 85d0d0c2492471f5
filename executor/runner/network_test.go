package runner

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/netproxy"
)

// wire notes what is sent; broken fails.
type wire struct {
	sent   []*executorv1.ConnectRequest
	broken bool
}

func (w *wire) Window() int64 { return 1 << 20 }

func (w *wire) Send(m *executorv1.ConnectRequest) error {
	if w.broken {
		return errors.New("connection lost")
	}
	w.sent = append(w.sent, m)
	return nil
}

// hosts are the messages in words.
func (w *wire) hosts() (out []string) {
	for _, m := range w.sent {
		if q := m.GetNetworkRequest(); q != nil {
			out = append(out, "ask "+q.GetHost())
		}
		if d := m.GetNetworkDecision(); d != nil {
			out = append(out, "tell "+d.GetDecided().GetHost()+" "+d.GetDecided().GetBy())
		}
	}
	return out
}

func request(host string) netproxy.Request {
	return netproxy.Request{Host: host, Port: 443, Protocol: netproxy.ProtocolHTTPS}
}

func decision(host, by string) netproxy.Decision {
	return netproxy.Decision{Request: request(host), Verdict: netproxy.Verdict{Allowed: true, By: by}}
}

func TestNetworkQuestionIsSentUntilAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &action{id: "a", leaseID: "l", epoch: 7, network: newNetwork(func() {})}
		r := &Runner{actions: map[string]*action{"a": a}}
		got := make(chan netproxy.Verdict, 1)
		go func() {
			v, err := a.network.ask(t.Context(), request("a.test"))
			if err != nil {
				t.Error(err)
			}
			got <- v
		}()
		synctest.Wait()
		first, second := &wire{}, &wire{}
		for _, w := range []*wire{first, first, second, second} { // once per session
			if err := a.network.push(a, w); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(first.hosts(), []string{"ask a.test"}) || !slices.Equal(second.hosts(), []string{"ask a.test"}) {
			t.Fatalf("sent %q, then %q", first.hosts(), second.hosts())
		}
		q := second.sent[0].GetNetworkRequest()
		if q.GetActionId() != "a" || q.GetLeaseId() != "l" || q.GetEpoch() != 7 || q.GetPort() != 443 || q.GetProtocol() != "https" {
			t.Fatalf("request %v", q)
		}
		v := &executorv1.NetworkVerdict{ActionId: "a", LeaseId: "l", Epoch: 6, RequestId: q.GetRequestId(), Allowed: true, By: "client"}
		r.networkVerdict(v) // stale
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("a stale verdict counted")
		}
		v.Epoch = 7
		r.networkVerdict(v)
		r.networkVerdict(v)
		if v := <-got; !v.Allowed || v.By != "client" {
			t.Errorf("verdict %+v", v)
		}
		third := &wire{}
		if err := a.network.push(a, third); err != nil || len(third.sent) != 0 {
			t.Errorf("an answered question was sent again: %q, %v", third.hosts(), err)
		}
	})
}

func TestNetworkDecisionsAreToldOnce(t *testing.T) {
	a := &action{id: "a", network: newNetwork(func() {})}
	a.network.decided(decision("a.test", "allow"))
	a.network.decided(decision("a.test", "allow"))
	a.network.decided(decision("a.test", "sni-mismatch"))
	a.network.decided(decision("b.test", "allow"))
	if a.network.push(a, &wire{broken: true}) == nil {
		t.Fatal("a broken connection took a decision")
	}
	w := &wire{}
	if err := a.network.push(a, w); err != nil {
		t.Fatal(err)
	}
	if want := []string{"tell a.test allow", "tell a.test sni-mismatch", "tell b.test allow"}; !slices.Equal(w.hosts(), want) {
		t.Errorf("sent %q", w.hosts())
	}
	for i := range 2 * maxDecisions {
		a.network.decided(decision(string(rune('A'+i%26))+string(rune('a'+i/26%26))+string(rune('0'+i/676)), "allow"))
	}
	if n := len(a.network.decisions) + len(w.sent); n != maxDecisions {
		t.Errorf("%d decisions are kept, want %d", n, maxDecisions)
	}
}

func TestNetworkQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(func() {})
		ctx, cancel := context.WithCancel(t.Context())
		for range maxQuestions {
			go func() { _, _ = n.ask(ctx, request("a.test")) }()
		}
		synctest.Wait()
		if v, err := n.ask(ctx, request("b.test")); err != nil || v.Allowed || v.By != "limit" {
			t.Errorf("%+v, %v", v, err)
		}
		cancel()
		synctest.Wait()
		if len(n.questions) != 0 {
			t.Errorf("%d questions outlived their command", len(n.questions))
		}
	})
}

func TestProxiedPolicy(t *testing.T) {
	p := policyOf(&executorv1.Action{Workspace: "/w", Policy: &heddlev1.SandboxPolicy{
		Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, Network: heddlev1.NetworkMode_NETWORK_MODE_PROXIED,
		NetworkAllow: []string{"a.test"}, NetworkDeny: []string{"b.test"}, NetworkPorts: []uint32{443, 70000}}})
	if p.Net != sandbox.NetProxied || !slices.Equal(p.Proxy.Allow, []string{"a.test"}) || !slices.Equal(p.Proxy.Deny, []string{"b.test"}) ||
		!slices.Equal(p.Proxy.Ports, []uint16{443, 0}) {
		t.Errorf("policy %+v", p)
	}
}
