package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
)

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
