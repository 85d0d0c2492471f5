package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// world is one home with a workspace, and the processes that belong to it.
type world struct {
	t         *testing.T
	home      string
	workspace string
	model     *model
	mark      string // value of LC_HEDDLE_E2E in every process of this world
}

// newWorld makes a home whose model is m. When the test ends, nothing of the
// world may be left: no process, mount, cgroup or file in the workspace.
func newWorld(t *testing.T, m *model) *world {
	t.Helper()
	root, err := os.MkdirTemp("/var/tmp", "heddle-e2e-") //nolint:usetesting // not under /tmp: commands have a /tmp of their own
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, model: m, home: filepath.Join(root, "home"), workspace: filepath.Join(root, "ws"), mark: rand.Text()}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(w.home, "log/controlplane.log"))
			t.Logf("control plane log:\n%s", log)
		}
		_ = os.RemoveAll(root)
	})
	git := filepath.Join(w.workspace, ".git")
	for _, dir := range []string{w.home, w.workspace, filepath.Join(git, "objects"), filepath.Join(git, "refs/heads")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.write(filepath.Join(git, "HEAD"), "ref: refs/heads/main\n")
	w.write(filepath.Join(w.home, "config.toml"), fmt.Sprintf(`model = "mock-model"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "workspace-write"

[model_providers.mock]
name = "mock"
base_url = "%s/v1"
wire_api = "responses"
`, m.URL))
	t.Cleanup(w.checkNothingLeft)
	return w
}

func (w *world) write(path, text string) {
	w.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) env() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "HEDDLE_") && !strings.HasPrefix(kv, "CODEX_") {
			env = append(env, kv)
		}
	}
	// A home of its own, so that no login profile adds to what commands print.
	return append(env, "HOME="+filepath.Dir(w.home), "HEDDLE_HOME="+w.home, "LC_HEDDLE_E2E="+w.mark, "HEDDLE_IDLE_EXIT=500ms", "HEDDLE_LOG=debug")
}

func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, heddleBin, args...)
	cmd.Env = w.env()
	cmd.Dir = w.workspace
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

type execResult struct {
	code           int
	stdout, stderr string
}

// exec runs `heddle exec` to its end.
func (w *world) exec(args ...string) execResult {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 90*time.Second)
	defer cancel()
	cmd := w.command(ctx, append([]string{"exec"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := execResult{stdout: stdout.String(), stderr: stderr.String()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.code = exit.ExitCode()
	} else if err != nil {
		w.t.Errorf("run exec: %v", err)
	}
	return r
}

// process is one process of the world.
type process struct {
	pid     int
	cmdline string
}

// processes finds what carries the world's mark in its environment or runs in
// its workspace.
func (w *world) processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		w.t.Fatal(err)
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		if !alive(pid) {
			continue
		}
		text := strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
		if bytes.Contains(env, []byte(w.mark)) || strings.HasPrefix(cwd, w.workspace) || strings.Contains(text, w.home) {
			out = append(out, process{pid, text})
		}
	}
	return out
}

// find returns the one process whose command line has all the words.
func (w *world) find(words ...string) int {
	w.t.Helper()
	var found int
	w.eventually("a process with "+strings.Join(words, " "), 15*time.Second, func() bool {
		for _, p := range w.processes() {
			all := true
			for _, word := range words {
				all = all && strings.Contains(" "+p.cmdline+" ", word)
			}
			if all {
				found = p.pid
				return true
			}
		}
		return false
	})
	return found
}

func (w *world) controlPlane() int { w.t.Helper(); return w.find(" controlplane ") }
func (w *world) executor() int     { w.t.Helper(); return w.find(" executor ") }

func (w *world) kill(pid int) {
	w.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		w.t.Fatalf("kill %d: %v", pid, err)
	}
	w.eventually(fmt.Sprintf("death of %d", pid), 5*time.Second, func() bool { return !alive(pid) })
}

// eventually polls the outside world, which gives no notice.
func (w *world) eventually(what string, within time.Duration, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	w.t.Fatalf("not within %v: %s\nprocesses: %v", within, what, w.processes())
}

func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// checkNothingLeft is invariant I5 seen from outside.
func (w *world) checkNothingLeft() {
	t := w.t
	for deadline := time.Now().Add(45 * time.Second); time.Now().Before(deadline) && len(w.processes()) > 0; {
		time.Sleep(20 * time.Millisecond)
	}
	for _, p := range w.processes() {
		t.Errorf("process %d is left: %s", p.pid, p.cmdline)
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	if left := mountTable(t); strings.Contains(left, w.home) || strings.Contains(left, w.workspace) {
		t.Errorf("mounts are left:\n%s", left)
	}
	if names, _ := filepath.Glob(filepath.Join(w.home, "run", "*.sock")); len(names) > 0 {
		t.Errorf("sockets are left: %v", names)
	}
	// What is left in the state of sandboxes names the cgroups and mounts that
	// are left with it.
	owners, _ := filepath.Glob(filepath.Join(w.home, "executor*/sandbox/owners/*"))
	for _, owner := range owners {
		if strings.HasSuffix(owner, ".lock") {
			continue // of an executor that was killed: the next one takes it away
		}
		t.Errorf("sandbox state is left: %s: %v", owner, leftCgroups(owner))
	}
	for _, name := range []string{".codex", ".agents", ".heddle"} {
		if _, err := os.Lstat(filepath.Join(w.workspace, name)); err == nil {
			t.Errorf("%s was created in the workspace", name)
		}
	}
}

// leftCgroups lists the cgroups that an owner's records name and that exist.
func leftCgroups(owner string) []string {
	var out []string
	records, _ := filepath.Glob(filepath.Join(owner, "cgroup"))
	states, _ := filepath.Glob(filepath.Join(owner, "runc/*/state.json"))
	for _, name := range append(records, states...) {
		data, _ := os.ReadFile(name)
		for _, field := range strings.FieldsFunc(string(data), func(r rune) bool { return r == '"' || r == '\n' }) {
			if !strings.HasPrefix(field, "/sys/fs/cgroup/") {
				continue
			}
			if _, err := os.Stat(field); err == nil {
				out = append(out, field)
			}
		}
	}
	return out
}

func mountTable(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// events parses the output of exec --json; every line must be one event.
func events(t *testing.T, stdout string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(stdout) {
		var ev map[string]any
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Errorf("not an event: %q", line)
			continue
		}
		out = append(out, ev)
	}
	return out
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
