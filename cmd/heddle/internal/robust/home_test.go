//go:build robust

package robust

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// home is a throw-away home with a workspace and its processes.
type home struct {
	root, dir, workspace, temp, bin string
	// mark is in the environment of every process of this home.
	mark string
	// small is true when the home is a file system of its own, which can be filled.
	small bool

	mu      sync.Mutex
	cgroups map[string]bool // those that processes of this home were seen in
}

func newHome(t *testing.T, modelURL string) *home {
	t.Helper()
	bin, err := filepath.Abs("../../../../bin/heddle")
	if err != nil {
		t.Fatal(err)
	}
	if b := os.Getenv("HEDDLE_BIN"); b != "" {
		bin = b
	}
	// A copy: a build meanwhile must not change what is tested.
	data, err := os.ReadFile(bin)
	if err != nil {
		t.Fatalf("read the program under test (make build makes it): %v", err)
	}
	root, err := os.MkdirTemp("/var/tmp", "heddle-robust-") //nolint:usetesting // not under /tmp: commands have a /tmp of their own
	if err != nil {
		t.Fatal(err)
	}
	h := &home{
		root: root, dir: filepath.Join(root, "home"), workspace: filepath.Join(root, "ws"), temp: filepath.Join(root, "tmp"),
		bin: filepath.Join(root, "heddle"), mark: rand.Text(), cgroups: map[string]bool{},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kept: %s", root)
			if h.small { // no mount is left behind
				_ = os.CopyFS(h.dir+"-kept", os.DirFS(h.dir))
				_ = unix.Unmount(h.dir, unix.MNT_DETACH)
			}
			return
		}
		if h.small {
			if err := unix.Unmount(h.dir, 0); err != nil {
				t.Errorf("unmount the home: %v", err)
			}
		}
		_ = os.RemoveAll(root)
	})
	for _, dir := range []string{h.dir, h.workspace, h.temp} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h.small = unix.Mount("heddle-robust", h.dir, "tmpfs", 0, fmt.Sprintf("mode=0700,size=%d", homeSize)) == nil
	if !h.small {
		t.Log("the home is no file system of its own (that needs root): the disk is not filled, store faults stand for it")
	}
	config := fmt.Sprintf(`model = "mock-model"
model_provider = "mock"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
approval_timeout_secs = 6

[model_providers.mock]
name = "mock"
base_url = %q
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 4
stream_idle_timeout_ms = 2000
`, modelURL)
	for path, f := range map[string]struct {
		data []byte
		mode os.FileMode
	}{h.bin: {data, 0o700}, filepath.Join(h.dir, "config.toml"): {[]byte(config), 0o600}, h.effects(): {nil, 0o600}} {
		if err := os.WriteFile(path, f.data, f.mode); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// homeSize is the size of a home that can be filled, in bytes.
const homeSize = 512 << 20

// fill leaves no space in the home until free is called; free is nil when the
// home cannot be filled.
func (h *home) fill() (free func(), err error) {
	if !h.small {
		return nil, nil
	}
	path := filepath.Join(h.dir, "filler")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil // full already
	}
	defer f.Close()
	var at int64
	for step := int64(homeSize); step >= 4096; {
		if unix.Fallocate(int(f.Fd()), 0, at, step) != nil {
			step /= 2
			continue
		}
		at += step
	}
	return func() { _ = os.Remove(path) }, nil
}

// What processes of this home that start read as their settings (see package
// failpoint), and where they write down what they do because of them.
func (h *home) points() string      { return filepath.Join(h.root, "points") }
func (h *home) storeFaults() string { return filepath.Join(h.root, "store-faults") }
func (h *home) faults() string      { return filepath.Join(h.root, "faults.log") }

// arm sets these settings.
func (h *home) arm(points, storeFaults string) error {
	return errors.Join(os.WriteFile(h.points(), []byte(points), 0o600), os.WriteFile(h.storeFaults(), []byte(storeFaults), 0o600))
}

func (h *home) effects() string { return filepath.Join(h.workspace, "effects.txt") }
func (h *home) socket() string  { return filepath.Join(h.dir, "run/control.sock") }

