package sandboxtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox"
)

// trustRows are further ways to leave something behind, or to hide it from the look after a command.
var trustRows = []Row{
	{"S09", ".git is a link to a directory beside the workspace: commands work, its target stays", "DDA", func(e *Env) Verdict {
		ws := e.WS + "-s09"
		meta := ws + ".meta.git"
		e.must(os.MkdirAll(filepath.Join(meta, "hooks"), 0o755))
		e.must(os.MkdirAll(ws, 0o755))
		e.must(os.Symlink("../"+filepath.Base(meta), filepath.Join(ws, ".git")))
		defer os.RemoveAll(ws)
		defer os.RemoveAll(meta)
		o := e.RunIn(e.Acquire(policyFor(ws)), shell("cd "+ws+"; echo x > .git/hooks/h; echo x > "+meta+"/hooks/h2; echo works"))
		if o.Stdout != "works\n" {
			e.T.Errorf("%+v", o)
		}
		v := wrote(filepath.Join(meta, "hooks", "h"))
		if w := wrote(filepath.Join(meta, "hooks", "h2")); w != v {
			e.T.Errorf("by the link %c, by name %c", v, w)
		}
		return v
	}, nil},
	{"T10", "leave a program that gives its owner's rights to whoever runs it", "DDA", func(e *Env) Verdict {
		path := filepath.Join(e.WS, "t10")
		defer os.Remove(path)
		e.Sh("cd $WS; cp /bin/true t10; chmod u+s t10; chmod 4755 t10; python3 -c 'import os; os.chmod(\"t10\", 0o4755)' 2>/dev/null; install -m 4755 /bin/true t10; true")
		if fi, err := os.Stat(path); err == nil && fi.Mode()&fs.ModeSetuid != 0 {
			return Allowed
		}
		return Denied
	}, nil},
	{"T10b", "the same by every call that can set a mode", "DDA", func(e *Env) Verdict {
		path := filepath.Join(e.WS, "t10b")
		v := Denied
		for _, how := range []string{"chmod", "fchmod", "fchmodat", "fchmodat2", "open"} {
			_ = os.Remove(path)
			e.Attack("setuid-file", how, path)
			if fi, err := os.Stat(path); err == nil && fi.Mode()&fs.ModeSetuid != 0 && fi.Size() > 0 {
				v = Allowed
			}
		}
		_ = os.Remove(path)
		return v
	}, nil},
	{"T11", "exchange a protected name with another", "DDA", func(e *Env) Verdict {
		defer restoreGit(e)
		e.Sh("mkdir -p $WS/evil/hooks; echo x > $WS/evil/hooks/t11")
		e.must(os.MkdirAll(filepath.Join(e.WS, "evil", "hooks"), 0o755))
		e.must(os.WriteFile(filepath.Join(e.WS, "evil", "hooks", "t11"), nil, 0o644))
		defer os.RemoveAll(filepath.Join(e.WS, "evil"))
		e.Attack("exchange", filepath.Join(e.WS, ".git"), filepath.Join(e.WS, "evil"))
		return wrote(filepath.Join(e.WS, ".git", "hooks", "t11"))
	}, nil},
	{"T12", "open a protected file for writing through its descriptor", "DDA", func(e *Env) Verdict {
		e.Sh("exec 7<$WS/.git/config; echo x >> /proc/self/fd/7; echo x >> /dev/fd/7")
		return changed(filepath.Join(e.WS, ".git/config"), "[core]\n")
	}, nil},
	{"T12b", "link a protected file under another name and write through that", "DDA", func(e *Env) Verdict {
		defer os.Remove(filepath.Join(e.WS, "t12b"))
		e.Sh("cd $WS; ln .git/config t12b; echo x >> t12b; rm -f t12b; ln -s .git/config t12b; echo x >> t12b")
		return changed(filepath.Join(e.WS, ".git/config"), "[core]\n")
	}, nil},
	{"T18", "write to a terminal of the user, or read what is typed there", "DDA", userTerminal, nil},
	{"T13", "make a missing protected name a link, a pipe, a socket or a file", "DDA", func(e *Env) Verdict {
		v := Denied
		for _, make := range []string{"ln -s /etc .agents", "mkfifo .agents", "echo x > .agents", "mkdir -m 000 .agents", "mkdir a; mv a .agents", e.Tool + " bind-unix .agents"} {
			p := filepath.Join(e.WS, ".agents")
			o := e.Sh("cd $WS; " + make)
			if wrote(p) == Allowed {
				v = Allowed
			} else if e.Level == sandbox.WorkspaceWrite && len(o.Violations) != 1 {
				e.T.Errorf("%s: %+v", make, o)
			}
			_ = os.RemoveAll(p)
			_ = os.RemoveAll(filepath.Join(e.WS, "a"))
		}
		return v
	}, nil},
	{"T14", "protected names of a root within a root", "DDA", func(e *Env) Verdict {
		sub := filepath.Join(e.WS, "t14")
		e.must(os.MkdirAll(filepath.Join(sub, ".git", "hooks"), 0o755))
		defer os.RemoveAll(sub)
		defer os.RemoveAll(sub + "b")
		s := e.Acquire(sandbox.Policy{WritableRoots: []string{sub}})
		e.RunIn(s, shell("cd "+sub+"; echo x > .git/hooks/h; cd ..; mv t14 t14b; mkdir -p t14/.git/hooks; echo x > t14/.git/hooks/h"))
		return wrote(filepath.Join(sub, ".git", "hooks", "h"))
	}, nil},
	{"T15", "hide what was planted by taking the right to look, and give it back later", "DDA", func(e *Env) Verdict {
		v := Denied
		for _, dir := range []string{"vendor", "vendor/n", "vendor/n/.git", "vendor/n/.git/hooks"} {
			ws, w := e.repositories()
			s := e.Acquire(sandbox.Policy{Workspace: ws})
			run := func(script string) Output {
				c := shell("cd " + ws + "; " + script)
				c.Env = gitEnv(e)
				return e.RunIn(s, c)
			}
			run("git init -q vendor/n; " + hook("vendor/n/.git/hooks/pre-commit") + "; chmod 000 " + dir)
			run("true")
			run("chmod 755 " + dir)
			if _, err := os.Stat(filepath.Join(ws, "vendor/n/.git/hooks/pre-commit")); e.Level != sandbox.FullAccess && err == nil {
				e.T.Logf("%s: the hook is there", dir)
			}
			if e.useGit(ws, w) {
				v = Allowed
			}
		}
		return v
	}, noGit},
	{"T16", "drown what is told in a thousand findings", "DDA", func(e *Env) Verdict {
		ws, w := e.repositories()
		s := e.Acquire(sandbox.Policy{Workspace: ws})
		c := shell("cd " + ws + "; for i in $(seq 30); do mkdir -p many/$i/.git/hooks many/$i/.git/objects many/$i/.git/refs; echo ref: refs/heads/main > many/$i/.git/HEAD; for h in a b c d e; do printf '#!/bin/sh\\n%s\\n' \"$RUN\" > many/$i/.git/hooks/$h; done; done; git init -q vendor/n; " + hook("vendor/n/.git/hooks/pre-commit"))
		c.Env = gitEnv(e)
		o := e.RunIn(s, c)
		if e.Level == sandbox.WorkspaceWrite && (len(o.Violations) != 101 || !strings.Contains(o.Violations[100].What, "more were found")) {
			e.T.Errorf("%d told", len(o.Violations))
		}
		left, _ := filepath.Glob(filepath.Join(ws, "many/*/.git/hooks/*"))
		if len(left) > 0 || e.useGit(ws, w) {
			return Allowed
		}
		return Denied
	}, noGit},
	{"T17", "names that could be taken for something else", "DDA", func(e *Env) Verdict {
		ws, w := e.repositories()
		s := e.Acquire(sandbox.Policy{Workspace: ws})
		c := shell("cd " + ws + `; d=$(printf 'vendor/a\nb\033]52;x\377'); git init -q "$d"; ` + hook(`"$d/.git/hooks/pre-commit"`) + `; git init -q vendor/n; mv "$d/.git/hooks" vendor/n/.git/hooks2; rm -rf vendor/n/.git/hooks; mv vendor/n/.git/hooks2 vendor/n/.git/hooks; mv vendor/n "$d/n"; mv "$d" vendor/moved; mv vendor/moved/n vendor/n`)
		c.Env = gitEnv(e)
		o := e.RunIn(s, c)
		v := Denied
		if e.useGit(ws, w) {
			v = Allowed
			e.T.Logf("%+v", o)
		}
		return v
	}, noGit},
}

