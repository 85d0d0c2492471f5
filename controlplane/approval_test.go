package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (r *rig) answer(ctx contextType, a *heddlev1.Approval, d heddlev1.Decision, amendment ...string) *heddlev1.ResolveApprovalResponse {
	r.t.Helper()
	resp, err := r.approvals.ResolveApproval(ctx, &heddlev1.ResolveApprovalRequest{ThreadId: a.GetThreadId(), ApprovalId: a.GetId(), Decision: d, Amendment: amendment})
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

func TestApprovalDecisions(t *testing.T) {
	const head = "started start:user end:user:completed usage start:command ask answer "
	const said = " start:agent delta end:agent:completed usage turn:completed"
	for _, c := range []struct {
		name     string
		decision heddlev1.Decision
		events   string
		told     string
		runs     int
	}{
		{"accept", heddlev1.Decision_DECISION_ACCEPT, head + "output end:command:completed" + said, "exited with code 0", 1},
		{"decline", heddlev1.Decision_DECISION_DECLINE, head + "end:command:declined" + said, `"rejected by user"`, 0},
		{"unusable", heddlev1.Decision_DECISION_UNUSABLE, head + "end:command:failed" + said, "approval request failed", 0},
		{"cancel", heddlev1.Decision_DECISION_CANCEL, head + "end:command:declined turn:interrupted", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.model.script(calls(shell("c1", "echo ran")), speak("m", "ok"))
			ctx, th := r.thread(workspaceWrite("untrusted"))
			f := r.follow(th.GetId(), 1)
			r.startTurn(ctx, th.GetId(), "go")
			a := f.approval()
			if a.GetRequestId() < 0 || a.GetItemId() != "c1" || len(a.GetActionHash()) != 32 || a.GetExpiresAtMs() <= a.GetRequestedAtMs() ||
				a.GetDefaultDecision() != heddlev1.Decision_DECISION_DECLINE || a.GetCommand().GetCwd() != "/work" {
				t.Fatalf("approval is %v", a)
			}
			row, err := r.threads.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: th.GetId()})
			if err != nil || !row.GetThread().GetWaitingOnApproval() {
				t.Fatal(row, err)
			}
			if resp := r.answer(ctx, a, c.decision); !resp.GetAccepted() || resp.GetApproval().GetDecidedBy() != "client" {
				t.Fatal(resp)
			}
			if resp := r.answer(ctx, a, heddlev1.Decision_DECISION_ACCEPT); resp.GetAccepted() || resp.GetApproval().GetDecision() != c.decision {
				t.Fatalf("a second answer won: %v", resp)
			}
			f.turnEnd()
			expect(t, f, c.events)
			if n := r.exec.did(isProcess); n != c.runs {
				t.Fatalf("ran %d times", n)
			}
			if out := r.model.output("c1"); !strings.Contains(out, c.told) {
				t.Fatalf("the model was told %q", out)
			}
		})
	}
}

