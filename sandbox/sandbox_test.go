package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/sandboxtest"
)

func manager(tb testing.TB) *sandbox.Manager {
	tb.Helper()
	m, err := sandbox.NewManager(tb.Context(), sandbox.Config{StateDir: filepath.Join(tb.TempDir(), "state"), GuestPath: sandboxtest.Helper(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			tb.Error("close manager:", err)
		}
	})
	return m
}

func acquire(tb testing.TB, m *sandbox.Manager, p sandbox.Policy) *sandbox.Sandbox {
	tb.Helper()
	s, err := m.Acquire(tb.Context(), tb.Name(), p)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

type output struct {
	sandbox.Result
	out, err string
}

// run starts a command, reads both streams to their end and waits.
func run(tb testing.TB, s *sandbox.Sandbox, c sandbox.Cmd) output {
	tb.Helper()
	if c.Env == nil {
		c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/", "LC_ALL=C"}
	}
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	p, err := s.Start(tb.Context(), c)
	if err != nil {
		tb.Fatalf("start %q: %v", c.Argv, err)
	}
	var o, e bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(&o, p.Stdout()) })
	if p.Stderr() != nil {
		wg.Go(func() { io.Copy(&e, p.Stderr()) })
	}
	r, err := p.Wait(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	wg.Wait()
	p.Stdout().Close()
	if p.Stderr() != nil {
		p.Stderr().Close()
	}
	return output{Result: r, out: o.String(), err: e.String()}
}

func sh(script string) sandbox.Cmd { return sandbox.Cmd{Argv: []string{"bash", "-c", script}} }

func levels(t *testing.T, f func(t *testing.T, s *sandbox.Sandbox, ws string)) {
	t.Helper()
	for _, l := range []sandbox.Level{sandbox.ReadOnly, sandbox.WorkspaceWrite, sandbox.FullAccess} {
		t.Run(l.String(), func(t *testing.T) {
			ws := t.TempDir()
			f(t, acquire(t, manager(t), sandbox.Policy{Level: l, Workspace: ws}), ws)
		})
	}
}

func TestTrue(t *testing.T) {
	levels(t, func(t *testing.T, s *sandbox.Sandbox, ws string) {
		t.Helper()
		if o := run(t, s, sandbox.Cmd{Argv: []string{"true"}}); o.ExitCode != 0 || o.out != "" || o.err != "" {
			t.Errorf("true: %+v", o)
		}
		if o := run(t, s, sh("echo out; echo err >&2; exit 7")); o.ExitCode != 7 || o.out != "out\n" || o.err != "err\n" {
			t.Errorf("streams: %+v", o)
		}
		if o := run(t, s, sh("pwd")); o.out != ws+"\n" {
			t.Errorf("pwd: %+v", o)
		}
	})
}

func TestWorkspaceWrite(t *testing.T) {
	levels(t, func(t *testing.T, s *sandbox.Sandbox, ws string) {
		t.Helper()
		run(t, s, sh("echo x > ok"))
		_, err := os.Stat(filepath.Join(ws, "ok"))
		if want := s.Policy().Level != sandbox.ReadOnly; want != (err == nil) {
			t.Errorf("file in workspace: %v", err)
		}
	})
}

func TestProcess(t *testing.T) {
	levels(t, func(t *testing.T, s *sandbox.Sandbox, ws string) {
		t.Helper()
		t.Run("stdin", func(t *testing.T) { stdinReachesTheCommand(t, s) })
		t.Run("terminal", func(t *testing.T) { terminal(t, s) })
		t.Run("signal", func(t *testing.T) { signals(t, s) })
		t.Run("timeout", func(t *testing.T) { timeoutIsExact(t, s) })
		t.Run("merge", func(t *testing.T) {
			c := sh("echo a; echo b >&2; echo c")
			c.MergeStderr = true
			if o := run(t, s, c); o.out != "a\nb\nc\n" {
				t.Errorf("%q", o.out)
			}
		})
		t.Run("cancelled start", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if p, err := s.Start(ctx, sandbox.Cmd{Argv: []string{"sleep", "60"}}); err == nil {
				_ = p.Kill()
				run(t, s, sh("true"))
			}
		})
		t.Run("parallel", func(t *testing.T) {
			var wg sync.WaitGroup
			for i := range 40 {
				wg.Go(func() {
					if o := run(t, s, sh("sleep 0.05; exit $(("+string(rune('0'+i%8))+"))")); o.ExitCode != i%8 {
						t.Errorf("command %d: %+v", i, o)
					}
				})
			}
			wg.Wait()
		})
	})
}

