package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// C1: what strict clients read of the answer to initialize.
func TestC1Initialize(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	app := w.appServer()
	defer app.close()
	first := app.await("answer to initialize", 10*time.Second, func(m message) bool { return string(m.ID) == "1" }).Result
	agent, _ := first["userAgent"].(string)
	if !strings.HasPrefix(agent, "e2e/") || !strings.Contains(agent, "(e2e; 1)") {
		t.Errorf("userAgent %q", agent)
	}
	if first["codexHome"] != w.home || first["platformFamily"] != "unix" || first["platformOs"] != "linux" {
		t.Errorf("initialize: %v", first)
	}
}

// C5: no line is longer than 1 MiB, and each is one message, whatever a command
// or a prompt holds.
func TestC5Lines(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{
		"FLOOD": {run(`head -c 3000000 /dev/zero; printf 'a\nb\r\nc\v\f\342\200\250\n'`), {say: "one\ntwo\r\nthree\u2028four"}},
		"LONG":  {{say: "long"}},
	}))
	checkLines := func(what string, out []byte) {
		t.Helper()
		for line := range bytes.Lines(out) {
			if len(line) > 1<<20 || !json.Valid(line) {
				t.Errorf("%s: a line of %d bytes, %.80q", what, len(line), line)
			}
		}
	}
	r := w.exec("--json", "FLOOD")
	if r.code != 0 {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
	checkLines("exec", []byte(r.stdout))

	cmd := w.command(t.Context(), "exec", "--json", "-")
	cmd.Stdin = strings.NewReader("LONG " + strings.Repeat("\x01", 2<<20))
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("long prompt: %v", err)
	}
	checkLines("exec with a long prompt", out)

	app := w.appServer()
	if status := app.awaitTurn(app.startTurn(app.startThread(), "FLOOD"), 60*time.Second); status != "completed" {
		t.Errorf("turn %s", status)
	}
	listed, _ := app.call("thread/list", map[string]any{"sourceKinds": []string{"exec", "vscode"}})["data"].([]any)
	if len(listed) != 3 {
		t.Fatalf("threads: %v", listed)
	}
	for _, entry := range listed {
		thread, _ := entry.(map[string]any)
		app.call("thread/resume", map[string]any{"threadId": thread["id"], "excludeTurns": true})
		app.call("thread/turns/list", map[string]any{"threadId": thread["id"]})
	}
	app.close()
	if app.longest > 1<<20 {
		t.Errorf("app-server wrote a line of %d bytes", app.longest)
	}
}

// C7: SIGTERM right after the end of the input, while a turn runs.
func TestC7TermAfterInputEnds(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	app := w.appServer()
	thread := app.startThread()
	turn := app.startTurn(thread, "SLOW")
	app.awaitCommand()
	plane := w.controlPlane()
	app.closed = true
	if err := app.in.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // the case itself
	_ = app.cmd.Process.Signal(syscall.SIGTERM)
	_ = syscall.Kill(plane, syscall.SIGTERM)
	if err := app.cmd.Wait(); err != nil {
		t.Errorf("app-server: %v", err)
	}
	app.wire.finish()

	again := w.appServer()
	defer again.close()
	again.call("thread/resume", map[string]any{"threadId": thread})
	read, _ := again.call("thread/read", map[string]any{"threadId": thread, "includeTurns": true})["thread"].(map[string]any)
	turns, _ := read["turns"].([]any)
	if len(turns) != 1 {
		t.Fatalf("turns: %v", turns)
	}
	last, _ := turns[0].(map[string]any)
	if last["id"] != turn || last["status"] != "interrupted" {
		t.Errorf("turn %v %v, want %s interrupted", last["id"], last["status"], turn)
	}
	items, _ := last["items"].([]any)
	for _, entry := range items {
		if item, _ := entry.(map[string]any); item["type"] == "commandExecution" && item["status"] != "failed" {
			t.Errorf("command %v, want its end", item)
		}
	}
	if status := again.awaitTurn(again.startTurn(thread, "HELLO"), 60*time.Second); status != "completed" {
		t.Errorf("the next turn: %s", status)
	}
}

// C11: the whole prompt is read before any failure is shown.
func TestC11StdinIsReadBeforeAFailure(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	for name, args := range map[string][]string{
		"unknown flag": {"--no-such-flag"}, "bad level": {"--sandbox", "none"}, "bad folder": {"--cd", "/no/such/folder"},
		"bad config": {"-c", "model_provider=nope"}, "no thread": {"resume"}, "bad image": {"-i", "/no/such/image", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := w.command(t.Context(), append([]string{"exec"}, args...)...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_, writeErr := io.WriteString(in, strings.Repeat("p", 1<<20))
			closeErr := in.Close()
			_ = cmd.Wait()
			if writeErr != nil || closeErr != nil || cmd.ProcessState.ExitCode() != 2 {
				t.Errorf("write: %v, %v, exit %d; want a whole write and exit 2", writeErr, closeErr, cmd.ProcessState.ExitCode())
			}
		})
	}
}

// C12: warnings of the config and of flags come before the turn.
func TestC12WarningsBeforeTheTurn(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	got := w.exec("--json", "--add-dir", "/no/such/folder", "-c", "no_such_key=1", "HELLO")
	started := false
	found := map[string]bool{}
	for _, ev := range events(t, got.stdout) {
		started = started || ev["type"] == "turn.started"
		item, _ := ev["item"].(map[string]any)
		for _, word := range []string{"--add-dir /no/such/folder", "no_such_key"} {
			if strings.Contains(fmt.Sprint(item["message"]), word) {
				found[word] = ev["type"] == "item.completed" && item["type"] == "error" && !started
			}
		}
	}
	if got.code != 0 || !found["--add-dir /no/such/folder"] || !found["no_such_key"] {
		t.Errorf("exit %d, warnings before the turn: %v\n%s", got.code, found, got.stdout)
	}
}

