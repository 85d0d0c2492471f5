package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// fakeNetwork is the network of a fake executor's commands: it asks about every
// host.
type fakeNetwork struct {
	mu   sync.Mutex
	open map[string]*executorv1.NetworkRequest
	told map[string]chan *executorv1.NetworkVerdict
	next int
}

// reach asks for hosts in turn and prints what came of each.
func (x *fakeExecutor) reach(p *fakeProcess, hosts []string) int32 {
	a := p.action
	for _, h := range hosts {
		c := make(chan *executorv1.NetworkVerdict, 4)
		x.net.mu.Lock()
		x.net.next++
		id := fmt.Sprint(x.net.next)
		q := &executorv1.NetworkRequest{ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(), RequestId: id, Host: h, Port: 443, Protocol: "https"}
		if x.net.open == nil {
			x.net.open, x.net.told = map[string]*executorv1.NetworkRequest{}, map[string]chan *executorv1.NetworkVerdict{}
		}
		x.net.open[id], x.net.told[id] = q, c
		x.net.mu.Unlock()
		x.out(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_NetworkRequest{NetworkRequest: q}})
		select {
		case code := <-p.end:
			return code
		case v := <-c:
			x.out(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_NetworkDecision{NetworkDecision: &executorv1.NetworkDecision{
				ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(),
				Decided: &heddlev1.NetworkDecided{Host: h, Port: 443, Protocol: "https", Allowed: v.GetAllowed(), By: v.GetBy(), Reason: v.GetReason()}}}})
			x.print(p, fmt.Sprintf("%s %v %s\n", h, v.GetAllowed(), v.GetReason()))
		}
	}
	return 0
}

func (n *fakeNetwork) answer(v *executorv1.NetworkVerdict) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.told[v.GetRequestId()]; c != nil {
		delete(n.open, v.GetRequestId())
		c <- v
	}
}

// again asks on a new session what was not answered on the old one.
func (n *fakeNetwork) again(send func(*executorv1.ConnectRequest)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.open {
		send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_NetworkRequest{NetworkRequest: q}})
	}
}

func proxiedSettings(policy string) *heddlev1.ThreadSettings {
	s := workspaceWrite(policy)
	s.Sandbox.Network, s.Sandbox.NetworkMiss = heddlev1.NetworkMode_NETWORK_MODE_PROXIED, heddlev1.NetworkMiss_NETWORK_MISS_ASK
	s.Sandbox.NetworkAllow = []string{"listed.test"}
	return s
}

// decisions are the recorded ones in words.
func decisions(f *follower) []string {
	var out []string
	for _, e := range f.seen {
		if d := e.GetNetworkDecided(); d != nil {
			out = append(out, fmt.Sprintf("%s %s:%d %s %v %s", d.GetItemId(), d.GetHost(), d.GetPort(), d.GetProtocol(), d.GetAllowed(), d.GetBy()))
		}
	}
	return out
}

func isCancel(d heddlev1.Decision) bool { return d == heddlev1.Decision_DECISION_CANCEL }

func TestHostDecisions(t *testing.T) {
	for _, row := range []struct {
		name     string
		policy   string
		decision heddlev1.Decision
		allowed  bool
		turn     string
	}{
		{"accept", "on-request", heddlev1.Decision_DECISION_ACCEPT, true, "completed"},
		{"session", "on-request", heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION, true, "completed"},
		{"decline", "on-request", heddlev1.Decision_DECISION_DECLINE, false, "completed"},
		{"unusable", "on-request", heddlev1.Decision_DECISION_UNUSABLE, false, "completed"},
		{"cancel", "on-request", heddlev1.Decision_DECISION_CANCEL, false, "interrupted"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.model.script(calls(shell("c1", "reach a.test a.test")), calls(shell("c2", "reach a.test")), speak("m", "ok"))
			ctx, th := r.thread(proxiedSettings(row.policy))
			f := r.follow(th.GetId(), 1)
			r.startTurn(ctx, th.GetId(), "go")
			a := f.approval()
			n := a.GetCommand().GetNetwork()
			if n.GetHost() != "a.test" || n.GetProtocol() != "https" || n.GetPort() != 443 || a.GetItemId() != "c1" || len(a.GetActionHash()) != 32 ||
				!strings.Contains(a.GetReason(), "a.test") || !strings.Contains(a.GetCommand().GetCommand(), "reach") {
				t.Fatalf("approval %v", a)
			}
			r.answer(ctx, a, row.decision)
			if row.decision != heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION && !isCancel(row.decision) {
				// The next command is asked about again, the same one is not.
				second := f.approval()
				if second.GetItemId() != "c2" {
					t.Fatalf("asked again for %s", second.GetItemId())
				}
				r.answer(ctx, second, heddlev1.Decision_DECISION_DECLINE)
			}
			end := f.turnEnd()
			if got := strings.ToLower(strings.TrimPrefix(end.GetStatus().String(), "TURN_STATUS_")); got != row.turn {
				t.Errorf("turn %s", got)
			}
			once(t, f)
			if isCancel(row.decision) {
				return
			}
			got := decisions(f)
			first := fmt.Sprintf("c1 a.test:443 https %v client", row.allowed)
			want := []string{first, first, "c2 a.test:443 https false client"}
			if row.name == "session" {
				want = []string{first, "c1 a.test:443 https true session", "c2 a.test:443 https true session"}
			}
			if !slices.Equal(got, want) {
				t.Errorf("decisions %q", got)
			}
		})
	}
}