func stdinReachesTheCommand(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"cat"}, Stdin: sandbox.StdinPipe, Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		p.Stdin().Write(data)
		p.Stdin().Close()
	}()
	got, err := io.ReadAll(p.Stdout())
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
	}
	if r, _ := p.Wait(t.Context()); r.ExitCode != 0 {
		t.Errorf("%+v", r)
	}
	p.Stderr().Close()
	if err := p.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to a finished command: %v", err)
	}
}

func terminal(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", `test -t 0 -a -t 1 -a -t 2 && stty size; read line; echo "got $line"; stty size; read -r x || echo eof`},
		TTY: true, Rows: 30, Cols: 100, Env: []string{"PATH=/usr/bin:/bin", "TERM=dumb"}})
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(p.Stdout())
	line := func() string {
		l, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("read terminal: %v after %q", err, l)
		}
		return strings.TrimRight(l, "\r\n")
	}
	if l := line(); l != "30 100" {
		t.Errorf("size: %q", l)
	}
	if err := p.Resize(11, 22); err != nil {
		t.Error(err)
	}
	io.WriteString(p.Stdin(), "hello\n")
	if a, b := line(), line(); a != "hello" || b != "got hello" {
		t.Errorf("echo %q, answer %q", a, b)
	}
	if l := line(); l != "11 22" {
		t.Errorf("new size: %q", l)
	}
	p.Stdin().Close()
	rest, err := io.ReadAll(r)
	if err != nil || !strings.Contains(string(rest), "eof") {
		t.Errorf("after end of input: %q, %v", rest, err)
	}
	if res, _ := p.Wait(t.Context()); res.ExitCode != 0 {
		t.Errorf("%+v", res)
	}
	p.Stdout().Close()
}

func signals(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	for _, tty := range []bool{false, true} {
		p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.01; done"}, TTY: tty, MergeStderr: true,
			Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(p.Stdout())
		if l, _ := r.ReadString('\n'); !strings.HasPrefix(l, "ready") {
			t.Fatalf("%q", l)
		}
		if err := p.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		rest, _ := io.ReadAll(r)
		if res, _ := p.Wait(t.Context()); res.ExitCode != 9 || !strings.Contains(string(rest), "caught") {
			t.Errorf("tty %v: %q, %+v", tty, rest, res)
		}
		p.Stdout().Close()
	}
}

func timeoutIsExact(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	c := sh("trap '' TERM; sleep 60 & sleep 60")
	c.Timeout = 250 * time.Millisecond
	o := run(t, s, c)
	if !o.TimedOut || o.Signal != 9 || o.Duration < 250*time.Millisecond || o.Duration > 600*time.Millisecond {
		t.Errorf("%+v", o.Result)
	}
}

func TestFiles(t *testing.T) {
	levels(t, func(t *testing.T, s *sandbox.Sandbox, ws string) {
		t.Helper()
		if s.Policy().Level == sandbox.ReadOnly {
			err := s.FS().WriteFile(t.Context(), filepath.Join(ws, "f"), []byte("x"), sandbox.WriteOptions{})
			if !errors.Is(err, syscall.EROFS) {
				t.Errorf("write at read-only: %v", err)
			}
			return
		}
		files(t, s.FS(), ws)
	})
}

