package controlplane

import (
	"strings"
	"testing"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Permissions that are taken back while a command or a patch is asked about hold
// for it, and for the commands behind it in the same step.
func TestTightenedWhileAsked(t *testing.T) {
	for _, first := range []*heddlev1.ToolCall{patchOf("c1", "n.txt"), shell("c1", "touch x")} {
		t.Run(first.GetName(), func(t *testing.T) {
			r := newRig(t)
			r.model.script(calls(first, shell("c2", "echo a")), speak("m", "done"))
			ctx, th := r.thread(workspaceWrite("untrusted"))
			f := r.follow(th.GetId(), 1)
			r.startTurn(ctx, th.GetId(), "go")
			asked := []*heddlev1.Approval{f.approval(), f.approval()}
			readOnly := &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, Network: heddlev1.NetworkMode_NETWORK_MODE_OFF}
			if _, err := r.threads.UpdateSettings(ctx, &heddlev1.UpdateSettingsRequest{ThreadId: th.GetId(), Settings: &heddlev1.ThreadSettings{Sandbox: readOnly}}); err != nil {
				t.Fatal(err)
			}
			for _, a := range asked {
				r.answer(ctx, a, heddlev1.Decision_DECISION_ACCEPT)
			}
			f.turnEnd()
			for _, id := range []string{"c1", "c2"} {
				if out := r.model.output(id); !strings.Contains(out, "changed the permissions") {
					t.Errorf("%s: %q", id, out)
				}
			}
			if n := r.exec.did(func(a *executorv1.Action) bool {
				return (isProcess(a) || a.GetCommitPatch() != nil) && a.GetPolicy().GetLevel() != heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
			}); n != 0 {
				t.Errorf("%d actions under the old policy", n)
			}
		})
	}
}
