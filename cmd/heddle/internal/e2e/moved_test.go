package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// commandIn runs one turn with one command in a thread and returns its item.
func (a *appServer) commandIn(thread, text string) map[string]any {
	a.w.t.Helper()
	turn := a.startTurn(thread, text)
	m := a.await("end of the command of "+text, 30*time.Second, func(m message) bool {
		item, _ := m.Params["item"].(map[string]any)
		return m.Method == "item/completed" && item["type"] == "commandExecution" && m.Params["turnId"] == turn
	})
	a.awaitTurn(turn, 30*time.Second)
	return m.Params["item"].(map[string]any)
}

func (a *appServer) threadIn(cwd string) string {
	a.w.t.Helper()
	th, _ := a.call("thread/start", map[string]any{"cwd": cwd, "approvalPolicy": "on-request"})["thread"].(map[string]any)
	return fmt.Sprint(th["id"])
}

// TestWorkspaceLedElsewhere: a thread that may write above another one's
// workspace leads it elsewhere by a link. No command of the other runs there:
// not in its sandbox, not in a new one after the executor was killed, and not as
// an approved escalation. When the link is gone it works again.
func TestWorkspaceLedElsewhere(t *testing.T) {
	escalate := step{call: "exec_command", args: map[string]any{
		"cmd": "touch escalated", "sandbox_permissions": "require_escalated", "justification": "May I?",
	}}
	w := newWorld(t, newModel(t, map[string][]step{
		"LEAD":     {run("mv a a0 && ln -s ../out a && echo led"), {say: "done"}},
		"WORK":     {run("touch f && echo worked"), {say: "done"}},
		"ESCALATE": {escalate, {say: "done"}},
	}))
	victim, out := filepath.Join(w.workspace, "a", "b"), filepath.Join(filepath.Dir(w.home), "out", "b")
	for _, dir := range []string{victim, out} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	app := w.appServer()
	other, thread := app.threadIn(w.workspace), app.threadIn(victim)
	works := func(when string) {
		t.Helper()
		if item := app.commandIn(thread, "WORK"); item["status"] != "completed" {
			t.Fatalf("%s: %v", when, item)
		}
	}
	refused := func(when, word string) {
		t.Helper()
		item := app.commandIn(thread, word)
		said := fmt.Sprint(item["aggregatedOutput"])
		for range 20 { // an executor that was killed may still be asked
			if !strings.Contains(said, "was lost") {
				break
			}
			item = app.commandIn(thread, word)
			said = fmt.Sprint(item["aggregatedOutput"])
		}
		if item["status"] != "failed" || !strings.Contains(said, "leads to "+out) || !strings.Contains(said, "put back") {
			t.Errorf("%s: %v", when, item)
		}
		if left, _ := os.ReadDir(out); len(left) > 0 {
			t.Fatalf("%s: %s was written", when, left[0].Name())
		}
	}
	works("at first")
	if item := app.commandIn(other, "LEAD"); item["status"] != "completed" {
		t.Fatalf("the other thread: %v", item)
	}
	refused("in its sandbox", "WORK")
	killed := false
	for _, p := range w.processes() {
		if strings.Contains(p.cmdline, " executor") {
			killed = syscall.Kill(p.pid, syscall.SIGKILL) == nil
		}
	}
	if !killed {
		t.Fatalf("no executor among %v", w.processes())
	}
	refused("in a new sandbox of a new executor", "WORK")
	turn := app.startTurn(thread, "ESCALATE")
	q := app.await("a question", 30*time.Second, func(m message) bool { return m.Method == "item/commandExecution/requestApproval" })
	app.send(map[string]any{"id": q.ID, "result": map[string]any{"decision": "accept"}})
	m := app.await("the end of the escalated command", 30*time.Second, func(m message) bool {
		item, _ := m.Params["item"].(map[string]any)
		return m.Method == "item/completed" && item["type"] == "commandExecution" && m.Params["turnId"] == turn
	})
	app.awaitTurn(turn, 30*time.Second)
	if item := m.Params["item"].(map[string]any); item["status"] != "failed" || !strings.Contains(fmt.Sprint(item["aggregatedOutput"]), "leads to "+out) {
		t.Errorf("escalated: %v", item)
	}
	app.close()
	app = w.appServer() // another control plane reads what was recorded
	app.call("thread/resume", map[string]any{"threadId": thread})
	refused("after a restart of everything", "WORK")
	if err := os.Remove(filepath.Join(w.workspace, "a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(w.workspace, "a0"), filepath.Join(w.workspace, "a")); err != nil {
		t.Fatal(err)
	}
	works("when it leads to its place again")
	app.close()
	if left, _ := os.ReadDir(out); len(left) > 0 {
		t.Errorf("%s was written", left[0].Name())
	}
	_ = os.RemoveAll(filepath.Join(w.workspace, "a"))
}
