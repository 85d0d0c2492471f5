package controlplane

import (
	"strings"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// A process that was started with permissions which the thread has lost is not
// written to in silence: it is asked about, or refused where nobody may be asked.
func TestWriteStdinAfterPermissionsAreTakenBack(t *testing.T) {
	for policy, want := range map[string]string{"never": "more permissions than the thread has now", "on-request": "rejected by user"} {
		t.Run(policy, func(t *testing.T) {
			r := newRig(t)
			var session string
			r.model.script(calls(shell("c1", "cat", `,"tty":true,"yield_time_ms":250`)), speak("m", "ok"),
				func(ctx contextType, yield yieldType) error {
					_, rest, _ := strings.Cut(r.model.output("c1"), "session ID ")
					session, _, _ = strings.Cut(rest, "\n")
					return calls(&heddlev1.ToolCall{CallId: "c2", Name: "write_stdin", Arguments: `{"session_id":` + session + `,"chars":"rm -rf ~\n","yield_time_ms":1000}`})(ctx, yield)
				}, speak("n", "end"))
			open := workspaceWrite("never")
			open.Sandbox = &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS, Network: heddlev1.NetworkMode_NETWORK_MODE_FULL}
			ctx, th := r.thread(open)
			f := r.follow(th.GetId(), 1)
			r.startTurn(ctx, th.GetId(), "go")
			f.turnEnd()
			_, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{
				ThreadId: th.GetId(), Input: &heddlev1.UserMessage{Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: "on"}}}},
				Settings: workspaceWrite(policy),
			})
			if err != nil {
				t.Fatal(err)
			}
			if policy != "never" {
				asked := f.until(func(e *heddlev1.Event) bool { return e.GetApprovalRequested() != nil }).GetApprovalRequested().GetApproval()
				if asked.GetCommand().GetStdin().GetText() != "rm -rf ~\n" {
					t.Errorf("asked %v", asked)
				}
				r.answer(ctx, asked, heddlev1.Decision_DECISION_DECLINE)
			}
			f.turnEnd()
			if out := r.model.output("c2"); !strings.Contains(out, want) || strings.Contains(visible(f.seen), "stdin") {
				t.Errorf("the model was told %q; %s", out, visible(f.seen))
			}
		})
	}
}