func (h *home) command(args ...string) *exec.Cmd {
	cmd := exec.Command(h.bin, args...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "HEDDLE_") && !strings.HasPrefix(kv, "CODEX_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "HOME="+h.root, "HEDDLE_HOME="+h.dir, "TMPDIR="+h.temp, "LC_HEDDLE_ROBUST="+h.mark, "HEDDLE_IDLE_EXIT=500ms",
		"HEDDLE_FAILPOINTS=@"+h.points(), "HEDDLE_STORE_FAULTS=@"+h.storeFaults(), "HEDDLE_FAILPOINTS_LOG="+h.faults())
	cmd.Dir = h.workspace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// process is one process of the home.
type process struct {
	pid     int
	role    string // "controlplane", "executor", "app-server", "guest" or "other"
	cmdline string
}

// processes finds what carries the home's mark, runs in its workspace, names
// the home, or is in a sandbox of one of its executors.
func (h *home) processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []process
	parents := map[int]int{}
	ours := map[int]bool{}
	init := map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !alive(pid) {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		parents[pid], init[pid] = ancestry(dir)
		text := strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
		p := process{pid: pid, role: roleOf(text), cmdline: text}
		ours[pid] = bytes.Contains(env, []byte(h.mark)) || strings.HasPrefix(cwd, h.workspace) || strings.Contains(text, h.dir) || strings.HasPrefix(exe, h.root)
		out = append(out, p)
	}
	var mine []process
	for _, p := range out {
		for at := p.pid; at > 1 && at != os.Getpid(); at = parents[at] {
			if ours[at] {
				if init[p.pid] {
					p.role = "guest"
				}
				mine = append(mine, p)
				break
			}
		}
	}
	return mine
}

// ancestry returns the parent of a process and whether it is process 1 of a pid
// namespace below ours.
func ancestry(dir string) (parent int, init bool) {
	data, _ := os.ReadFile(filepath.Join(dir, "status"))
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "PPid:"); ok {
			parent, _ = strconv.Atoi(strings.TrimSpace(rest))
		}
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			ids := strings.Fields(rest)
			init = len(ids) > 1 && ids[len(ids)-1] == "1"
		}
	}
	return parent, init
}

func roleOf(cmdline string) string {
	for _, role := range []string{"controlplane", "executor", "app-server"} {
		if strings.Contains(cmdline+" ", " "+role+" ") {
			return role
		}
	}
	return "other"
}

func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// noteCgroups remembers the cgroups of the home's sandboxes.
func (h *home) noteCgroups() {
	records, _ := filepath.Glob(filepath.Join(h.dir, "executor/sandbox/owners/*/cgroup"))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range records {
		if data, _ := os.ReadFile(r); len(bytes.TrimSpace(data)) > 0 {
			h.cgroups[string(bytes.TrimSpace(data))] = true
		}
	}
}

// leftovers is invariant I5 seen from outside, once everything should be gone.
func (h *home) leftovers(within time.Duration) (out []string, cgroups int) {
	for deadline := time.Now().Add(within); time.Now().Before(deadline) && len(h.processes()) > 0; {
		time.Sleep(50 * time.Millisecond)
	}
	for _, p := range h.processes() {
		out = append(out, fmt.Sprintf("process %d (%s): %s", p.pid, p.role, p.cmdline))
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, h.root) && !strings.Contains(line, " "+h.dir+" ") {
			out = append(out, "mount "+strings.TrimSpace(line))
		}
	}
	h.mu.Lock()
	cgroups = len(h.cgroups)
	for path := range h.cgroups {
		if _, err := os.Stat(path); err == nil {
			out = append(out, "cgroup "+path)
		}
	}
	h.mu.Unlock()
	for _, pattern := range []string{
		filepath.Join(h.temp, "*"), filepath.Join(h.dir, "executor/sandbox/owners/*"), filepath.Join(h.dir, "run/*.sock"),
		filepath.Join(h.workspace, ".*"), filepath.Join(h.dir, "*.tmp*"), filepath.Join(h.dir, "*.compact"),
	} {
		names, _ := filepath.Glob(pattern)
		for _, n := range names {
			out = append(out, "file "+n)
		}
	}
	return out, cgroups
}
