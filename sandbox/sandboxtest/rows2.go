package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox"
)

func policyFor(ws string) sandbox.Policy { return sandbox.Policy{Workspace: ws} }

func shell(script string) sandbox.Cmd {
	return sandbox.Cmd{Argv: []string{"bash", "-c", script}}
}

// survivors counts processes on the host whose command line holds mark.
func survivors(mark string) int {
	n := 0
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, d := range dirs {
		if b, err := os.ReadFile(d); err == nil && strings.Contains(strings.ReplaceAll(string(b), "\x00", " "), mark) {
			n++
		}
	}
	return n
}

// gone runs a script that leaves a `sleep mark` behind and judges whether it is still there when Wait returns.
func gone(script, mark string) func(e *Env) Verdict {
	return func(e *Env) Verdict {
		start := time.Now()
		o := e.Sh(script)
		if n := survivors("sleep " + mark); n > 0 {
			return Allowed
		}
		if time.Since(start) > 5*time.Second {
			e.T.Errorf("took %v", time.Since(start))
		}
		if !o.Leftovers && !o.SandboxLost {
			e.T.Errorf("leftovers were not reported: %+v", o.Result)
		}
		return Denied
	}
}

var processRows = []Row{
	{"P01", "attach to PID 1", "DD-", try("ptrace-1"), nil},
	{"P02", "read PID 1's environment", "DD-", try("open-r", "/proc/1/environ"), nil},
	{"P03", "PID 1's root directory", "DD-", func(e *Env) Verdict {
		if e.Sh("ls /proc/1/root/").ExitCode == 0 {
			return Allowed
		}
		return Denied
	}, nil},
	{"P04", "PID 1's memory", "DD-", try("open-r", "/proc/1/mem"), nil},
	{"P05", "own memory through /proc", "AAA", try("self-mem"), nil},
	{"P06", "kill a process of the host", "DD-", func(e *Env) Verdict {
		c := exec.Command("sleep", "60")
		e.must(c.Start())
		e.Attack("kill", fmt.Sprint(c.Process.Pid))
		err := c.Process.Signal(unix.Signal(0))
		alive := err == nil && survivorsOf(c.Process.Pid)
		_ = c.Process.Kill()
		_ = c.Wait()
		if alive {
			return Denied
		}
		return Allowed
	}, nil},
	{"P07", "kill -9 -1 and kill -9 1 end other commands", "DD-", func(e *Env) Verdict {
		p, err := e.S.Start(context.Background(), sandbox.Cmd{Argv: []string{"sleep", "3"}, Env: []string{"PATH=/usr/bin:/bin"}})
		e.must(err)
		e.Sh("kill -9 1; kill -9 -1")
		r := Finish(e.T, p)
		if r.ExitCode == 0 && !r.SandboxLost {
			return Denied
		}
		e.T.Logf("other command: %+v", r.Result)
		return Allowed
	}, func(e *Env) string {
		if e.Report.Landlock < 6 {
			return "the kernel has no Landlock signal scopes (ABI 6)"
		}
		return ""
	}},
	{"P08", "see processes of the host", "DD-", func(e *Env) Verdict {
		o := e.Sh("ls /proc | grep -c '^[0-9]*$'")
		var n int
		fmt.Sscan(o.Stdout, &n)
		if n > 8 {
			return Allowed
		}
		return Denied
	}, nil},
	{"P09", "read PID 1's memory by system call", "DD-", try("vm-read-1"), nil},
	{"P10", "debug an own child", "AAA", try("ptrace-child"), nil},
	{"R01", "leave a process in a session of its own", "DDD", gone("(setsid sleep 987654 &) ; sleep 0.1", "987654"), nil},
	{"R01b", "double fork with nohup", "DDD", gone("( ( nohup sleep 987655 >/dev/null 2>&1 & ) & ); sleep 0.1", "987655"), nil},
	{"R01c", "survive a kill of its supervisor", "DDD", gone("(setsid sleep 987656 &); sleep 0.1; kill -9 $PPID", "987656"), nil},
	{"R06", "ignore every signal and stop", "DDD", func(e *Env) Verdict {
		start := time.Now()
		c := shell("trap '' TERM INT HUP; sleep 987657 & kill -STOP $$; sleep 987657")
		c.Timeout = 300 * time.Millisecond
		o := e.RunIn(e.S, c)
		if !o.TimedOut {
			e.T.Errorf("not reported as timed out: %+v", o.Result)
		}
		if survivors("sleep 987657") > 0 || time.Since(start) > 3*time.Second {
			return Allowed
		}
		return Denied
	}, nil},
	{"S03", "a reader that waits on a pipe for ever", "DDD", func(e *Env) Verdict {
		start := time.Now()
		c := shell("cd ${TMPDIR:-/tmp}; p=$(mktemp -u); mkfifo $p; (while :; do echo x; sleep 0.1; done) >$p & cat $p >/dev/null")
		c.Timeout = time.Second
		o := e.RunIn(e.S, c)
		if !o.TimedOut || time.Since(start) > 3*time.Second {
			return Allowed
		}
		return Denied
	}, nil},
	{"S04", "output through a process substitution is complete", "AAA", func(e *Env) Verdict {
		o := e.Sh("exec > >(tee -a /tmp/heddle-s04) 2>&1; echo hi")
		_ = os.Remove("/tmp/heddle-s04")
		if o.Stdout == "hi\n" && o.Duration < 3*time.Second && survivors("tee -a /tmp/heddle-s04") == 0 {
			return Allowed
		}
		e.T.Logf("%+v", o)
		return Denied
	}, nil},
	{"R07", "outlive a killed owner", "DDD", ownerDies, nil},
	{"R08", "outlive a killed guest", "DDD", guestDies, nil},
	{"R09", "outlive the fence", "DDD", fencePasses, nil},
}