// I7: the executor gets exactly what was approved.
func TestApprovedIsWhatRuns(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "echo x", `,"sandbox_permissions":"require_escalated","justification":"please"`)), speak("m", "ok"))
	ctx, th := r.thread(workspaceWrite("on-request"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	a := f.approval()
	if !a.GetCommand().GetEscalated() || a.GetReason() != "please" {
		t.Fatal(a)
	}
	r.answer(ctx, a, heddlev1.Decision_DECISION_ACCEPT)
	f.turnEnd()
	r.exec.mu.Lock()
	defer r.exec.mu.Unlock()
	for _, act := range r.exec.actions {
		if s := act.GetStartProcess(); s != nil {
			if string(act.GetActionHash()) != string(a.GetActionHash()) {
				t.Fatal("the action has another hash than the approval")
			}
			if act.GetPolicy().GetLevel() != heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS {
				t.Fatal(act.GetPolicy())
			}
			for _, kv := range s.GetEnv() {
				if strings.Contains(kv, "secret") {
					t.Fatal("a secret reached the executor")
				}
			}
			return
		}
	}
	t.Fatal("nothing ran")
}

func TestAcceptForSession(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "echo a")), calls(shell("c2", "echo a")), speak("m1", "1"), calls(shell("c3", "echo a")), calls(shell("c4", "echo b")), speak("m2", "2"))
	ctx, th := r.thread(workspaceWrite("untrusted"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	r.answer(ctx, f.approval(), heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION)
	f.turnEnd()
	r.startTurn(ctx, th.GetId(), "go")
	a := f.approval()
	if a.GetItemId() != "c4" {
		t.Fatalf("asked for %s", a.GetItemId())
	}
	r.answer(ctx, a, heddlev1.Decision_DECISION_DECLINE)
	f.turnEnd()
	if n := r.exec.did(isProcess); n != 3 {
		t.Fatalf("ran %d times", n)
	}
}

func TestAmendment(t *testing.T) {
	esc := `,"sandbox_permissions":"require_escalated","prefix_rule":["echo"]`
	for _, c := range []struct {
		name, policy, first string
		// asked is whether an escalated call with the prefix is asked for later.
		asked bool
	}{
		{"given for an escalation", "on-request", esc, false},
		{"given for a plain command", "untrusted", `,"prefix_rule":["echo"]`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.model.script(calls(shell("c1", "echo a", c.first)), calls(shell("c2", "echo b", esc)), speak("m", "ok"))
			ctx, th := r.thread(workspaceWrite(c.policy))
			f := r.follow(th.GetId(), 1)
			r.startTurn(ctx, th.GetId(), "go")
			a := f.approval()
			if strings.Join(a.GetCommand().GetProposedAmendment(), " ") != "echo" {
				t.Fatalf("proposed %v", a.GetCommand().GetProposedAmendment())
			}
			r.answer(ctx, a, heddlev1.Decision_DECISION_ACCEPT_WITH_AMENDMENT, "echo")
			if c.asked {
				if a = f.approval(); a.GetItemId() != "c2" {
					t.Fatal(a)
				}
				r.answer(ctx, a, heddlev1.Decision_DECISION_DECLINE)
			}
			f.turnEnd()
			if n := strings.Count(visible(f.seen), "ask"); (n == 2) != c.asked {
				t.Fatalf("asked %d times", n)
			}
			data, err := os.ReadFile(filepath.Join(r.home, "rules", "default.rules"))
			if err != nil || !strings.Contains(string(data), `prefix_rule(pattern=["echo"], decision="allow")`) {
				t.Fatalf("%s, %v", data, err)
			}
		})
	}
}

func TestPolicyNeverRefuses(t *testing.T) {
	r := newRig(t)
	set := workspaceWrite("never")
	set.Sandbox.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
	r.model.script(calls(shell("c1", "rm -rf d")), speak("m", "no"))
	ctx, th := r.thread(set)
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	expect(t, f, "started start:user end:user:completed usage start:agent delta end:agent:completed usage turn:completed")
	if out := r.model.output("c1"); !strings.Contains(out, "rejected") {
		t.Fatalf("the model was told %q", out)
	}
	r.model.script(calls(shell("c2", "rm -rf d")), speak("m2", "ok"))
	resp, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: th.GetId(), Input: say("go"), Settings: &heddlev1.ThreadSettings{ApprovalPolicy: "on-request"}})
	if err != nil || resp.GetChangedSettings().GetApprovalPolicy() != "on-request" {
		t.Fatal(resp, err)
	}
	if a := f.approval(); a.GetRisk() != heddlev1.Risk_RISK_HIGH {
		t.Fatal(a)
	}
}