func TestHostIsRefusedWithoutAsking(t *testing.T) {
	deny := proxiedSettings("on-request")
	deny.Sandbox.NetworkMiss = heddlev1.NetworkMiss_NETWORK_MISS_DENY
	for name, s := range map[string]*heddlev1.ThreadSettings{"never": proxiedSettings("never"), "on_miss": deny} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.model.script(calls(shell("c1", "reach a.test")), speak("m", "ok"))
			ctx, th := r.thread(s)
			f := r.follow(th.GetId(), 1)
			r.startTurn(ctx, th.GetId(), "go")
			f.turnEnd()
			if got := decisions(f); !slices.Equal(got, []string{"c1 a.test:443 https false policy"}) {
				t.Errorf("decisions %q", got)
			}
			if out := r.model.output("c1"); !strings.Contains(out, "a.test false it is not on the list") {
				t.Errorf("the model was told %q", out)
			}
		})
	}
}

// TestHostQuestionEndsWithItsTurn: a question that is open when the turn is
// interrupted is durably cancelled before the turn's end.
func TestHostQuestionEndsWithItsTurn(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "reach a.test")))
	ctx, th := r.thread(proxiedSettings("on-request"))
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "go")
	f.approval()
	if _, err := r.turns.InterruptTurn(ctx, &heddlev1.InterruptTurnRequest{ThreadId: th.GetId(), TurnId: turn.GetId()}); err != nil {
		t.Fatal(err)
	}
	f.turnEnd()
	once(t, f)
	resolved := 0
	for _, e := range f.seen {
		if a := e.GetApprovalResolved().GetApproval(); a != nil && isCancel(a.GetDecision()) && a.GetDecidedBy() == "interrupt" {
			resolved++
		}
	}
	if resolved != 1 {
		t.Errorf("%d cancelled questions: %s", resolved, describe(f.seen))
	}
}

// TestHostQuestionSurvivesRestart: the question keeps its request id and its
// answer reaches the command, which still runs.
func TestHostQuestionSurvivesRestart(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(shell("c1", "reach a.test")), speak("m", "done"))
	ctx, th := r.thread(proxiedSettings("on-request"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	a := f.approval()
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f = r.follow(th.GetId(), 1)
	f.approval()
	pending, err := r.approvals.ListPendingApprovals(ctx, &heddlev1.ListPendingApprovalsRequest{ThreadId: th.GetId()})
	if err != nil || len(pending.GetApprovals()) != 1 || pending.GetApprovals()[0].GetRequestId() != a.GetRequestId() {
		t.Fatalf("pending %v, %v", pending, err)
	}
	r.answer(ctx, a, heddlev1.Decision_DECISION_ACCEPT)
	f.turnEnd()
	once(t, f)
	if got := decisions(f); !slices.Equal(got, []string{"c1 a.test:443 https true client"}) {
		t.Errorf("decisions %q", got)
	}
	asked := 0
	for _, e := range f.seen {
		if e.GetApprovalRequested() != nil {
			asked++
		}
	}
	if asked != 1 || r.exec.did(isProcess) != 1 {
		t.Errorf("asked %d times, ran %d times", asked, r.exec.did(isProcess))
	}
}

// TestNetworkTable: the config's lists become the policy of a thread and of a
// client's "network access".
func TestNetworkTable(t *testing.T) {
	r := newRig(t)
	text := "[network]\nallow = [\"example.org\", \"*.test:8443\"]\ndeny = [\"bad.test\"]\nports = [443]\non_miss = \"deny\"\n"
	if err := os.WriteFile(filepath.Join(r.home, "config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	level := func(l heddlev1.SandboxLevel, n heddlev1.NetworkMode) *heddlev1.ThreadSettings {
		return &heddlev1.ThreadSettings{Model: "gpt-5.5", Sandbox: &heddlev1.SandboxPolicy{Level: l, Network: n}}
	}
	const (
		ro, ww, full = heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
		unset, off   = heddlev1.NetworkMode_NETWORK_MODE_UNSPECIFIED, heddlev1.NetworkMode_NETWORK_MODE_OFF
		open         = heddlev1.NetworkMode_NETWORK_MODE_FULL
		proxied      = heddlev1.NetworkMode_NETWORK_MODE_PROXIED
	)
	for _, row := range []struct {
		level       heddlev1.SandboxLevel
		given, want heddlev1.NetworkMode
	}{
		{ro, unset, proxied}, {ww, unset, proxied}, {full, unset, open}, {ww, off, off}, {ww, open, proxied}, {ro, open, proxied}, {full, open, open},
	} {
		_, th := r.thread(level(row.level, row.given))
		p := th.GetSettings().GetSandbox()
		if p.GetNetwork() != row.want {
			t.Errorf("%v, %v: network %v, want %v", row.level, row.given, p.GetNetwork(), row.want)
		}
		if row.want == proxied && (!slices.Equal(p.GetNetworkAllow(), []string{"example.org", "*.test:8443"}) || !slices.Equal(p.GetNetworkDeny(), []string{"bad.test"}) ||
			!slices.Equal(p.GetNetworkPorts(), []uint32{443}) || p.GetNetworkMiss() != heddlev1.NetworkMiss_NETWORK_MISS_DENY) {
			t.Errorf("policy %v", p)
		}
	}
}