// setUpRace runs commands that swap a directory of the workspace with a link to outside, while further sandboxes
// that name it as a writable root are made, and sees whether one of those can write outside.
func setUpRace(e *Env) Verdict {
	sub := filepath.Join(e.WS, "l06")
	target := filepath.Join(e.Outside, "l06-victim")
	e.must(os.MkdirAll(sub, 0o755))
	e.must(os.MkdirAll(filepath.Join(target, ".git"), 0o755))
	defer os.RemoveAll(target)
	defer func() {
		for _, p := range []string{sub, sub + ".d"} {
			_ = os.RemoveAll(p)
		}
	}()
	swap := shell("cd $WS; while :; do mv -T l06 l06.d && ln -s " + target + " l06; rm -f l06; mv -T l06.d l06; done")
	swap.Timeout = time.Minute
	swap.Env = []string{"PATH=/usr/bin:/bin", "WS=" + e.WS}
	p, err := e.S.Start(context.Background(), swap)
	e.must(err)
	made := 0
	for i := range 12 {
		s, err := e.M.Acquire(context.Background(), fmt.Sprintf("l06-%d", i), sandbox.Policy{Level: e.Level, Workspace: e.WS, WritableRoots: []string{sub}})
		if err != nil {
			continue // refused because it changed: as good
		}
		made++
		e.RunIn(s, shell("echo x > "+filepath.Join(target, "owned")+"; echo x > "+filepath.Join(target, ".git", "owned")))
		e.must(e.M.Release(context.Background(), fmt.Sprintf("l06-%d", i)))
	}
	_ = p.Kill()
	Finish(e.T, p)
	e.T.Logf("%d of 12 sandboxes could be made", made)
	if wrote(filepath.Join(target, "owned")) == Allowed {
		return Allowed
	}
	return wrote(filepath.Join(target, ".git", "owned"))
}