// F3: long inputs arrive whole or fail with a clear line.
func TestF3LongInputs(t *testing.T) {
	m := newModel(t, map[string][]step{"LONG": {{say: "read"}}, "ARG": {run("echo " + strings.Repeat("x", 131073)), {say: "tried"}}})
	w := newWorld(t, m)
	prompt := "LONG " + strings.Repeat("é\x01\t<&\\\" ", 2<<20/9)
	cmd := w.command(t.Context(), "exec", "-")
	cmd.Stdin = strings.NewReader(prompt)
	if out, err := cmd.Output(); err != nil || string(out) != "read\n" {
		t.Errorf("2 MiB on stdin: %q, %v", out, err)
	}
	m.mu.Lock()
	last := m.requests[len(m.requests)-1]
	m.mu.Unlock()
	if !carries(t, last, prompt) {
		t.Error("the prompt did not reach the model byte by byte")
	}
	cmd = w.command(t.Context(), "exec", "-")
	cmd.Stdin = strings.NewReader("LONG \xff")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "byte 5 is 0xff") {
		t.Errorf("a prompt that is no text: %q, %v", out, err)
	}
	got := w.exec("--json", "ARG")
	if !strings.Contains(got.stdout, "longer than the kernel allows") || !strings.Contains(got.stdout, `"exit_code":126`) || got.code != 0 {
		t.Errorf("exit %d, %.2000s", got.code, got.stdout[max(0, len(got.stdout)-2000):])
	}
	instructions := strings.Repeat("be kind. ", 400<<10/9)
	config := filepath.Join(w.home, "config.toml")
	w.write(config, "developer_instructions = \""+instructions+"\"\n"+string(readFile(t, config)))
	if got := w.exec("LONG"); got.code != 0 || got.stdout != "read\n" {
		t.Errorf("a 400 KB config value: exit %d\n%s", got.code, got.stderr)
	}
	m.mu.Lock()
	last = m.requests[len(m.requests)-1]
	m.mu.Unlock()
	if !carries(t, last, instructions) {
		t.Error("the config's value did not reach the model")
	}
}

// carries reports whether a text of a model request holds want.
func carries(t *testing.T, request, want string) bool {
	t.Helper()
	var body struct {
		Input []struct {
			Content json.RawMessage `json:"content"`
		} `json:"input"`
	}
	if err := json.Unmarshal([]byte(request), &body); err != nil {
		t.Fatal(err)
	}
	for _, in := range body.Input {
		var parts []struct {
			Text string `json:"text"`
		}
		var text string
		if json.Unmarshal(in.Content, &parts) != nil && json.Unmarshal(in.Content, &text) == nil {
			parts = append(parts, struct {
				Text string `json:"text"`
			}{text})
		}
		for _, p := range parts {
			if strings.Contains(p.Text, want) {
				return true
			}
		}
	}
	return false
}

// F8: instructions that cannot be read are named; the thread goes on.
func TestF8Instructions(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	file := filepath.Join(w.workspace, "AGENTS.md")
	check := func(what string, readable bool) {
		t.Helper()
		got := w.exec("--json", "HELLO")
		if warned := strings.Contains(got.stdout, "cannot read "+file); got.code != 0 || warned == readable || !strings.Contains(got.stdout, "hello there") {
			t.Errorf("%s: exit %d, warned %v\n%s", what, got.code, warned, got.stdout)
		}
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	check("a folder", false)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	w.write(file, "be kind")
	if err := os.Chmod(file, 0); err != nil {
		t.Fatal(err)
	}
	check("mode 000", os.Geteuid() == 0) // root reads it all the same
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	check("a pipe", false)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// A refused command makes no item; exec says so all the same.
func TestExecShowsRefusals(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"ESC": {
		{call: "exec_command", args: map[string]any{"cmd": "touch /etc/x", "sandbox_permissions": "require_escalated", "justification": "need it"}},
		{say: "I was not allowed to"},
	}}))
	if got := w.exec("ESC"); !strings.Contains(got.stderr, "warning: approval policy is Never; reject command") {
		t.Errorf("stderr:\n%s", got.stderr)
	}
	if got := w.exec("--json", "ESC"); !strings.Contains(got.stdout, "approval policy is Never; reject command") {
		t.Errorf("stdout:\n%s", got.stdout)
	}
	if got := w.exec("-c", `sandbox_workspace_write.writable_roots=["rel"]`, "ESC"); got.code != 2 || !strings.Contains(got.stderr, `"rel" is not an absolute path`) {
		t.Errorf("relative root: exit %d\n%s", got.code, got.stderr)
	}
}

// The config may have words of its own for the summary of a long conversation.
func TestCompactPrompt(t *testing.T) {
	m := newModel(t, map[string][]step{"HELLO": {{say: "hello there"}}, "SUM IT UP": {{say: "summary"}}})
	w := newWorld(t, m)
	app := w.appServer()
	defer app.close()
	thread, _ := app.call("thread/start", map[string]any{"cwd": w.workspace, "config": map[string]any{"compact_prompt": "SUM IT UP"}})["thread"].(map[string]any)
	id := fmt.Sprint(thread["id"])
	app.awaitTurn(app.startTurn(id, "HELLO"), 30*time.Second)
	app.call("thread/compact/start", map[string]any{"threadId": id})
	app.await("summary", 30*time.Second, func(m message) bool {
		item, _ := m.Params["item"].(map[string]any)
		return m.Method == "item/completed" && item["type"] == "contextCompaction"
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if !strings.Contains(m.requests[len(m.requests)-1], "SUM IT UP") {
		t.Error("the summary was not asked for in the config's words")
	}
}
