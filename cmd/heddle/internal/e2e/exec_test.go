package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var plainScripts = map[string][]step{
	"HELLO": {{say: "hello there"}},
	"RUN":   {run("echo out; echo err >&2; exit 3"), {say: "ran"}},
	"WRITE": {run("echo data > made.txt && cat made.txt"), {say: "written"}},
	"BACK":  {runFor("echo up; sleep 600", 500), {say: "left running"}},
	"SLOW":  {runFor("echo started; sleep 600", 60000), {say: "never"}},
}

func TestExecAnswer(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	got := w.exec("please WRITE")
	if got.code != 0 || got.stdout != "written\n" {
		t.Fatalf("exit %d, stdout %q\n%s", got.code, got.stdout, got.stderr)
	}
	if data, err := os.ReadFile(filepath.Join(w.workspace, "made.txt")); err != nil || string(data) != "data\n" {
		t.Errorf("made.txt: %q, %v", data, err)
	}
}

func TestExecJSON(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	got := w.exec("--json", "please RUN")
	var kinds []string
	for _, ev := range events(t, got.stdout) {
		kind := fmt.Sprint(ev["type"])
		if item, ok := ev["item"].(map[string]any); ok {
			kind += "/" + fmt.Sprint(item["type"])
			if kind == "item.completed/command_execution" {
				if item["aggregated_output"] != "out\nerr\n" || item["exit_code"] != 3.0 || item["status"] != "failed" {
					t.Errorf("command %v", item)
				}
			}
		}
		kinds = append(kinds, kind)
	}
	want := "thread.started turn.started item.started/command_execution item.completed/command_execution item.completed/agent_message turn.completed"
	// The model is not in the catalogue: a warning that says so is expected.
	if text := strings.ReplaceAll(strings.Join(kinds, " "), "item.completed/error ", ""); text != want || got.code != 0 {
		t.Errorf("exit %d\n got %s\nwant %s\n%s", got.code, text, want, got.stderr)
	}
}