func survivorsOf(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// waitGone waits up to five seconds for every `sleep mark` to be gone.
func waitGone(mark string) Verdict {
	for range 500 {
		if survivors("sleep "+mark) == 0 {
			return Denied
		}
		time.Sleep(10 * time.Millisecond)
	}
	return Allowed
}

// OwnerEnv makes a test binary act as the owner of a sandbox that waits to be killed: level, state directory,
// workspace, helper, "nocgroup" or nothing, separated by newlines.
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
	m, err := sandbox.NewManager(context.Background(), sandbox.Config{StateDir: a[1], GuestPath: a[3], NoCgroup: a[4] != ""})
	check(err)
	s, err := m.Acquire(context.Background(), "owner", sandbox.Policy{Level: level, Workspace: a[2]})
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
	no := ""
	if e.Cfg.NoCgroup {
		no = "nocgroup"
	}
	c := exec.Command(exe)
	c.Env = append(os.Environ(), OwnerEnv+"="+strings.Join([]string{e.Level.String(), e.Cfg.StateDir, e.WS, e.Cfg.GuestPath, no}, "\n"))
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

// listen opens a listener on the host and returns its address.
func listen(e *Env, network, addr string) string {
	l, err := net.Listen(network, addr)
	e.must(err)
	e.T.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l.Addr().String()
}

// unsupervised says why sockets of the host cannot be refused when they are connected to.
func unsupervised(e *Env) string {
	for _, g := range e.Report.Gaps {
		if g.Guarantee == sandbox.GapUnixSockets && e.Level != sandbox.FullAccess {
			return g.Why
		}
	}
	return ""
}

// ownSockets are small programs in Python.
var ownSockets = map[string]string{
	"a loop that another thread wakes": `
import asyncio, threading
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
async def f(): return 7
assert asyncio.run_coroutine_threadsafe(f(), loop).result(5) == 7
`,
	"a server on a unix socket and one on loopback": `
import asyncio, os, tempfile
async def serve(r, w):
    w.write(await r.readline()); await w.drain(); w.close()
async def main():
    p = os.path.join(tempfile.mkdtemp(), 's')
    a = await asyncio.start_unix_server(serve, p)
    b = await asyncio.start_server(serve, '127.0.0.1', 0)
    for c in (asyncio.open_unix_connection(p), asyncio.open_connection(*b.sockets[0].getsockname())):
        r, w = await c
        w.write(b'x\\n'); assert await r.readline() == b'x\\n'
asyncio.run(main())
`,
	"a manager process": `
import multiprocessing as m
d = m.get_context('fork').Manager().dict()
d['a'] = 1
assert d['a'] == 1
`,
	"an abstract name and a stale file": `
import socket, os, tempfile
l = socket.socket(socket.AF_UNIX); l.bind('\\0heddle-own'); l.listen()
socket.socket(socket.AF_UNIX).connect('\\0heddle-own')
p = os.path.join(tempfile.mkdtemp(), 's')
l = socket.socket(socket.AF_UNIX); l.bind(p); l.close()
try: socket.socket(socket.AF_UNIX).connect(p)
except ConnectionRefusedError: pass
else: raise SystemExit(1)
`,
}

func freshSocket(e *Env) string {
	path := filepath.Join(e.Outside, "s.sock")
	_ = os.Remove(path)
	return path
}

var networkRows = []Row{
	{"N01", "connect to the host's loopback", "DDA", func(e *Env) Verdict {
		return succeeded(e, e.Attack("dial", "tcp", listen(e, "tcp", "127.0.0.1:0")))
	}, nil},
	{"N01b", "the same with full network", "AAA", func(e *Env) Verdict {
		s := e.Acquire(sandbox.Policy{Net: sandbox.NetFull})
		return succeeded(e, e.RunIn(s, sandbox.Cmd{Argv: []string{e.Tool, "dial", "tcp", listen(e, "tcp", "127.0.0.1:0")}}))
	}, nil},
	{"N02", "connect to the metadata address", "DD-", try("dial", "tcp", "169.254.169.254:80"), nil},
	{"N03", "connect to an abstract socket of the host", "DDA", func(e *Env) Verdict {
		return succeeded(e, e.Attack("dial", "unix", listen(e, "unix", fmt.Sprintf("@heddle-n03-%d", os.Getpid()))))
	}, nil},
	{"N04", "see a socket in /run", "DD-", func(e *Env) Verdict {
		o := e.Sh("find /run -type s | head -3; ls /var/run/docker.sock /run/dbus 2>/dev/null")
		if o.Stdout != "" {
			return Allowed
		}
		return Denied
	}, nil},
	{"N05", "connect to a socket elsewhere on disk", "DDA", func(e *Env) Verdict {
		addr := listen(e, "unix", freshSocket(e))
		s := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{FileBytes: 1 << 42}}) // made after the socket
		return succeeded(e, e.RunIn(s, sandbox.Cmd{Argv: []string{e.Tool, "dial", "unix", addr}}))
	}, nil},
	{"N05c", "the same, bound after the sandbox was made", "DDA", func(e *Env) Verdict {
		path := listen(e, "unix", freshSocket(e))
		o := e.Attack("dial", "unix", path)
		if e.Level != sandbox.FullAccess && (len(o.Violations) != 1 || o.Violations[0].Path != path) {
			e.T.Errorf("refusal was not reported: %+v", o.Violations)
		}
		return succeeded(e, o)
	}, unsupervised},
	{"N05d", "the same by a relative name, a link and a name in /proc", "DDA", func(e *Env) Verdict {
		dir := filepath.Dir(listen(e, "unix", freshSocket(e)))
		v := Denied
		for _, script := range []string{"cd $OUTSIDE && $TOOL dial unix s.sock", "ln -s $OUTSIDE/s.sock $T/s && $TOOL dial unix $T/s",
			"cd $OUTSIDE && $TOOL dial unix /proc/self/cwd/s.sock", "exec 7<$OUTSIDE && $TOOL dial unix /proc/self/fd/7/s.sock"} {
			o := e.Sh("TOOL=" + e.Tool + "; T=$(mktemp -d); " + strings.ReplaceAll(script, "$OUTSIDE", dir))
			if o.ExitCode == 0 {
				v = Allowed
			} else if v == Allowed {
				e.T.Errorf("%s: %s%s", script, o.Stdout, o.Stderr)
			}
		}
		return v
	}, unsupervised},
	{"N05e", "change the address while the call is judged", "DD-", func(e *Env) Verdict {
		path := listen(e, "unix", freshSocket(e))
		s := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{FileBytes: 1 << 43}})
		return succeeded(e, e.RunIn(s, sandbox.Cmd{Argv: []string{e.Tool, "dial-race", path}}))
	}, unsupervised},
	{"N05f", "send a datagram to a socket of the host", "DDA", func(e *Env) Verdict {
		path := freshSocket(e)
		c, err := net.ListenPacket("unixgram", path)
		e.must(err)
		defer c.Close()
		e.must(os.Chmod(path, 0o777))
		o := e.Attack("send-unixgram", path)
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, _, err := c.ReadFrom(make([]byte, 8)); err == nil {
			return Allowed
		}
		if o.ExitCode == 0 {
			e.T.Error("sent, but nothing came")
		}
		return Denied
	}, unsupervised},
	{"N05g", "programs that talk through sockets of their own", "AAA", func(e *Env) Verdict {
		for what, script := range ownSockets {
			o := e.RunIn(e.S, shell("cd ${TMPDIR:-/tmp} && exec python3 -c \""+script+"\""))
			if o.ExitCode != 0 {
				e.T.Logf("%s: %+v", what, o)
				return Denied
			}
		}
		return Allowed
	}, func(*Env) string {
		if _, err := exec.LookPath("python3"); err != nil {
			return "there is no python3"
		}
		return ""
	}},
	{"N05b", "a socket of its own in the workspace", "DAA", func(e *Env) Verdict {
		return succeeded(e, e.Attack("own-unix", filepath.Join(e.WS, "own.sock")))
	}, nil},
	{"N06", "raw socket", "DD-", try("raw"), nil},
	{"N07", "packet socket", "DD-", try("packet"), nil},
	{"N08", "vsock", "DD-", try("vsock"), nil},
	{"N09", "kernel crypto socket", "DD-", try("alg"), nil},
	{"N10", "netlink socket", "AAA", try("netlink"), nil},
	{"N11", "send to a name server", "DD-", func(e *Env) Verdict {
		if e.Sh("exec 3<>/dev/udp/8.8.8.8/53 && echo x >&3").ExitCode == 0 {
			return Allowed
		}
		return Denied
	}, nil},
	{"N12", "serve and connect on 127.0.0.1", "AAA", try("loopback"), nil},
	{"N12b", "a unix socket of its own in /tmp", "AAA", func(e *Env) Verdict {
		o := e.RunIn(e.S, sandbox.Cmd{Argv: []string{e.Tool, "own-unix", filepath.Join(os.TempDir(), fmt.Sprintf("n12b-%d", os.Getpid()))}})
		return succeeded(e, o)
	}, nil},
}

