package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hookTOML is one command of the config, as TOML.
func hookTOML(event, matcher, command string, more ...string) string {
	m := ""
	if matcher != "" {
		m = fmt.Sprintf("matcher = %q\n", matcher)
	}
	return fmt.Sprintf("\n[[hooks.%s]]\n%s[[hooks.%s.hooks]]\ntype = \"command\"\ncommand = '''%s'''\n%s\n", event, m, event, command, strings.Join(more, "\n"))
}

// hooked makes a world with hooks in the person's config.
func hooked(t *testing.T, m *model, hooks ...string) *world {
	t.Helper()
	w := newWorld(t, m)
	path := filepath.Join(w.home, "config.toml")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.write(path, string(before)+strings.Join(hooks, ""))
	return w
}

// hooks lists the hooks of the workspace.
func (a *appServer) hooks() []map[string]any {
	a.w.t.Helper()
	data, _ := a.call("hooks/list", map[string]any{"cwds": []string{a.w.workspace}})["data"].([]any)
	var out []map[string]any
	for _, f := range data {
		folder, _ := f.(map[string]any)
		list, _ := folder["hooks"].([]any)
		for _, h := range list {
			entry, _ := h.(map[string]any)
			out = append(out, entry)
		}
	}
	return out
}

// trustHooks does what a client does when the person trusts every hook.
func (a *appServer) trustHooks() {
	a.w.t.Helper()
	state := map[string]any{}
	for _, h := range a.hooks() {
		state[fmt.Sprint(h["key"])] = map[string]any{"trusted_hash": h["currentHash"]}
	}
	a.call("config/batchWrite", map[string]any{"edits": []any{map[string]any{"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}}})
	for _, h := range a.hooks() {
		if h["trustStatus"] != "trusted" {
			a.w.t.Fatalf("after the trust: %v", h)
		}
	}
}

// hookRuns are the ends of hook runs so far, as "event status kind=text ...".
func (a *appServer) hookRuns() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, m := range a.messages {
		if m.Method != "hook/completed" {
			continue
		}
		run, _ := m.Params["run"].(map[string]any)
		line := fmt.Sprint(run["eventName"], " ", run["status"])
		entries, _ := run["entries"].([]any)
		for _, e := range entries {
			entry, _ := e.(map[string]any)
			line += fmt.Sprintf(" %v=%v", entry["kind"], entry["text"])
		}
		out = append(out, line)
	}
	return out
}

func (m *model) asked() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.requests, "\n")
}

// The hooks of the person's config run in the thread's sandbox, once they are
// trusted: one that blocks keeps a tool from running, one that fails does not.
func TestHooks(t *testing.T) {
	m := newModel(t, map[string][]step{"GO": {run("touch forbidden"), run("echo fine"), {say: "done"}}, "carry on": {{say: "really done"}}})
	w := hooked(t, m,
		hookTOML("SessionStart", "startup", "echo session context"),
		hookTOML("UserPromptSubmit", "", `cat > prompt.json; echo '{"systemMessage":"seen","hookSpecificOutput":{"hookEventName":"UserPromptSubmit","additionalContext":"prompt context"}}'`),
		hookTOML("PreToolUse", "Bash", `grep -q forbidden && { echo "not that" >&2; exit 2; }; env > hook.env; touch "$HOME/../outside" 2>/dev/null; exit 0`, `statusMessage = "checking"`),
		hookTOML("PreToolUse", "", "sleep 60", "timeout = 1"),
		hookTOML("PreToolUse", "apply_patch", "touch never"),
		hookTOML("PostToolUse", "", "cat > post.json; exit 7"),
		hookTOML("Stop", "", "test -e stopped && exit 0; touch stopped; echo carry on >&2; exit 2"),
	)
	a := w.experimental()
	defer a.close()
	listed := a.hooks()
	if len(listed) != 7 || listed[0]["trustStatus"] != "untrusted" || listed[0]["statusMessage"] != "checking" || listed[0]["source"] != "user" || listed[1]["timeoutSec"] != 1.0 {
		t.Fatalf("listed %v", listed)
	}
	a.trustHooks()
	thread := a.startThread()
	if got := a.awaitTurn(a.startTurn(thread, "GO"), 60*time.Second); got != "completed" {
		t.Fatalf("turn %s", got)
	}
	want := []string{
		"sessionStart completed context=session context",
		"userPromptSubmit completed warning=seen context=prompt context",
		"preToolUse blocked feedback=not that", "preToolUse failed error=hook timed out after 1s",
		"preToolUse completed", "preToolUse failed error=hook timed out after 1s", "postToolUse failed error=hook exited with code 7",
		"stop blocked feedback=carry on", "stop completed",
	}
	if got := a.hookRuns(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("runs:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := a.count("hook/started"); n != len(want) {
		t.Errorf("%d hooks started, %d ended", n, len(want))
	}
	if cmds := a.completed("commandExecution"); len(cmds) != 1 || !strings.Contains(fmt.Sprint(cmds[0]["command"]), "echo fine") {
		t.Errorf("commands %v", cmds)
	}
	if prompts := a.completed("hookPrompt"); len(prompts) != 1 || !strings.Contains(fmt.Sprint(prompts), "carry on") {
		t.Errorf("prompts %v", prompts)
	}
	for _, s := range []string{"session context", "prompt context", "Command blocked by PreToolUse hook: not that. Command: touch forbidden", "carry on</hook_prompt>"} {
		if !strings.Contains(m.asked(), s) {
			t.Errorf("the model was not told %q", s)
		}
	}
	for file, want := range map[string]string{
		"prompt.json": `"prompt":"GO"`, "post.json": `"tool_name":"Bash","tool_input":{"command":"echo fine"},"tool_response":"fine\n"`, "hook.env": "NO_COLOR=1",
	} {
		if b, err := os.ReadFile(filepath.Join(w.workspace, file)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %s %v", file, b, err)
		}
	}
	for _, path := range []string{"forbidden", "never", "../outside"} {
		if isThere(filepath.Join(w.workspace, path)) {
			t.Errorf("%s is there", path)
		}
	}
}

// A hook that nobody trusted, or that changed since, is shown and not run; a
// project does not say what is trusted.
func TestHooksUntrusted(t *testing.T) {
	m := newModel(t, map[string][]step{"GO": {run("echo fine"), {say: "done"}}})
	w := hooked(t, m, hookTOML("PreToolUse", "", "touch ran-user; exit 2"), "\n[projects.\"WS\"]\ntrust_level = \"trusted\"\n")
	path := filepath.Join(w.home, "config.toml")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.write(path, strings.ReplaceAll(string(before), "WS", w.workspace))
	dir := filepath.Join(w.workspace, ".codex")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	project := filepath.Join(dir, "config.toml")
	w.write(project, hookTOML("PreToolUse", "", "touch ran-project; exit 2"))
	a := w.experimental()
	defer a.close()
	listed := a.hooks()
	if len(listed) != 2 || listed[1]["source"] != "project" || listed[1]["sourcePath"] != project {
		t.Fatalf("listed %v", listed)
	}
	// The project's file vouches for itself and for the person's.
	w.write(project, hookTOML("PreToolUse", "", "touch ran-project; exit 2")+
		fmt.Sprintf("\n[hooks.state.%q]\ntrusted_hash = %q\n[hooks.state.%q]\ntrusted_hash = %q\n", listed[0]["key"], listed[0]["currentHash"], listed[1]["key"], listed[1]["currentHash"]))
	for _, h := range a.hooks() {
		if h["trustStatus"] != "untrusted" {
			t.Errorf("trusted by the project: %v", h)
		}
	}
	thread := a.startThread()
	if got := a.awaitTurn(a.startTurn(thread, "GO"), 60*time.Second); got != "completed" {
		t.Fatalf("turn %s", got)
	}
	if runs := a.hookRuns(); len(runs) != 0 || len(a.completed("commandExecution")) != 1 {
		t.Errorf("runs %v", runs)
	}
	a.await("a warning", time.Second, func(m message) bool {
		return m.Method == "warning" && strings.Contains(fmt.Sprint(m.Params["message"]), "2 hooks of the config are new or changed")
	})
	a.trustHooks()
	w.write(project, hookTOML("PreToolUse", "", "touch ran-changed; exit 2"))
	if listed := a.hooks(); listed[0]["trustStatus"] != "trusted" || listed[1]["trustStatus"] != "modified" {
		t.Errorf("after a change: %v", listed)
	}
	for _, path := range []string{"ran-user", "ran-project", "ran-changed"} {
		if isThere(filepath.Join(w.workspace, path)) {
			t.Errorf("%s is there", path)
		}
	}
}

// A prompt that a hook refuses is not shown to the model, and its turn ends; an
// interrupt ends the hook that runs.
func TestHooksRefuseAndEnd(t *testing.T) {
	m := newModel(t, map[string][]step{"GO": {run("echo fine"), {say: "done"}}})
	w := hooked(t, m,
		hookTOML("UserPromptSubmit", "", "grep -q SECRET && { echo no secrets >&2; exit 2; }; exit 0"),
		hookTOML("PreToolUse", "", "echo $$ > hook.pid; trap '' INT TERM; sleep 600"))
	a := w.experimental()
	defer a.close()
	a.trustHooks()
	thread := a.startThread()
	if got := a.awaitTurn(a.startTurn(thread, "the SECRET"), 60*time.Second); got != "completed" {
		t.Fatalf("turn %s", got)
	}
	if m.asked() != "" || len(a.completed("userMessage")) != 0 {
		t.Errorf("the prompt was shown: %v", a.completed("userMessage"))
	}
	turn := a.startTurn(thread, "GO")
	w.eventually("the hook runs", 30*time.Second, func() bool { return isThere(filepath.Join(w.workspace, "hook.pid")) })
	began := time.Now()
	a.call("turn/interrupt", map[string]any{"threadId": thread, "turnId": turn})
	if got := a.awaitTurn(turn, 30*time.Second); got != "interrupted" {
		t.Fatalf("turn %s", got)
	}
	if w.running("sleep 600") {
		t.Error("the hook still runs")
	}
	t.Logf("interrupted after %v", time.Since(began))
	want := "userPromptSubmit blocked feedback=no secrets\nuserPromptSubmit completed\npreToolUse failed error=Hook cancelled because the turn was interrupted"
	if got := strings.Join(a.hookRuns(), "\n"); got != want {
		t.Errorf("runs:\n%s\nwant:\n%s", got, want)
	}
}

// A hook may change what is run and what the model is told; it has no more rights
// than the thread's commands.
func TestHooksChange(t *testing.T) {
	patch := "*** Begin Patch\n*** Add File: new.txt\n+x\n*** End Patch"
	m := newModel(t, map[string][]step{"GO": {run("echo given"), {call: "apply_patch", args: map[string]any{"input": patch}}, {say: "done"}}})
	w := hooked(t, m,
		hookTOML("PreToolUse", "Bash", `touch mark || echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"echo changed"}}}'`),
		hookTOML("PreToolUse", "Edit", `cat >&2; exit 2`),
		hookTOML("PostToolUse", "Bash", `grep -q '"tool_response":"changed' && echo '{"decision":"block","reason":"told instead","hookSpecificOutput":{"hookEventName":"PostToolUse","additionalContext":"and this"}}'`))
	a := w.experimental()
	defer a.close()
	a.trustHooks()
	thread, _ := a.call("thread/start", map[string]any{"cwd": w.workspace, "sandbox": "read-only"})["thread"].(map[string]any)
	if got := a.awaitTurn(a.startTurn(fmt.Sprint(thread["id"]), "GO"), 60*time.Second); got != "completed" {
		t.Fatalf("turn %s", got)
	}
	if cmds := a.completed("commandExecution"); len(cmds) != 1 || !strings.Contains(fmt.Sprint(cmds[0]["command"]), "echo changed") {
		t.Errorf("commands %v", cmds)
	}
	if isThere(filepath.Join(w.workspace, "mark")) {
		t.Error("the hook wrote under read-only")
	}
	if runs := a.hookRuns(); len(runs) != 3 || runs[1] != "postToolUse blocked context=and this feedback=told instead" || !strings.Contains(runs[2], `preToolUse blocked feedback={"session_id"`) ||
		!strings.Contains(runs[2], `"tool_name":"apply_patch","tool_input":{"command":"*** Begin Patch\n`) {
		t.Errorf("runs %q", runs)
	}
	for _, s := range []string{`"output":"told instead"`, "and this", "Command blocked by PreToolUse hook: "} {
		if !strings.Contains(m.asked(), s) {
			t.Errorf("the model was not told %q", s)
		}
	}
}

// A session may do without trust.
func TestHooksBypassTrust(t *testing.T) {
	m := newModel(t, map[string][]step{"GO": {run("echo never"), {say: "the end"}}})
	w := hooked(t, m, hookTOML("PreToolUse", "", "echo guarded >&2; exit 2"))
	if r := w.exec("--dangerously-bypass-hook-trust", "GO"); r.code != 0 || !strings.Contains(r.stdout, "the end") {
		t.Fatalf("%+v", r)
	}
	if !strings.Contains(m.asked(), "Command blocked by PreToolUse hook: guarded. Command: echo never") {
		t.Error("the hook did not run")
	}
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
