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
	{"L01b", "the same in a terminal, with input and with one output", "DDD", func(e *Env) Verdict {
		for _, c := range []sandbox.Cmd{{TTY: true}, {Stdin: sandbox.StdinPipe}, {MergeStderr: true}} {
			c.Argv = []string{e.Tool, "fds"}
			if o := e.RunIn(e.S, c); o.ExitCode != 0 {
				e.T.Logf("%+v: %s", c, o.Stdout)
				return Allowed
			}
		}
		return Denied
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
	{"L03b", "read a file of the state directory, connect to a socket in it", "DD-", func(e *Env) Verdict {
		file := filepath.Join(e.Cfg.StateDir, "l03b")
		e.must(os.WriteFile(file, []byte("PRIVATE"), 0o644))
		defer os.Remove(file)
		if v := private(e.Sh("cat " + file + " " + e.Cfg.StateDir + "/../state/l03b; cd " + e.Cfg.StateDir + " && cat l03b")); v == Allowed {
			return v
		}
		return succeeded(e, e.Attack("dial", "unix", listen(e, "unix", file+".sock")))
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
		_, err := e.M.Acquire(context.Background(), "l06b", e.leveled(sandbox.Policy{Workspace: e.WS, WritableRoots: []string{link}}))
		if err != nil {
			return Denied
		}
		return Allowed
	}, nil},
	{"L05", "open the guest's program for writing", "DD-", try("replace-proc-1"), nil},
	{"F24", "start in /proc, a deleted or a missing directory", "DDD", func(e *Env) Verdict {
		deleted := filepath.Join(e.WS, "f24")
		e.must(os.Mkdir(deleted, 0o755))
		e.RunIn(e.S, sandbox.Cmd{Argv: []string{"true"}, Dir: deleted})
		e.must(os.Remove(deleted))
		for _, dir := range []string{"/proc/self/fd/4", "/proc/self/fd/0", "/nonexistent", deleted, filepath.Join(e.WS, ".git", "config"), "relative"} {
			_, err := e.S.Start(context.Background(), sandbox.Cmd{Argv: []string{"true"}, Dir: dir})
			if !errors.Is(err, sandbox.ErrBadDir) {
				e.T.Errorf("start in %s: %v", dir, err)
				return Allowed
			}
		}
		return Denied
	}, nil},
	{"F24b", "start outside by .. and by a link, and write there", "DDA", func(e *Env) Verdict {
		link, made := filepath.Join(e.WS, "f24b"), filepath.Join(e.Outside, "made")
		e.must(os.Symlink(e.Outside, link))
		defer os.Remove(link)
		v := Denied
		for _, dir := range []string{link, e.WS + "/../outside", e.WS + "/sub/../../outside", e.WS + "/../ws/f24b"} {
			c := shell("echo x > made")
			c.Dir = dir
			p, err := e.S.Start(context.Background(), c)
			if err != nil && !errors.Is(err, sandbox.ErrBadDir) {
				e.T.Errorf("start in %s: %v", dir, err)
			}
			if err == nil {
				Finish(e.T, p)
			}
			if wrote(made) == Allowed {
				v = Allowed
			}
			_ = os.Remove(made)
		}
		return v
	}, nil},
	{"F25", "a file action through a folder that is exchanged with a link to outside", "DD-", swappedWhileWritten, nil},
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
		v := wrote(filepath.Join(e.Outside, "s12"))
		_ = os.Remove(filepath.Join(e.Outside, "s12"))
		if strings.Contains(o.Stdout, "rc=0") || strings.Contains(o.Stdout, "/s12") || v == Allowed {
			return Allowed
		}
		return Denied
	}, nil},
	{"O01", "bytes of output are kept", "AAA", func(e *Env) Verdict {
		o := e.Sh(`printf 'a\377\000\300\033]52;x\007'; head -c 10000000 /dev/zero`)
		if strings.HasPrefix(o.Stdout, "a\xff\x00\xc0\x1b]52;x\x07") && len(o.Stdout) == 10000000+11 {
			return Allowed
		}
		return Denied
	}, nil},
	{"O02", "write into the output of a later command", "DDD", func(e *Env) Verdict {
		for _, tty := range []bool{false, true} {
			first, second := shell("(setsid sh -c 'sleep 0.2; echo LATE; echo LATE >&2' &); echo first"), shell("sleep 0.3; echo second")
			first.TTY, second.TTY = tty, tty
			o, next := e.RunIn(e.S, first), e.RunIn(e.S, second)
			// What is written while the first one is being ended is still its own.
			if got := strings.ReplaceAll(next.Stdout+next.Stderr, "\r", ""); got != "second\n" || !strings.HasPrefix(o.Stdout, "first") {
				e.T.Logf("terminal %v: %q, %q", tty, o.Stdout, got)
				return Allowed
			}
		}
		return Denied
	}, nil},
	{"R05", "a reader that is slow gets everything, and holds the writer up meanwhile", "AAA", func(e *Env) Verdict {
		p, err := e.S.Start(context.Background(), sandbox.Cmd{Argv: []string{"bash", "-c", "head -c 8000000 /dev/zero; echo end >&2"}, Env: []string{"PATH=/usr/bin:/bin"}})
		e.must(err)
		told := make(chan struct{})
		go func() {
			_, _ = p.Stderr().Read(make([]byte, 8))
			close(told)
		}()
		select {
		case <-told: // it wrote all of it although nobody read
			e.T.Error("the writer was not held up")
		case <-time.After(100 * time.Millisecond):
		}
		if o := Finish(e.T, p); len(o.Stdout) != 8000000 {
			e.T.Logf("%d bytes", len(o.Stdout))
			return Denied
		}
		return Allowed
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
	swap := shell("cd $WS; while :; do mv -T l06 l06.d && ln -s " + target + " l06; rm -f l06; mv -T l06.d l06; read -rt 0.0$((RANDOM % 8)) <> <(:); done")
	swap.Timeout = time.Minute
	swap.Env = []string{"PATH=/usr/bin:/bin", "WS=" + e.WS}
	p, err := e.S.Start(context.Background(), swap)
	e.must(err)
	made := 0
	for i := range 12 {
		s, err := e.M.Acquire(context.Background(), fmt.Sprintf("l06-%d", i), e.leveled(sandbox.Policy{Workspace: e.WS, WritableRoots: []string{sub}}))
		if err != nil {
			continue // refused because it changed: as good
		}
		made++
		e.RunIn(s, shell("echo x > "+filepath.Join(target, "owned")+"; echo x > "+filepath.Join(target, ".git", "owned")))
		e.must(e.M.Release(context.Background(), fmt.Sprintf("l06-%d", i)))
	}
	_ = p.Kill()
	Finish(e.T, p)
	if e.Level == sandbox.ReadOnly && made == 0 {
		e.T.Error("no sandbox could be made")
	}
	e.T.Logf("%d of 12 sandboxes could be made", made)
	if wrote(filepath.Join(target, "owned")) == Allowed {
		return Allowed
	}
	return wrote(filepath.Join(target, ".git", "owned"))
}

// swappedWhileWritten has a command exchange a folder with a link to outside all the time, while the file actions write
// and read below it.
func swappedWhileWritten(e *Env) Verdict {
	dir, link := filepath.Join(e.WS, "f25"), filepath.Join(e.WS, "f25-link")
	e.must(os.Mkdir(dir, 0o755))
	e.must(os.Symlink(e.Outside, link))
	secret := filepath.Join(e.Outside, "old")
	e.must(os.WriteFile(secret, []byte("as it was"), 0o644))
	defer func() {
		for _, p := range []string{dir, link, secret} {
			_ = os.RemoveAll(p)
		}
	}()
	tool := e.Tool
	p, err := e.S.Start(context.Background(), sandbox.Cmd{Argv: []string{tool, "swap", dir, link}, Env: []string{AttackEnv + "=1"}, Timeout: time.Minute})
	e.must(err)
	landed := 0
	for i := range 150 {
		name := filepath.Join(dir, fmt.Sprint("new", i))
		if e.S.FS().WriteFile(context.Background(), name, []byte("x"), sandbox.WriteOptions{}) == nil {
			landed++
		}
		_ = e.S.FS().WriteFile(context.Background(), filepath.Join(dir, "old"), []byte("x"), sandbox.WriteOptions{})
		_ = e.S.FS().Remove(context.Background(), filepath.Join(dir, "old"), false)
	}
	_ = p.Kill()
	Finish(e.T, p)
	e.T.Logf("%d of 150 writes landed", landed)
	left, err := filepath.Glob(filepath.Join(e.Outside, "new*"))
	e.must(err)
	for _, f := range left {
		_ = os.Remove(f)
	}
	if b, err := os.ReadFile(secret); len(left) > 0 || err != nil || string(b) != "as it was" {
		return Allowed
	}
	return Denied
}
