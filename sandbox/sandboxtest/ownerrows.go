package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox"
)

// OwnerEnv makes a test binary act as the owner of a sandbox that waits to be killed: level, state directory,
// workspace, helper, "nocgroup" or nothing, "landlock" or nothing, separated by newlines.
const OwnerEnv = "SANDBOX_OWNER"

// Owner runs that role when asked for, and returns otherwise.
func Owner() {
	v := os.Getenv(OwnerEnv)
	if v == "" {
		return
	}
	a := strings.Split(v, "\n")
	level, err := sandbox.ParseLevel(a[0])
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stdout, err)
			os.Exit(1)
		}
	}
	check(err)
	m, err := sandbox.NewManager(context.Background(), sandbox.Config{StateDir: a[1], GuestPath: a[3], NoCgroup: a[4] != "", NoNamespaces: a[5] != ""})
	check(err)
	p := sandbox.Policy{Level: level, Workspace: a[2]}
	if a[5] != "" {
		p.Fallback = sandbox.FallbackLandlock
	}
	s, err := m.Acquire(context.Background(), "owner", p)
	check(err)
	_, err = s.Start(context.Background(), sandbox.Cmd{Argv: []string{"bash", "-c", "(setsid sleep 987661 &); sleep 987661"}, Env: []string{"PATH=/usr/bin:/bin"}})
	check(err)
	for survivors("sleep 987661") < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Fprintln(os.Stdout, "ready")
	select {}
}

func ownerDies(e *Env) Verdict {
	exe, err := os.Executable()
	e.must(err)
	no, fallback := "", ""
	if e.Cfg.NoCgroup {
		no = "nocgroup"
	}
	if e.Landlock {
		fallback = "landlock"
	}
	c := exec.Command(exe)
	c.Env = append(os.Environ(), OwnerEnv+"="+strings.Join([]string{e.Level.String(), e.Cfg.StateDir, e.WS, e.Cfg.GuestPath, no, fallback}, "\n"))
	out, err := c.StdoutPipe()
	e.must(err)
	e.must(c.Start())
	b := make([]byte, 256)
	n, _ := out.Read(b)
	if string(b[:n]) != "ready\n" {
		e.T.Fatalf("owner: %s", b[:n])
	}
	helpers := below(c.Process.Pid)
	cgroups, _ := filepath.Glob(filepath.Join(e.Cfg.StateDir, "owners", "*", "cgroup"))
	e.must(c.Process.Kill())
	_ = c.Wait()
	v := waitGone("987661")
	for i := 0; len(alive(helpers)) > 0 && i < 500; i++ {
		time.Sleep(10 * time.Millisecond)
	}
	if left := alive(helpers); len(helpers) < 2 || len(left) > 0 {
		e.T.Errorf("%d processes below the owner before the kill, left after it: %v", len(helpers), left)
	}
	for i := 0; countOwners(e) > 1 && i < 500; i++ { // the environment's own stays
		time.Sleep(10 * time.Millisecond)
	}
	if n := countOwners(e); n != 1 || len(cgroups) != 2 {
		e.T.Errorf("%d owners with state after the kill, %d before", n, len(cgroups))
	}
	return v
}

func countOwners(e *Env) int {
	l, _ := filepath.Glob(filepath.Join(e.Cfg.StateDir, "owners", "*", "cgroup"))
	return len(l)
}

// killGuest kills the guest above the process whose command line holds mark, as a crash would.
func killGuest(e *Env, mark string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		b, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		if !strings.Contains(strings.ReplaceAll(string(b), "\x00", " "), mark) {
			continue
		}
		for pid := parent(filepath.Base(d)); pid != "0" && pid != ""; pid = parent(pid) {
			b, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if strings.HasSuffix(string(b), "\x00guest\x00") {
				var n int
				fmt.Sscan(pid, &n)
				e.must(unix.Kill(n, unix.SIGKILL))
				return
			}
		}
	}
	e.T.Fatal("no guest found")
}

func parent(pid string) string {
	b, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := strings.Cut(string(b), ") ")
	if f := strings.Fields(rest); len(f) > 1 {
		return f[1]
	}
	return ""
}

