package controlplane

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// asking are settings under which the model may ask for permissions.
func asking(t *testing.T, policy string) *heddlev1.ThreadSettings {
	t.Helper()
	s := workspaceWrite(policy)
	config, err := structpb.NewStruct(map[string]any{"features": map[string]any{"request_permissions_tool": true}})
	if err != nil {
		t.Fatal(err)
	}
	s.Config = config
	return s
}

func askNetwork(id string) *heddlev1.ToolCall {
	return &heddlev1.ToolCall{CallId: id, Name: "request_permissions", Arguments: `{"reason":"to fetch","permissions":{"network":{"enabled":true}}}`}
}

func grantAll(t *testing.T, scope string) *structpb.Value {
	t.Helper()
	v, err := structpb.NewValue(map[string]any{"network": true, "write": []any{"/", "/etc"}, "read": []any{"/"}, "scope": scope})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func networks(r *rig) []heddlev1.NetworkMode {
	var out []heddlev1.NetworkMode
	r.exec.did(func(a *executorv1.Action) bool {
		if isProcess(a) {
			out = append(out, a.GetPolicy().GetNetwork())
		}
		return false
	})
	return out
}

// A question that is open at a restart keeps its id and deadline; what its answer
// grants is in the policy of later commands and in the thread's row, and both end
// with the turn. Nothing is granted beyond what was asked.
func TestRestartWhileAskingForPermissions(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(askNetwork("c1")), calls(shell("c2", "echo a")), speak("m", "ok"), calls(shell("c3", "echo b")), speak("n", "ok"))
	ctx, th := r.thread(asking(t, "on-request"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	a := f.approval()
	if row := r.row(th.GetId()); !row.GetWaitingOnApproval() || a.GetReason() != "to fetch" || !a.GetPermissions().GetNetwork() || a.GetExpiresAtMs() == 0 {
		t.Errorf("the question is %v", a)
	}
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	for {
		_, err := r.approvals.ResolveApproval(ctx, &heddlev1.ResolveApprovalRequest{
			ThreadId: th.GetId(), ApprovalId: a.GetId(), Decision: heddlev1.Decision_DECISION_ACCEPT, Answer: grantAll(t, "turn"),
		})
		if err == nil {
			break
		}
		if !errdefs.Is(err, errdefs.Busy) {
			t.Fatal(err)
		}
	}
	f = r.follow(th.GetId(), 1)
	g := f.until(func(e *heddlev1.Event) bool { return e.GetPermissionsGranted() != nil }).GetPermissionsGranted().GetGrant()
	if !g.GetNetwork() || len(g.GetWrite())+len(g.GetRead()) != 0 || g.GetScope() != "turn" || g.GetApprovalId() != a.GetId() {
		t.Errorf("granted %v", g)
	}
	f.turnEnd()
	if n := strings.Count(visible(f.seen), "ask"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if out := r.model.output("c1"); out != `{"permissions":{"network":{"enabled":true}},"scope":"turn"}` {
		t.Errorf("the model was told %q", out)
	}
	if row := r.row(th.GetId()); len(row.GetGrants()) != 0 {
		t.Errorf("after the turn there is %v", row.GetGrants())
	}
	r.startTurn(ctx, th.GetId(), "again")
	f.turnEnd()
	got := networks(r)
	if len(got) != 2 || got[0] != heddlev1.NetworkMode_NETWORK_MODE_FULL || got[1] != heddlev1.NetworkMode_NETWORK_MODE_OFF {
		t.Errorf("networks of the commands: %v", got)
	}
}

// A session's grant survives a restart and ends when the sandbox policy is
// changed.
func TestSessionGrantEndsWithThePolicy(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(askNetwork("c1")), speak("m", "ok"), calls(shell("c2", "echo a")), speak("n", "ok"), calls(shell("c3", "echo b")), speak("o", "ok"))
	ctx, th := r.thread(asking(t, "on-request"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	if _, err := r.approvals.ResolveApproval(ctx, &heddlev1.ResolveApprovalRequest{
		ThreadId: th.GetId(), ApprovalId: f.approval().GetId(), Decision: heddlev1.Decision_DECISION_ACCEPT, Answer: grantAll(t, "session"),
	}); err != nil {
		t.Fatal(err)
	}
	f.turnEnd()
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f = r.follow(th.GetId(), r.row(th.GetId()).GetLastSeq())
	r.startTurn(ctx, th.GetId(), "again")
	f.turnEnd()
	tmp := workspaceWrite("on-request").GetSandbox()
	tmp.ExcludeSlashTmp = true
	if _, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: th.GetId(), Input: say("and again"), Settings: &heddlev1.ThreadSettings{Sandbox: tmp}}); err != nil {
		t.Fatal(err)
	}
	f.turnEnd()
	got := networks(r)
	if len(got) != 2 || got[0] != heddlev1.NetworkMode_NETWORK_MODE_FULL || got[1] != heddlev1.NetworkMode_NETWORK_MODE_OFF {
		t.Errorf("networks of the commands: %v", got)
	}
	if row := r.row(th.GetId()); len(row.GetGrants()) != 0 {
		t.Errorf("after the change there is %v", row.GetGrants())
	}
}

// Whatever is no answer of the person grants nothing: nobody may be asked, the
// deadline passes, the turn is interrupted, or the answer says nothing.
func TestNothingIsGrantedWithoutAnAnswer(t *testing.T) {
	granular := func(on bool) *heddlev1.ThreadSettings {
		s := asking(t, "granular")
		s.GranularApproval = &structpb.Struct{Fields: map[string]*structpb.Value{"request_permissions": structpb.NewBoolValue(on), "sandbox_approval": structpb.NewBoolValue(true)}}
		return s
	}
	reviewed := asking(t, "on-request")
	reviewed.ApprovalsReviewer = "auto_review"
	off := workspaceWrite("on-request")
	for _, c := range []struct {
		name     string
		settings *heddlev1.ThreadSettings
		decision heddlev1.Decision
		asks     bool
		told     string
	}{
		{"never", asking(t, "never"), 0, false, "nobody is asked"},
		{"granular, off", granular(false), 0, false, "does not allow asking"},
		{"feature, off", off, 0, false, "unsupported call"},
		{"granular", granular(true), heddlev1.Decision_DECISION_DECLINE, true, `{"permissions":{},"scope":"turn"}`},
		{"the person is asked, not a reviewer", reviewed, heddlev1.Decision_DECISION_DECLINE, true, `{"permissions":{},"scope":"turn"}`},
		{"accepted without an answer", asking(t, "on-request"), heddlev1.Decision_DECISION_ACCEPT, true, `{"permissions":{},"scope":"turn"}`},
		{"unusable", asking(t, "on-request"), heddlev1.Decision_DECISION_UNUSABLE, true, "cannot be used"},
		{"deadline", asking(t, "on-request"), 0, true, "not answered in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) {
				if c.name == "deadline" {
					cfg.ApprovalTimeout = 50_000_000
				}
			})
			r.model.script(calls(askNetwork("c1")), calls(shell("c2", "echo a")), speak("m", "ok"))
			ctx, th := r.thread(c.settings)
			f := r.follow(th.GetId(), 1)
			r.startTurn(ctx, th.GetId(), "go")
			if c.decision != 0 {
				r.answer(ctx, f.approval(), c.decision)
			}
			f.turnEnd()
			if asked := strings.Contains(visible(f.seen), "ask"); asked != c.asks {
				t.Errorf("asked: %v", asked)
			}
			if out := r.model.output("c1"); !strings.Contains(out, c.told) {
				t.Errorf("the model was told %q", out)
			}
			if got := networks(r); len(got) != 1 || got[0] != heddlev1.NetworkMode_NETWORK_MODE_OFF {
				t.Errorf("networks of the commands: %v", got)
			}
		})
	}
	t.Run("interrupt", func(t *testing.T) {
		r := newRig(t)
		r.model.script(calls(askNetwork("c1")))
		ctx, th := r.thread(asking(t, "on-request"))
		f := r.follow(th.GetId(), 1)
		turn := r.startTurn(ctx, th.GetId(), "go")
		a := f.approval()
		r.interrupt(ctx, th.GetId(), turn.GetId())
		f.turnEnd()
		if resp := r.answer(ctx, a, heddlev1.Decision_DECISION_ACCEPT); resp.GetAccepted() || resp.GetApproval().GetDecidedBy() != "interrupt" {
			t.Errorf("after the interrupt: %v", resp)
		}
	})
}