func files(t *testing.T, f sandbox.FS, ws string) {
	t.Helper()
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	is := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	at := func(name string) string { return filepath.Join(ws, name) }
	ok(f.WriteFile(ctx, at("a"), []byte("one"), sandbox.WriteOptions{Exclusive: true, Mode: 0o755}))
	is(f.WriteFile(ctx, at("a"), nil, sandbox.WriteOptions{Exclusive: true}), fs.ErrExist)
	is(f.WriteFile(ctx, at("b"), nil, sandbox.WriteOptions{MustExist: true}), fs.ErrNotExist)
	ok(os.Chmod(at("a"), 0o640))
	big := bytes.Repeat([]byte("x\xff\x00"), 1<<19)
	ok(f.WriteFile(ctx, at("a"), big, sandbox.WriteOptions{Sync: true}))
	st, err := f.Stat(ctx, at("a"))
	ok(err)
	if st.Mode != 0o640 || st.Size != int64(len(big)) {
		t.Errorf("replaced file: %+v", st)
	}
	got, err := f.ReadFile(ctx, at("a"), 0)
	ok(err)
	if !bytes.Equal(got, big) {
		t.Error("content differs")
	}
	_, err = f.ReadFile(ctx, at("a"), 10)
	is(err, sandbox.ErrTooLarge)
	_, err = f.ReadFile(ctx, at("none"), 0)
	is(err, fs.ErrNotExist)
	_, err = f.ReadFile(ctx, ws, 0)
	is(err, syscall.EISDIR)
	ok(syscall.Mkfifo(at("fifo"), 0o600))
	_, err = f.ReadFile(ctx, at("fifo"), 0)
	is(err, syscall.EINVAL)

	ok(os.Link(at("a"), at("hard")))
	ok(f.WriteFile(ctx, at("a"), []byte("in place"), sandbox.WriteOptions{InPlace: true}))
	if b, _ := os.ReadFile(at("hard")); string(b) != "in place" {
		t.Errorf("hard link: %q", b)
	}
	ok(os.Symlink("a", at("link")))
	ok(f.WriteFile(ctx, at("link"), []byte("through"), sandbox.WriteOptions{}))
	if l, _ := os.Readlink(at("link")); l != "a" {
		t.Errorf("link was replaced: %q", l)
	}
	if b, _ := os.ReadFile(at("a")); string(b) != "through" {
		t.Errorf("target: %q", b)
	}
	outside := t.TempDir()
	ok(os.Symlink(outside, at("out")))
	is(f.WriteFile(ctx, at("out/x"), []byte("x"), sandbox.WriteOptions{Root: ws}), syscall.EXDEV)
	is(f.WriteFile(ctx, at("../x"), []byte("x"), sandbox.WriteOptions{Root: ws}), syscall.EXDEV)

	ok(f.WriteFile(ctx, at("d1/d2/c"), []byte("c"), sandbox.WriteOptions{MkdirAll: true, Root: ws}))
	ok(f.MkdirAll(ctx, at("d1/d3"), 0o755))
	list, err := f.ReadDir(ctx, at("d1"), 0)
	ok(err)
	if len(list) != 2 || list[0].Name != "d2" || !list[0].Type.IsDir() || list[1].Name != "d3" {
		t.Errorf("%+v", list)
	}
	ok(f.Rename(ctx, at("d1/d2/c"), at("d1/c"), true))
	is(f.Rename(ctx, at("d1/c"), at("a"), true), fs.ErrExist)
	is(f.Remove(ctx, at("d1"), false), syscall.ENOTEMPTY)
	ok(f.Remove(ctx, at("d1"), true))
	ok(f.Remove(ctx, at("a"), false))
	is(f.Remove(ctx, at("a"), false), fs.ErrNotExist)
	lst, err := f.Lstat(ctx, at("link"))
	ok(err)
	if lst.Link != "a" || lst.Mode&os.ModeSymlink == 0 {
		t.Errorf("%+v", lst)
	}
	if left, _ := filepath.Glob(at(".heddle*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestForeignWorkspace is S15: root may write a workspace that belongs to somebody else.
func TestForeignWorkspace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("GAP: needs root, covered there by the kernel's ownership checks")
	}
	ws := t.TempDir()
	for _, d := range []string{filepath.Dir(ws), ws} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(ws, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	s := acquire(t, manager(t), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws})
	if o := run(t, s, sh("echo x > f && cat f; echo y > /etc/f || true; echo z > /proc/sys/vm/swappiness || true")); o.out != "x\n" {
		t.Errorf("%+v", o)
	}
	if _, err := os.Stat(filepath.Join(ws, "f")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/etc/f"); err == nil {
		t.Error("wrote /etc")
	}
}

func TestResidue(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	m, err := sandbox.NewManager(t.Context(), sandbox.Config{StateDir: state, GuestPath: sandboxtest.Helper(t)})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s, err := m.Acquire(t.Context(), "scope", sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Start(t.Context(), sh("sleep 100")); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Release(t.Context(), "scope"); err != nil {
		t.Error(err)
	}
	if _, err := m.Acquire(t.Context(), "scope", sandbox.Policy{Level: sandbox.ReadOnly}); err != nil {
		t.Error(err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	left, _ := filepath.Glob(filepath.Join(state, "owners", "*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := m.Acquire(t.Context(), "scope", sandbox.Policy{Level: sandbox.ReadOnly}); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

// TestSweep: what an owner and its keeper leave when both are killed is gone after the next start.
func TestSweep(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	dead := filepath.Join(state, "owners", "dead")
	if err := os.MkdirAll(filepath.Join(dead, "runc", "box"), 0o700); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join("/sys/fs/cgroup/unified", "heddle-owner-dead")
	cgroup := os.Mkdir(base, 0o755) == nil && os.MkdirAll(filepath.Join(base, "box", "c1"), 0o755) == nil
	var left *exec.Cmd
	if cgroup {
		left = exec.Command("sleep", "600")
		if err := left.Start(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, "box", "c1", "cgroup.procs"), []byte(strconv.Itoa(left.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
		go left.Wait()
	}
	for name, data := range map[string]string{dead + ".lock": "", filepath.Join(dead, "cgroup"): base} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := sandbox.NewManager(t.Context(), sandbox.Config{StateDir: state, GuestPath: sandboxtest.Helper(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.Background())
	for _, p := range []string{dead, dead + ".lock", base} {
		if _, err := os.Stat(p); err == nil {
			t.Errorf("%s is still there", p)
		}
	}
}

// TestKeeperKilled: a dead keeper takes nothing with it but itself, and the next sandbox gets a new one.
func TestKeeperKilled(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	m, err := sandbox.NewManager(t.Context(), sandbox.Config{StateDir: state, GuestPath: sandboxtest.Helper(t)})
	if err != nil {
		t.Fatal(err)
	}
	ws := t.TempDir()
	old, err := m.Acquire(t.Context(), "old", sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws})
	if err != nil {
		t.Fatal(err)
	}
	paths := boxCgroups(t, state)
	if out, err := exec.Command("pkill", "-KILL", "-P", strconv.Itoa(os.Getpid()), "-f", "heddle-guest keeper").CombinedOutput(); err != nil {
		t.Fatalf("kill keeper: %v %s", err, out)
	}
	if o := run(t, old, sh("echo still here")); o.out != "still here\n" {
		t.Errorf("%+v", o)
	}
	fresh, err := m.Acquire(t.Context(), "new", sandbox.Policy{Level: sandbox.ReadOnly, Workspace: ws})
	if err != nil {
		t.Fatal(err)
	}
	if o := run(t, fresh, sh("echo new")); o.out != "new\n" {
		t.Errorf("%+v", o)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(paths) > 0 && os.Geteuid() == 0 {
		if _, err := os.Stat(paths[0]); err == nil {
			t.Errorf("%s is left behind", paths[0])
		}
	}
}

// boxCgroups returns the cgroups that were made for the sandboxes of a state directory.
func boxCgroups(t *testing.T, state string) []string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(state, "owners", "*", "runc", "*", "state.json"))
	var out []string
	for _, f := range files {
		var st struct {
			Paths map[string]string `json:"cgroup_paths"`
		}
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &st)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range st.Paths {
			out = append(out, p)
		}
	}
	return out
}

// TestReplacedWhileRunning: what the host replaces under a running command is told in its result.
func TestReplacedWhileRunning(t *testing.T) {
	ws := t.TempDir()
	git := filepath.Join(ws, ".git")
	if err := os.Mkdir(git, 0o755); err != nil {
		t.Fatal(err)
	}
	s := acquire(t, manager(t), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws})
	p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"cat"}, Stdin: sandbox.StdinPipe})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(git), os.Mkdir(git, 0o755)); err != nil {
		t.Fatal(err)
	}
	p.Stdin().Close()
	r, err := p.Wait(t.Context())
	if err != nil || len(r.Violations) != 1 || r.Violations[0].Path != git {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestIdle: an unused instance is ended and made again at its next use, unless something lies in its /tmp.
func TestIdle(t *testing.T) {
	m, err := sandbox.NewManager(t.Context(), sandbox.Config{StateDir: filepath.Join(t.TempDir(), "state"), GuestPath: sandboxtest.Helper(t), IdleAfter: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.Background())
	s := acquire(t, m, sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: t.TempDir()})
	instance := func(script string) string {
		t.Helper()
		o := run(t, s, sh(script+"; readlink /proc/self/ns/mnt"))
		if o.ExitCode != 0 {
			t.Fatalf("%+v", o)
		}
		return o.out
	}
	first := instance("true")
	deadline := time.Now().Add(20 * time.Second)
	for instance("true") == first {
		if time.Now().After(deadline) {
			t.Fatal("the idle instance is still used")
		}
		time.Sleep(60 * time.Millisecond)
	}
	kept := instance("echo x > /tmp/kept")
	time.Sleep(150 * time.Millisecond)
	if again := instance("cat /tmp/kept"); again != "x\n"+kept {
		t.Errorf("an instance with files in /tmp was ended: %q, then %q", kept, again)
	}
}

// TestManyLive: sandboxes live side by side, answer, and leave nothing. HEDDLE_LONG=1 makes 400 of them.
func TestManyLive(t *testing.T) {
	n := 24
	if os.Getenv("HEDDLE_LONG") == "1" {
		n = 400
	}
	m := manager(t)
	boxes := make([]*sandbox.Sandbox, n)
	inEight := func(f func(i int)) {
		var wg sync.WaitGroup
		slots := make(chan struct{}, 8)
		for i := range n {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				f(i)
			})
		}
		wg.Wait()
	}
	begin := time.Now()
	inEight(func(i int) {
		ws := t.TempDir()
		s, err := m.Acquire(t.Context(), strconv.Itoa(i), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws})
		if err != nil {
			t.Errorf("sandbox %d: %v", i, err)
			return
		}
		boxes[i] = s
	})
	t.Logf("%d sandboxes in %v", n, time.Since(begin))
	if t.Failed() {
		return
	}
	begin = time.Now()
	inEight(func(i int) {
		if o := run(t, boxes[i], sh("echo $$ > me && cat me")); o.ExitCode != 0 || o.out == "" {
			t.Errorf("sandbox %d: %+v", i, o)
		}
	})
	t.Logf("a command in each in %v", time.Since(begin))
}

// TestDescriptors: many sandboxes and commands leave no descriptor behind.
func TestDescriptors(t *testing.T) {
	m := manager(t)
	ws := t.TempDir()
	count := func() int {
		l, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(l)
	}
	round := func() {
		for _, l := range []sandbox.Level{sandbox.WorkspaceWrite, sandbox.FullAccess} {
			s, err := m.Acquire(t.Context(), "fds", sandbox.Policy{Level: l, Workspace: ws})
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				run(t, s, sh("true"))
				run(t, s, sandbox.Cmd{Argv: []string{"true"}, TTY: true})
				if _, err := s.FS().ReadDir(t.Context(), ws, 0); err != nil {
					t.Error(err)
				}
			}
		}
		if err := m.Release(t.Context(), "fds"); err != nil {
			t.Error(err)
		}
	}
	round()
	before := count()
	for range 5 {
		round()
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestBadPolicy(t *testing.T) {
	m := manager(t)
	for _, p := range []sandbox.Policy{
		{Level: 77},
		{Level: sandbox.WorkspaceWrite},
		{Level: sandbox.WorkspaceWrite, Workspace: "relative"},
		{Level: sandbox.WorkspaceWrite, Workspace: "/"},
		{Level: sandbox.WorkspaceWrite, Workspace: "/proc"},
		{Level: sandbox.WorkspaceWrite, Workspace: "/no/such/dir"},
		{Level: sandbox.ReadOnly, Protected: []string{"a/b"}},
	} {
		if _, err := m.Acquire(t.Context(), "bad", p); err == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
}

// BenchmarkTrueBare is the yardstick: the same command with its output read to the end, without a sandbox.
func BenchmarkTrueBare(b *testing.B) {
	for b.Loop() {
		if _, err := exec.Command("/bin/true").Output(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTrueSandboxed(b *testing.B) {
	for _, kind := range []string{"cgroup", "subreaper"} {
		b.Run(kind, func(b *testing.B) {
			m, err := sandbox.NewManager(b.Context(), sandbox.Config{StateDir: filepath.Join(b.TempDir(), "state"), GuestPath: sandboxtest.Helper(b), NoCgroup: kind != "cgroup"})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close(context.Background())
			s, err := m.Acquire(b.Context(), "bench", sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				p, err := s.Start(b.Context(), sandbox.Cmd{Argv: []string{"/bin/true"}})
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, p.Stdout())
				if r, _ := p.Wait(b.Context()); r.ExitCode != 0 {
					b.Fatal(r)
				}
				p.Stdout().Close()
				p.Stderr().Close()
			}
		})
	}
}

func BenchmarkSandboxStart(b *testing.B) {
	m := manager(b)
	ws := b.TempDir()
	p := sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws}
	if _, err := m.Acquire(b.Context(), "first", p); err != nil { // starts the keeper
		b.Fatal(err)
	}
	var stop time.Duration
	for b.Loop() {
		if _, err := m.Acquire(b.Context(), "bench", p); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		t := time.Now()
		if err := m.Release(b.Context(), "bench"); err != nil {
			b.Fatal(err)
		}
		stop += time.Since(t)
		b.StartTimer()
	}
	b.ReportMetric(float64(stop.Microseconds())/1000/float64(b.N), "stop-ms/op")
}

// BenchmarkParallel runs commands in 40 sandboxes at once; compare ns/op with BenchmarkParallelBare.
func BenchmarkParallel(b *testing.B) {
	m := manager(b)
	var boxes []*sandbox.Sandbox
	for i := range 40 {
		s, err := m.Acquire(b.Context(), strconv.Itoa(i), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		boxes = append(boxes, s)
	}
	b.ResetTimer()
	inParallel(b, len(boxes), func(i int) error {
		p, err := boxes[i].Start(b.Context(), sandbox.Cmd{Argv: []string{"/bin/true"}})
		if err != nil {
			return err
		}
		io.Copy(io.Discard, p.Stdout())
		_, err = p.Wait(b.Context())
		p.Stdout().Close()
		p.Stderr().Close()
		return err
	})
}

func BenchmarkParallelBare(b *testing.B) {
	inParallel(b, 40, func(int) error {
		_, err := exec.Command("/bin/true").Output()
		return err
	})
}

func inParallel(b *testing.B, n int, f func(i int) error) {
	b.Helper()
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for i := range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
