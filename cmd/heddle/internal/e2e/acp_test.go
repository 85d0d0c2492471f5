//go:build clients

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClientACP lets acpx, a client of the Agent Client Protocol, drive heddle
// by the codex-acp adapter, which starts `heddle app-server`.
func TestClientACP(t *testing.T) {
	t.Parallel()
	// Without optional packages: those are OpenAI's own binary.
	dir := npmClient(t, "acp", "--omit=optional")
	scripts := map[string][]step{
		"HELLO": sdkScripts["HELLO"], "PATCH": sdkScripts["PATCH"], "SLOW": sdkScripts["SLOW"],
		// The adapter asks for a title by a thread of its own.
		"generate a very short title": {{say: `{"title":"Greeting the tester"}`}},
	}
	m := newModel(t, scripts)
	w := newWorld(t, m)
	w.ask()
	scripts["FIRST"] = []step{w.outside("first"), {say: "it was allowed"}}
	scripts["SECOND"] = []step{w.outside("second"), {say: "it was not"}}
	a := &acpx{w: w, bin: filepath.Join(dir, "node_modules/.bin"), heddle: w.tapped()}
	a.oneShot(m)
	a.approvals()
	a.session()
}

type acpx struct {
	w      *world
	bin    string
	heddle string
}

func (a *acpx) command(ctx context.Context, args ...string) *exec.Cmd {
	all := append([]string{"--agent", filepath.Join(a.bin, "codex-acp"), "--ttl", "60", "--timeout", "60"}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(a.bin, "acpx"), all...)
	cmd.Dir = a.w.workspace
	// The mode in which the adapter leaves approvals to its client.
	cmd.Env = append(a.w.env(), "CODEX_PATH="+a.heddle, "INITIAL_AGENT_MODE=workspace-write", "NO_BROWSER=1")
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run returns what acpx printed; it must end well.
func (a *acpx) run(args ...string) string {
	a.w.t.Helper()
	out, err := a.try(args...)
	if err != nil {
		a.w.t.Fatalf("acpx %v: %v\n%s", args, err, out)
	}
	return out
}

func (a *acpx) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(a.w.t.Context(), 90*time.Second)
	defer cancel()
	began := time.Now()
	out, err := a.command(ctx, args...).CombinedOutput()
	a.w.t.Logf("acpx %v took %v", args, time.Since(began).Round(time.Millisecond))
	return string(out), err
}

// messages parses the JSON-RPC messages that acpx printed.
func (a *acpx) messages(out string) []map[string]any {
	a.w.t.Helper()
	var messages []map[string]any
	for line := range strings.Lines(out) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			a.w.t.Errorf("not a message: %q", line)
		}
		messages = append(messages, m)
	}
	return messages
}

func (a *acpx) oneShot(m *model) {
	a.w.t.Helper()
	out := a.run("--format", "json", "--json-strict", "--model", "gpt-5.5", "exec", "--config-option", "reasoning_effort=high", "say HELLO")
	text, stop := "", ""
	for _, m := range a.messages(out) {
		params, _ := m["params"].(map[string]any)
		update, _ := params["update"].(map[string]any)
		content, _ := update["content"].(map[string]any)
		if part, ok := content["text"].(string); ok && update["sessionUpdate"] == "agent_message_chunk" {
			text += part
		}
		if result, ok := m["result"].(map[string]any); ok && result["stopReason"] != nil {
			stop, _ = result["stopReason"].(string)
		}
	}
	if text != "hello there" || stop != "end_turn" {
		a.w.t.Errorf("text %q, stop %q\n%s", text, stop, out)
	}
	// The adapter names a model and its effort in one id.
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.requests) == 0 || !strings.Contains(m.requests[0], `"gpt-5.5"`) || !strings.Contains(m.requests[0], `"effort":"high"`) {
		a.w.t.Errorf("the model and its effort did not reach the provider: %.2000v", m.requests)
	}
}

func (a *acpx) approvals() {
	a.w.t.Helper()
	out := a.run("--approve-all", "exec", "ask FIRST")
	if !a.w.exists(a.w.beside("first")) || !strings.Contains(out, "it was allowed") {
		a.w.t.Errorf("the approved command did not run:\n%s", out)
	}
	out, _ = a.try("--deny-all", "exec", "ask SECOND")
	if a.w.exists(a.w.beside("second")) || !strings.Contains(out, "[done] cancelled") {
		a.w.t.Errorf("the refused command:\n%s", out)
	}
}

// session is a thread over several prompts, each a process of acpx.
func (a *acpx) session() {
	w, t := a.w, a.w.t
	t.Helper()
	a.run("sessions", "new")
	if out := a.run("prompt", "say HELLO"); !strings.Contains(out, "hello there") {
		t.Errorf("first prompt:\n%s", out)
	}
	out := a.run("prompt", "please PATCH")
	if !strings.Contains(out, "patched") || string(readFile(t, filepath.Join(w.workspace, "patched.txt"))) != "new\n" {
		t.Errorf("second prompt:\n%s", out)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var slow bytes.Buffer
	cmd := a.command(ctx, "prompt", "be SLOW")
	cmd.Stdout, cmd.Stderr = &slow, &slow
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := w.find("sleep 600")
	a.run("cancel")
	_ = cmd.Wait() // its status is acpx's matter
	if !strings.Contains(slow.String(), "[done] cancelled") {
		t.Errorf("the cancelled prompt:\n%s", slow.String())
	}
	w.eventually("end of the cancelled command", 10*time.Second, func() bool { return !alive(pid) })
	if out := a.run("sessions", "list"); !strings.Contains(out, w.workspace) || !strings.Contains(out, "Greeting the tester") {
		t.Errorf("sessions list:\n%s", out)
	}
	a.run("sessions", "close")
}