var leakRows = []Row{
	{"L01", "inherit a descriptor", "DDD", func(e *Env) Verdict {
		o := e.Attack("fds")
		if o.ExitCode == 0 {
			return Denied
		}
		e.T.Log(o.Stdout)
		return Allowed
	}, nil},
	{"L02", "secrets in the environment", "DDD", func(e *Env) Verdict {
		env := sandbox.FilterEnv(append(os.Environ(), "PATH=/usr/bin:/bin", "OPENAI_API_KEY=1", "AWS_SECRET_ACCESS_KEY=2", "GITHUB_TOKEN=3", "HEDDLE_HOME=4", "db_password=5"))
		o := e.RunIn(e.S, sandbox.Cmd{Argv: []string{"env"}, Env: env})
		if strings.Contains(o.Stdout, "KEY=") || strings.Contains(o.Stdout, "TOKEN=") || strings.Contains(o.Stdout, "HEDDLE") || strings.Contains(o.Stdout, "password") {
			return Allowed
		}
		return Denied
	}, nil},
	{"L02b", "variables nobody gave", "DDD", func(e *Env) Verdict {
		o := e.RunIn(e.S, sandbox.Cmd{Argv: []string{"/usr/bin/env"}, Env: []string{"A=1"}})
		if o.Stdout == "A=1\n" {
			return Denied
		}
		return Allowed
	}, nil},
	{"L03", "read the owner's state directory", "DD-", func(e *Env) Verdict {
		if o := e.Sh("ls -A " + e.Cfg.StateDir); o.Stdout != "" {
			return Allowed
		}
		return Denied
	}, nil},
	{"L04", "leave a core file", "DDD", func(e *Env) Verdict {
		if o := e.Attack("core-limit"); o.ExitCode != 0 {
			e.T.Log(o.Stdout)
			return Allowed
		}
		return Denied
	}, nil},
	{"L06", "swap paths of the workspace while another sandbox of it is made", "DD-", setUpRace, nil},
	{"L06b", "lead a writable root elsewhere by a link", "-D-", func(e *Env) Verdict {
		link := filepath.Join(e.WS, "l06b")
		defer os.RemoveAll(link)
		e.Sh("ln -sfn $OUTSIDE " + link)
		_, err := e.M.Acquire(context.Background(), "l06b", sandbox.Policy{Level: e.Level, Workspace: e.WS, WritableRoots: []string{link}})
		if err != nil {
			return Denied
		}
		return Allowed
	}, nil},
	{"L05", "open the guest's program for writing", "DD-", try("replace-proc-1"), nil},
	{"F24", "start in /proc, a deleted or a missing directory", "DDD", func(e *Env) Verdict {
		for _, dir := range []string{"/proc/self/fd/4", "/nonexistent", filepath.Join(e.WS, ".git", "config"), "relative"} {
			_, err := e.S.Start(context.Background(), sandbox.Cmd{Argv: []string{"true"}, Dir: dir})
			if !errors.Is(err, sandbox.ErrBadDir) {
				e.T.Errorf("start in %s: %v", dir, err)
				return Allowed
			}
		}
		return Denied
	}, nil},
	{"S08", "anything of ours in the workspace", "DDD", func(e *Env) Verdict {
		ws := e.WS + "-s08"
		e.must(os.Mkdir(ws, 0o755))
		defer os.RemoveAll(ws)
		e.RunIn(e.Acquire(policyFor(ws)), sandbox.Cmd{Argv: []string{"true"}})
		ents, err := os.ReadDir(ws)
		e.must(err)
		if len(ents) > 0 {
			return Allowed
		}
		return Denied
	}, nil},
	{"S12", "a read-only write that looks like success", "DDA", func(e *Env) Verdict {
		o := e.Sh("echo x > $OUTSIDE/s12; echo rc=$?; ls $OUTSIDE/s12")
		_ = os.Remove(filepath.Join(e.Outside, "s12"))
		if strings.Contains(o.Stdout, "rc=0") {
			return Allowed
		}
		return Denied
	}, nil},
	{"O01", "bytes of output are kept", "AAA", func(e *Env) Verdict {
		o := e.Sh(`printf 'a\377\000\300\033]52;x\007'; head -c 3000000 /dev/zero`)
		if strings.HasPrefix(o.Stdout, "a\xff\x00\xc0\x1b]52;x\x07") && len(o.Stdout) == 3000000+11 {
			return Allowed
		}
		return Denied
	}, nil},
	{"T02", "timers are as precise as elsewhere", "AAA", func(e *Env) Verdict {
		if o := e.Sh("cat /proc/self/timerslack_ns"); o.Stdout == "50000\n" {
			return Allowed
		}
		return Denied
	}, nil},
	{"T01", "a missing program is 127 with one line", "AAA", func(e *Env) Verdict {
		o := e.RunIn(e.S, sandbox.Cmd{Argv: []string{"no-such-program"}})
		if o.ExitCode == 127 && o.Stderr == "heddle: no-such-program: command not found\n" {
			return Allowed
		}
		e.T.Logf("%+v", o)
		return Denied
	}, nil},
	{"F3", "an argument longer than the kernel allows is a clear error", "AAA", func(e *Env) Verdict {
		o := e.RunIn(e.S, sandbox.Cmd{Argv: []string{"true", strings.Repeat("x", 131073)}})
		if o.ExitCode == 126 && strings.Contains(o.Stderr, "longer than the kernel allows") {
			return Allowed
		}
		e.T.Logf("%+v", o.Result)
		return Denied
	}, nil},
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
