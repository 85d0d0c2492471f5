package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process in a sandbox with the host's network cannot use heddle's own
// listeners (invariant I10), although the same bytes are answered from outside.
func TestI10OwnListenersRefuseSandboxes(t *testing.T) {
	address := freePort(t)
	_, port, _ := net.SplitHostPort(address)
	tcp := "exec 3<>/dev/tcp/127.0.0.1/" + port + ` && (printf 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\000\000\000\004\000\000\000\000\000' >&3) 2>/dev/null; timeout 5 head -c 9 <&3 2>/dev/null | wc -c`
	w := newWorld(t, newModel(t, map[string][]step{"TCP": {run(tcp), {say: "tried"}}, "HI": {{say: "hi"}}}))
	w.role("controlplane", "--local", "--idle-exit", "30s", "--listen", address)
	w.awaitSocket()

	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	if n, err := io.ReadFull(c, make([]byte, 9)); err != nil {
		t.Fatalf("from outside: %d bytes, %v; the listener must answer", n, err)
	}
	got := w.exec("--json", "-c", "sandbox_workspace_write.network_access=true", "TCP")
	for _, ev := range events(t, got.stdout) {
		item, _ := ev["item"].(map[string]any)
		if ev["type"] == "item.completed" && item["type"] == "command_execution" {
			if out := strings.TrimSpace(fmt.Sprint(item["aggregated_output"])); out != "0" {
				t.Errorf("from a sandbox with the host's network: %q, want 0 bytes", out)
			}
			return
		}
	}
	t.Errorf("the command did not run:\n%s\n%s", got.stdout, got.stderr)
}

// S13: where no sandbox can be made, exec says so and does not end 0.
func TestS13NotEnforceable(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	// A user namespace in which nobody has a capability and no further namespace
	// can be made is what a hardened container looks like.
	sh := w.command(t.Context())
	sh.Path, sh.Args = "/usr/bin/unshare", []string{"unshare", "--user", "--map-root-user", "/bin/sh", "-c",
		`echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"`, "sh", heddleBin, "exec", "please RUN"}
	out, err := sh.CombinedOutput()
	if strings.Contains(string(out), "unshare failed") || strings.Contains(string(out), "max_user_namespaces") && sh.ProcessState.ExitCode() != 3 {
		t.Skipf("this host does not let tests make such a place: %s", out)
	}
	text := string(out)
	code := sh.ProcessState.ExitCode()
	if code != 3 || !strings.Contains(text, "cannot be enforced") || !strings.Contains(text, "user.max_user_namespaces=0") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "cannot be enforced") && strings.Count(line, "sysctl user.max_user_namespaces=") != 1 {
			t.Errorf("the fix is not told once: %s", line)
		}
	}
}

// X3: an action that needed an approval, which cannot be had, ended the work.
func TestX3DeniedEscalation(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"ESC": {
		{call: "exec_command", args: map[string]any{"cmd": "touch /etc/x", "sandbox_permissions": "require_escalated", "justification": "need it"}},
		{say: "I was not allowed to"},
	}, "THEN": {
		{call: "exec_command", args: map[string]any{"cmd": "touch /etc/x", "sandbox_permissions": "require_escalated", "justification": "need it"}},
		run("touch here"), {say: "did it otherwise"},
	}}))
	got := w.exec("ESC")
	if got.code != 1 || !strings.Contains(got.stderr, "the last action was refused") || got.stdout != "I was not allowed to\n" || there("/etc/x") {
		t.Errorf("exit %d, %q although the only action was refused\n%s", got.code, got.stdout, got.stderr)
	}
	// Work that went on after a refusal is no failure.
	if got := w.exec("THEN"); got.code != 0 || got.stdout != "did it otherwise\n" {
		t.Errorf("exit %d, %q although the work was done\n%s", got.code, got.stdout, got.stderr)
	}
}