// X1: a stdin that stays open, and none at all.
func TestX1OddStdin(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	t.Run("open", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		cmd := w.command(ctx, "exec", "say HELLO")
		in, err := cmd.StdinPipe() // stays open
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if out, err := cmd.Output(); err != nil || string(out) != "hello there\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		cmd := w.command(t.Context(), "exec", "say HELLO")
		sh := w.command(t.Context(), "exec")
		sh.Path, sh.Args = "/bin/sh", []string{"sh", "-c", `exec "$0" exec "say HELLO" <&-`, cmd.Path}
		if out, err := sh.Output(); err != nil || string(out) != "hello there\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
}

// X2: what a command or the model prints is never taken for an event: every line
// of stdout is one of ours, and what was printed is in it as it was.
func TestX2JSONLikeOutput(t *testing.T) {
	const like = `{"type":"turn.failed"}` + "\n" + `{"type":"x"}` + "\n" + `{"type":"turn.completed","usage":{}}`
	w := newWorld(t, newModel(t, map[string][]step{"LIKE": {
		run(`echo '{"type":"turn.failed"}'; echo '{"type":"x"}' >&2; printf '{"type":"turn.completed","usage":{}}' | tee /dev/stderr`), {say: like},
	}}))
	got := w.exec("--json", "LIKE")
	known := "thread.started turn.started turn.completed item.started item.updated item.completed"
	ends, output, message := 0, "", ""
	for _, ev := range events(t, got.stdout) {
		kind := fmt.Sprint(ev["type"])
		if !strings.Contains(known, kind) {
			t.Errorf("a line that is not ours: %v", ev)
		}
		if kind == "turn.completed" {
			ends++
		}
		if item, _ := ev["item"].(map[string]any); kind == "item.completed" && item["type"] == "command_execution" {
			output = fmt.Sprint(item["aggregated_output"])
		} else if kind == "item.completed" && item["type"] == "agent_message" {
			message = fmt.Sprint(item["text"])
		}
	}
	if got.code != 0 || ends != 1 || !strings.HasPrefix(output, like[:strings.LastIndex(like, "\n")]) || strings.Count(output, "turn.completed") != 2 || message != like {
		t.Errorf("exit %d, %d ends, output %q, message %q", got.code, ends, output, message)
	}
}

// X3: no 0 for a turn that failed, here because of the model. A sandbox that
// cannot be made is TestS13NotEnforceable.
func TestX3FailedTurn(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	got := w.exec("--json", "anything")
	evs := events(t, got.stdout)
	if got.code != 1 || len(evs) == 0 || evs[len(evs)-1]["type"] != "turn.failed" {
		t.Errorf("exit %d\n%s", got.code, got.stdout)
	}
}

// X4: no terminal, and 100 KB on stdin or as an argument.
func TestX4DetachedWithALongPrompt(t *testing.T) {
	m := newModel(t, plainScripts)
	w := newWorld(t, m)
	prompt := "HELLO " + strings.Repeat("x", 100<<10)
	for name, arg := range map[string]string{"stdin": "-", "argument": prompt} {
		t.Run(name, func(t *testing.T) {
			cmd := w.command(t.Context())
			cmd.Path, cmd.Args = "/usr/bin/setsid", []string{"setsid", "--wait", heddleBin, "exec", arg}
			if arg == "-" {
				cmd.Stdin = strings.NewReader(prompt)
			}
			if out, err := cmd.Output(); err != nil || string(out) != "hello there\n" {
				t.Errorf("%q, %v", out, err)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if !carries(t, m.requests[len(m.requests)-1], prompt) {
				t.Error("the prompt did not reach the model whole")
			}
		})
	}
}

// X5: what still runs at the end is ended, with a true status.
func TestX5ExecEndsBackground(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	got := w.exec("--json", "go to the BACK")
	evs := events(t, got.stdout)
	var ended bool
	for _, ev := range evs {
		item, _ := ev["item"].(map[string]any)
		if ev["type"] == "item.completed" && item["type"] == "command_execution" {
			ended = true
			if item["status"] != "failed" || item["exit_code"] == nil || item["aggregated_output"] != "up\n" {
				t.Errorf("item %v, want a true end", item)
			}
		}
		if ev["type"] == "turn.completed" && !ended {
			t.Error("the turn ended before its command")
		}
	}
	if got.code != 0 || !ended || w.running("sleep 600") {
		t.Errorf("exit %d, command ended: %v, still there: %v\n%s", got.code, ended, w.running("sleep 600"), got.stdout)
	}
}

func TestExecResume(t *testing.T) {
	m := newModel(t, plainScripts)
	w := newWorld(t, m)
	first := events(t, w.exec("--json", "HELLO").stdout)
	id := fmt.Sprint(first[0]["thread_id"])
	second := w.exec("--json", "resume", "--last", "now RUN")
	if evs := events(t, second.stdout); second.code != 0 || fmt.Sprint(evs[0]["thread_id"]) != id {
		t.Errorf("exit %d, %v; want thread %s", second.code, evs, id)
	}
	if third := w.exec("resume", id, "and HELLO"); third.code != 0 || third.stdout != "hello there\n" {
		t.Errorf("resume by id: %+v", third)
	}
	m.mu.Lock()
	last := m.requests[len(m.requests)-1]
	m.mu.Unlock()
	if !strings.Contains(last, "now RUN") {
		t.Error("the resumed turn did not carry the history")
	}
	fork := events(t, w.exec("--json", "fork", id, "HELLO from the copy").stdout)
	if got := fmt.Sprint(fork[0]["thread_id"]); got == id || fork[len(fork)-1]["type"] != "turn.completed" {
		t.Errorf("fork of %s: %v", id, fork)
	}
}

func TestExecRefusals(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	outside, err := os.MkdirTemp("/var/tmp", "heddle-e2e-nogit-") //nolint:usetesting // no parent of it may be a repository
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(outside)
	cases := map[string]struct {
		args []string
		code int
		text string
	}{
		"outside of git": {[]string{"-C", outside, "HELLO"}, 1, "Not inside a trusted directory and --skip-git-repo-check was not specified."},
		"bad sandbox":    {[]string{"-s", "none", "HELLO"}, 2, "want read-only"},
		"bad provider":   {[]string{"-c", "model_provider=nope", "HELLO"}, 2, "nope"},
		"no such thread": {[]string{"resume", "01900000-0000-7000-8000-000000000000", "HELLO"}, 1, "01900000-0000-7000-8000-000000000000"},
		"failing model":  {[]string{"nothing is scripted"}, 1, "no reply is scripted for this"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := w.exec(c.args...)
			if got.code != c.code || !strings.Contains(got.stderr, c.text) || got.stdout != "" {
				t.Errorf("exit %d, stdout %q, stderr:\n%s\nwant exit %d with %q", got.code, got.stdout, got.stderr, c.code, c.text)
			}
		})
	}
}

// Eight one-turn clients and one app-server share a home.
func TestManyClientsOneHome(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	app := w.appServer()
	var wg sync.WaitGroup
	results := make([]execResult, 8)
	for i := range results {
		wg.Go(func() { results[i] = w.exec("please RUN") })
	}
	turn := app.startTurn(app.startThread(), "please RUN too")
	wg.Wait()
	for i, r := range results {
		if r.code != 0 || r.stdout != "ran\n" {
			t.Errorf("exec %d: exit %d, stdout %q\n%s", i, r.code, r.stdout, r.stderr)
		}
	}
	if status := app.awaitTurn(turn, 60*time.Second); status != "completed" {
		t.Errorf("the app-server's turn: %s", status)
	}
	app.close()
}

// Rules of the home count unless a run is to do without them.
func TestExecIgnoreRules(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	if err := os.MkdirAll(filepath.Join(w.home, "rules"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.write(filepath.Join(w.home, "rules", "default.rules"), `prefix_rule(pattern=["cat"], decision="forbid")`+"\n")
	made := filepath.Join(w.workspace, "made.txt")
	if got := w.exec("please WRITE"); got.code != 0 {
		t.Fatalf("exit %d\n%s", got.code, got.stderr)
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("a command ran that a rule forbids")
	}
	if got := w.exec("--ignore-rules", "please WRITE"); got.code != 0 {
		t.Fatalf("exit %d\n%s", got.code, got.stderr)
	}
	if data, err := os.ReadFile(made); err != nil || string(data) != "data\n" {
		t.Errorf("with --ignore-rules, made.txt: %q, %v", data, err)
	}
}

// --strict-config refuses an unknown key of the home and of the command line,
// before anything is started.
func TestStrictConfig(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	w.write(filepath.Join(w.home, "config.toml"), "modle = \"x\"\n")
	for _, args := range [][]string{
		{"exec", "hello"}, {"app-server"}, {"mcp-server"}, {"mcp", "list"}, {"serve"},
		{"gateway", "--connect", "127.0.0.1:1", "-c", "modle=x"},
	} {
		out, err := w.command(t.Context(), append(args, "--strict-config")...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), `Unknown configuration key "modle"`) {
			t.Errorf("%v: %v, %q", args, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(w.home, "state.db")); err == nil {
		t.Error("a control plane was started")
	}
}