// A question is about the policy that it was asked under: with another one in
// force by the time of the answer, nothing is granted.
func TestPermissionsAreForTheirPolicy(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(askNetwork("c1")), calls(shell("c2", "echo a")), speak("m", "ok"))
	ctx, th := r.thread(asking(t, "on-request"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	a := f.approval()
	readOnly := &heddlev1.ThreadSettings{Sandbox: &heddlev1.SandboxPolicy{
		Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, Network: heddlev1.NetworkMode_NETWORK_MODE_OFF}}
	if _, err := r.threads.UpdateSettings(ctx, &heddlev1.UpdateSettingsRequest{ThreadId: th.GetId(), Settings: readOnly}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.approvals.ResolveApproval(ctx, &heddlev1.ResolveApprovalRequest{
		ThreadId: th.GetId(), ApprovalId: a.GetId(), Decision: heddlev1.Decision_DECISION_ACCEPT, Answer: grantAll(t, "session"),
	}); err != nil {
		t.Fatal(err)
	}
	f.turnEnd()
	if out := r.model.output("c1"); !strings.Contains(out, "policy was changed") {
		t.Errorf("the model was told %q", out)
	}
	if got := networks(r); len(got) != 1 || got[0] != heddlev1.NetworkMode_NETWORK_MODE_OFF {
		t.Errorf("networks of the commands: %v", got)
	}
}