// Mistakes in the config: one line with file, line and fix, before anything
// runs.
func TestConfigMistakes(t *testing.T) {
	cases := map[string]struct{ config, line, text string }{
		"broken":           {"model = \"m\"\nmodel_provider = \n", ":2", "correct the line"},
		"bad value":        {"model_provider = \"scripted\"\nsandbox_mode = \"readonly\"\n", ":2", "sandbox_mode"},
		"unknown provider": {"model = \"m\"\nmodel_provider = \"nope\"\n", ":2", "nope"},
		"no base_url":      {"model_provider = \"x\"\n\n[model_providers.x]\nname = \"x\"\n", ":3", "base_url"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newModel(t, nil))
			file := filepath.Join(w.home, "config.toml")
			w.write(file, c.config)
			got := w.exec("hello")
			if got.code != 2 || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, file+c.line) || !strings.Contains(got.stderr, c.text) {
				t.Errorf("exit %d, stderr:\n%s\nwant one line with %s%s and %q", got.code, got.stderr, file, c.line, c.text)
			}
			if pids := w.processes(); len(pids) > 0 {
				t.Errorf("processes were started: %v", pids)
			}
		})
	}
	t.Run("missing API key", func(t *testing.T) {
		w := newWorld(t, newModel(t, nil))
		file := filepath.Join(w.home, "config.toml")
		w.write(file, "model = \"m\"\nmodel_provider = \"x\"\n[model_providers.x]\nname = \"x\"\nbase_url = \"http://127.0.0.1:9/v1\"\nenv_key = \"E2E_NO_SUCH_KEY\"\n")
		got := w.exec("hello")
		if got.code == 0 || !strings.Contains(got.stderr, "E2E_NO_SUCH_KEY") || !strings.Contains(got.stderr, file) {
			t.Errorf("exit %d, stderr:\n%s", got.code, got.stderr)
		}
	})
}

// The control plane inside the client's process does the same work and leaves
// the same nothing.
func TestInProcess(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	if got := w.exec("--in-process", "please WRITE"); got.code != 0 || got.stdout != "written\n" {
		t.Fatalf("exit %d, %q\n%s", got.code, got.stdout, got.stderr)
	}
	w.eventually("nothing is left", 5*time.Second, func() bool { return len(w.processes()) == 0 })
	if got := w.exec("resume", "--last", "HELLO"); got.code != 0 {
		t.Errorf("resume with a shared control plane: %+v", got)
	}
}

// P17: an ephemeral run leaves nothing of the conversation in the home, and the
// store as it was, byte for byte: under a control plane of its own and under one
// that others use.
func TestP17Ephemeral(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"QUIET": {run("echo secret-output"), {say: "secret-answer"}}, "HELLO": {{say: "hello"}}}))
	quiet := func(args ...string) {
		t.Helper()
		if got := w.exec(append([]string{"--ephemeral", "be QUIET secret-prompt"}, args...)...); got.code != 0 || got.stdout != "secret-answer\n" {
			t.Fatalf("%+v", got)
		}
	}
	store := func() []byte {
		t.Helper()
		data, err := os.ReadFile(w.store())
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	same := func(when string, before []byte) {
		t.Helper()
		if n := differing(before, store()); n != 0 {
			t.Errorf("%s, %d bytes of the store changed", when, n)
		}
	}
	if got := w.exec("say HELLO"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	w.stopped()
	before := store()
	quiet()
	w.stopped()
	same("after a run of its own", before)

	app := w.appServer()
	app.call("thread/list", map[string]any{"limit": 1})
	quiet()
	app.call("thread/start", map[string]any{"cwd": w.workspace, "ephemeral": true})
	time.Sleep(100 * time.Millisecond) // the end of exec's session is noticed after exec
	same("beside an open client", before)
	app.close()
	w.stopped()
	same("when all have ended", before)
	quiet("--in-process")
	w.stopped()
	same("after a run in one process", before)

	err := filepath.WalkDir(w.home, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), "secret-") {
			t.Errorf("%s holds a part of the conversation", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// differing counts the places at which two files are not the same.
func differing(a, b []byte) int {
	n := max(len(a), len(b)) - min(len(a), len(b))
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// serve answers a client of the v2 protocol and ends on SIGTERM with everything
// it started.
func TestServe(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	address := freePort(t)
	cmd := w.command(t.Context(), "serve", "--listen", "ws://"+address)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.eventually("serve listens", 20*time.Second, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	// The home's other clients use the same control plane.
	if got := w.exec("please WRITE"); got.code != 0 || got.stdout != "written\n" {
		t.Errorf("exec beside serve: %+v", got)
	}
	began := time.Now()
	_ = cmd.Process.Signal(unix.SIGTERM)
	_ = cmd.Wait()
	if took := time.Since(began); cmd.ProcessState.ExitCode() != 0 || took > 4*time.Second {
		t.Errorf("serve ended with %d after %v", cmd.ProcessState.ExitCode(), took)
	}
}

func TestPlainListenerForOthersIsRefused(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	cmd := w.command(t.Context(), "controlplane", "--listen", "0.0.0.0:0")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "--tls-cert") {
		t.Errorf("%v\n%s", err, out)
	}
}