// userTerminal makes a terminal on the host, with somebody who types, and sees what arrives there.
func userTerminal(e *Env) Verdict {
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	e.must(err)
	defer screen.Close()
	e.must(unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	e.must(err)
	user := fmt.Sprint("/dev/pts/", n)
	hold, err := os.OpenFile(user, os.O_RDWR|unix.O_NOCTTY, 0)
	e.must(err)
	defer hold.Close()
	_, err = screen.WriteString("PRIVATE\n")
	e.must(err)
	o := e.Sh("echo OWNED > " + user + "; timeout 5 head -n 1 < " + user)
	shown := make([]byte, 4096)
	got, _ := screen.Read(shown)
	for strings.Count(string(shown[:got]), "PRIVATE") == 0 { // the echo of what was typed
		more, err := screen.Read(shown[got:])
		e.must(err)
		got += more
	}
	fds := []unix.PollFd{{Fd: int32(screen.Fd()), Events: unix.POLLIN}}
	for more, _ := unix.Poll(fds, 50); more > 0; more, _ = unix.Poll(fds, 50) {
		k, err := screen.Read(shown[got:])
		e.must(err)
		got += k
	}
	written := strings.Contains(string(shown[:got]), "OWNED")
	if written != (private(o) == Allowed) {
		e.T.Errorf("written %v, read %q", written, o.Stdout)
	}
	if written {
		return Allowed
	}
	return private(o)
}
