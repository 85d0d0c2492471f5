package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// C16: with approvalsReviewer auto_review no client is asked; a reviewer model
// decides, and both ends of its review are shown.
func TestAutoReviewOverTheWire(t *testing.T) {
	for _, row := range []struct{ verdict, status, told string }{
		{`{"outcome":"allow"}`, "approved", "exited with code 0"},
		{`{"risk_level":"high","user_authorization":"low","outcome":"deny","rationale":"it was not asked for"}`, "denied", "it was not asked for"},
	} {
		t.Run(row.status, func(t *testing.T) {
			m := newModel(t, map[string][]step{
				"GO":                              {{call: "exec_command", args: map[string]any{"cmd": "echo ran", "sandbox_permissions": "require_escalated", "justification": "let me"}}, {say: "done"}},
				"Review this action of the agent": {{say: row.verdict}},
			})
			w := newWorld(t, m)
			a := w.appServer()
			th := a.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "on-request", "approvalsReviewer": "auto_review"})
			if th["approvalsReviewer"] != "auto_review" {
				t.Errorf("started with %v", th["approvalsReviewer"])
			}
			id := th["thread"].(map[string]any)["id"].(string)
			turn := a.startTurn(id, "GO")
			a.await("the review's start", 20*time.Second, func(m message) bool { return m.Method == "item/autoApprovalReview/started" })
			end := a.await("the review's end", 20*time.Second, func(m message) bool { return m.Method == "item/autoApprovalReview/completed" })
			review, _ := end.Params["review"].(map[string]any)
			action, _ := end.Params["action"].(map[string]any)
			if review["status"] != row.status || action["type"] != "command" || !strings.Contains(fmt.Sprint(action["command"]), "echo ran") || end.Params["targetItemId"] == nil {
				t.Errorf("review %v", end.Params)
			}
			if got := a.awaitTurn(turn, 20*time.Second); got != "completed" {
				t.Errorf("turn %s", got)
			}
			if n := a.count("item/commandExecution/requestApproval") + a.count("serverRequest/resolved"); n != 0 {
				t.Errorf("the client was asked %d times", n)
			}
			refused := row.status == "approved"
			event := map[string]any{"threadId": id, "event": map[string]any{"id": end.Params["reviewId"], "status": row.status}}
			if refused {
				if text := a.refused("thread/approveGuardianDeniedAction", event); !strings.Contains(text, "not denied") {
					t.Errorf("refused with %q", text)
				}
			} else if got := a.call("thread/approveGuardianDeniedAction", event); len(got) != 0 {
				t.Errorf("answer %v", got)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if last := m.requests[len(m.requests)-1]; !strings.Contains(last, row.told) {
				t.Errorf("the model was told %s", last)
			}
		})
	}
}