func TestApprovalDeadline(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ApprovalTimeout = 50_000_000 })
	r.model.script(calls(shell("c1", "echo a")), speak("m", "ok"))
	ctx, th := r.thread(workspaceWrite("untrusted"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	expect(t, f, "started start:user end:user:completed usage start:command ask answer end:command:declined start:agent delta end:agent:completed usage turn:completed")
	for _, e := range f.seen {
		if a := e.GetApprovalResolved().GetApproval(); a != nil && a.GetDecidedBy() != "deadline" {
			t.Fatal(a)
		}
	}
}

func TestInterruptWhileAsking(t *testing.T) {
	r := newRig(t)
	r.model.script(calls(shell("c1", "echo a")), speak("m", "fine"))
	ctx, th := r.thread(workspaceWrite("untrusted"))
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "go")
	a := f.approval()
	r.interrupt(ctx, th.GetId(), turn.GetId())
	f.turnEnd()
	expect(t, f, "started start:user end:user:completed usage start:command ask answer end:command:failed turn:interrupted")
	if resp := r.answer(ctx, a, heddlev1.Decision_DECISION_ACCEPT); resp.GetAccepted() || resp.GetApproval().GetDecidedBy() != "interrupt" {
		t.Fatal(resp)
	}
	r.startTurn(ctx, th.GetId(), "again")
	f.turnEnd()
	if out := r.model.output("c1"); !strings.Contains(out, "aborted") {
		t.Fatalf("the model was told %q", out)
	}
	if r.exec.did(isProcess) != 0 {
		t.Fatal("it ran")
	}
}

func TestPatch(t *testing.T) {
	readOnly := workspaceWrite("on-request")
	readOnly.Sandbox.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
	never := workspaceWrite("never")
	never.Sandbox.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
	const head = "started start:user end:user:completed usage "
	const said = "start:agent delta end:agent:completed usage "
	heredoc := shell("c1", `apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: n.txt\n+x\n*** End Patch\nEOF`)
	for _, c := range []struct {
		name     string
		settings *heddlev1.ThreadSettings
		call     *heddlev1.ToolCall
		decision heddlev1.Decision
		events   string
		told     string
	}{
		{"inside", workspaceWrite("never"), patchOf("c1", "n.txt"), 0, head + "start:file end:file:completed diff " + said + "diff turn:completed", "A /work/n.txt"},
		{"heredoc", workspaceWrite("never"), heredoc, 0, head + "start:file end:file:completed diff " + said + "diff turn:completed", "A /work/n.txt"},
		{"malformed", workspaceWrite("never"), &heddlev1.ToolCall{CallId: "c1", Name: "apply_patch", Freeform: true, Arguments: "garbage"}, 0, head + said + "turn:completed", "apply_patch verification failed: no file"},
		{"refused", never, patchOf("c1", "n.txt"), 0, head + said + "turn:completed", "patch rejected"},
		{"accept", readOnly, patchOf("c1", "n.txt"), heddlev1.Decision_DECISION_ACCEPT, head + "start:file ask answer end:file:completed diff " + said + "diff turn:completed", "A /work/n.txt"},
		{"decline", readOnly, patchOf("c1", "n.txt"), heddlev1.Decision_DECISION_DECLINE, head + "start:file ask answer end:file:declined " + said + "turn:completed", "patch rejected by user"},
		{"cancel", readOnly, patchOf("c1", "n.txt"), heddlev1.Decision_DECISION_CANCEL, head + "start:file ask answer end:file:declined turn:interrupted", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.model.script(calls(c.call), speak("m", "ok"))
			ctx, th := r.thread(c.settings)
			f := r.follow(th.GetId(), 1)
			r.startTurn(ctx, th.GetId(), "go")
			if c.decision != 0 {
				r.answer(ctx, f.approval(), c.decision)
			}
			f.turnEnd()
			expect(t, f, c.events)
			if out := r.model.output("c1"); !strings.Contains(out, c.told) {
				t.Fatalf("the model was told %q", out)
			}
			for _, e := range f.seen {
				if d := e.GetDiffUpdated().GetDiff(); d != "" {
					want := "diff --git a/n.txt b/n.txt\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..587be6b4c3f93f93c489c0111bba5596147a26cb\n--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1 @@\n+x\n"
					if d != want {
						t.Fatalf("diff is\n%s", d)
					}
				}
			}
		})
	}
}