func guestDies(e *Env) Verdict {
	s := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{FileBytes: 1 << 40}}) // a sandbox of its own
	p, err := s.Start(context.Background(), sandbox.Cmd{Argv: []string{"bash", "-c", "(setsid sleep 987662 &); sleep 987662"}, Env: []string{"PATH=/usr/bin:/bin"}})
	e.must(err)
	for survivors("sleep 987662") < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	killGuest(e, "sleep 987662")
	o := Finish(e.T, p)
	if !o.SandboxLost {
		e.T.Errorf("loss was not reported: %+v", o.Result)
	}
	if o := e.RunIn(s, shell("echo again")); o.Stdout != "again\n" {
		e.T.Errorf("next command: %+v", o)
	}
	return waitGone("987662")
}

// guestDiesWriting kills guests at several moments of a write: what is left is the old file or the new one.
func guestDiesWriting(e *Env) Verdict {
	data := []byte(strings.Repeat("new", 8<<20))
	name := filepath.Join(e.WS, "half")
	e.must(os.WriteFile(name, []byte("old"), 0o600))
	defer os.Remove(name)
	v := Denied
	for i := range 5 {
		s := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{FileBytes: 1<<40 + int64(i)}}) // a sandbox of its own
		p, err := s.Start(context.Background(), sandbox.Cmd{Argv: []string{"sleep", "987669"}, Env: []string{"PATH=/usr/bin:/bin"}})
		e.must(err)
		for survivors("sleep 987669") < 1 {
			time.Sleep(time.Millisecond)
		}
		wrote := make(chan error, 1)
		go func() { wrote <- s.FS().WriteFile(context.Background(), name, data, sandbox.WriteOptions{}) }()
		time.Sleep(time.Duration(i*4) * time.Millisecond)
		killGuest(e, "sleep 987669")
		Finish(e.T, p)
		<-wrote
		if b, err := os.ReadFile(name); err != nil || len(b) != 3 && len(b) != len(data) {
			e.T.Errorf("kill %d left %d bytes, %v", i, len(b), err)
			v = Allowed
		}
		if left, _ := filepath.Glob(filepath.Join(e.WS, ".heddle-*")); len(left) > 0 {
			e.T.Errorf("kill %d left %v", i, left)
			v = Allowed
		}
	}
	return v
}

func fencePasses(e *Env) Verdict {
	s := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{FileBytes: 1 << 41}})
	p, err := s.Start(context.Background(), sandbox.Cmd{Argv: []string{"bash", "-c", "(setsid sleep 987663 &); sleep 987663"}, Env: []string{"PATH=/usr/bin:/bin"}})
	e.must(err)
	e.must(s.SetDeadline(time.Now().Add(300 * time.Millisecond)))
	o := Finish(e.T, p)
	e.must(s.SetDeadline(time.Time{}))
	if !o.SandboxLost || o.Duration > 3*time.Second {
		e.T.Errorf("fence: %+v", o.Result)
	}
	return waitGone("987663")
}

// below returns the processes that descend from pid, with their start times, so
// that a number given out again is not taken for one of them.
func below(pid int) map[int]string {
	parents := map[int]int{}
	starts := map[int]string{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		p, parent, start, ok := readStat(path)
		if ok {
			parents[p], starts[p] = parent, start
		}
	}
	found := map[int]string{}
	for p := range parents {
		for q, ok := parents[p], true; ok && q > 1; q, ok = parents[q] {
			if q == pid {
				found[p] = starts[p]
				break
			}
		}
	}
	return found
}

// alive returns those of the processes that still are; zombies are not.
func alive(pids map[int]string) []int {
	var left []int
	for p, start := range pids {
		if _, _, now, ok := readStat(fmt.Sprintf("/proc/%d/stat", p)); ok && now == start {
			left = append(left, p)
		}
	}
	return left
}

func readStat(path string) (pid, parent int, start string, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, "", false
	}
	text := string(b)
	end := strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[end+1:])
	if end < 0 || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, 0, "", false
	}
	pid, err1 := strconv.Atoi(text[:strings.IndexByte(text, ' ')])
	parent, err2 := strconv.Atoi(fields[1])
	return pid, parent, fields[19], err1 == nil && err2 == nil
}
