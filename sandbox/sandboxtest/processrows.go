package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	{"P01", "attach to PID 1", "DD-", refuse("ptrace-1"), nil},
	{"P02", "read PID 1's environment", "DD-", refuse("open-r", "/proc/1/environ"), nil},
	{"P03", "PID 1's root directory", "DD-", func(e *Env) Verdict {
		if e.Sh("ls /proc/1/root/").ExitCode == 0 {
			return Allowed
		}
		return Denied
	}, nil},
	{"P04", "PID 1's memory", "DD-", refuse("open-r", "/proc/1/mem"), nil},
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
	{"P09", "read PID 1's memory by system call", "DD-", refuse("vm-read-1"), nil},
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
	{"R08b", "half of a file that a killed guest wrote", "DDD", guestDiesWriting, nil},
	{"R09", "outlive the fence", "DDD", fencePasses, nil},
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
