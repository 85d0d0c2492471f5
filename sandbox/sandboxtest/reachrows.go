package sandboxtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox"
)

// SetuidEnv names a program of root's with the set-user-id bit that an ordinary user was given for the row about it.
const SetuidEnv = "HEDDLE_ROWS_SETUID"

// reachRows look at everything that is there, where others try an example.
var reachRows = []Row{
	{"K01b", "open any file of /proc for writing that is not about itself", "DD-", refuse("writable", "/proc"), nil},
	{"K04b", "open any file of /sys for writing", "DD-", refuse("writable", "/sys"), nil},
	{"K07b", "open a device that not every program needs", "DD-", refuse("devices"), nil},
	{"P02b", "look into any other process, trace it, or take its descriptors", "DD-", refuse("others"), nil},
}

// inTerminal runs an operation whose standard input is a terminal of its own.
func inTerminal(op string) func(e *Env) Verdict {
	return func(e *Env) Verdict {
		return refused(e, e.RunIn(e.S, sandbox.Cmd{Argv: []string{e.Tool, op}, TTY: true}))
	}
}

// setuid is a program that belongs to another user and gives his id to whoever runs it.
func (e *Env) setuid() string {
	if !e.Root {
		return os.Getenv(SetuidEnv)
	}
	path := filepath.Join(filepath.Dir(e.WS), "setuid")
	if wrote(path) == Denied {
		b, err := os.ReadFile(e.Tool)
		e.must(err)
		e.must(os.WriteFile(path, b, 0o755))
		e.must(os.Chown(path, 12345, 12345))
		e.must(os.Chmod(path, 0o755|os.ModeSetuid))
	}
	return path
}

// setuidProgram runs such a program; who has none looks whether the kernel would honour the bit.
func setuidProgram(e *Env) Verdict {
	if e.setuid() == "" {
		if e.Sh("grep -q '^NoNewPrivs:.0' /proc/self/status").ExitCode == 0 {
			return Allowed
		}
		return Denied
	}
	o := e.RunIn(e.S, sandbox.Cmd{Argv: []string{e.setuid(), "euid"}})
	if e.Landlock && o.ExitCode == 126 && strings.Contains(o.Stderr, "permission denied") {
		return Denied // it is not even started
	}
	return succeeded(e, o)
}

// neighbour runs a script beside a command of another thread, whose workspace is $OTHER. It is judged by the file f
// in it and by what was read.
func (e *Env) neighbour(script string, deny []string) Verdict {
	other := e.WS + "-other"
	e.must(os.Mkdir(other, 0o755))
	defer os.RemoveAll(other)
	e.must(os.WriteFile(filepath.Join(other, "secret"), []byte("PRIVATE"), 0o644))
	theirs := e.Acquire(policyFor(other))
	p, err := theirs.Start(context.Background(), sandbox.Cmd{Argv: []string{"cat"}, Dir: other, Stdin: sandbox.StdinPipe, Env: []string{"PATH=/usr/bin:/bin"}})
	e.must(err)
	ours := e.Acquire(sandbox.Policy{DenyRead: deny, Limits: sandbox.Limits{FileBytes: 1 << 46}})
	o := e.RunIn(ours, shell("OTHER="+other+"; "+script))
	p.Stdin().Close()
	Finish(e.T, p)
	if wrote(filepath.Join(other, "f")) == Allowed {
		return Allowed
	}
	return private(o)
}

// changeOutside tries each change of a file outside that is no write.
func changeOutside(e *Env) Verdict {
	path := filepath.Join(e.Outside, "f20")
	was := time.Unix(1e9, 0)
	e.must(os.WriteFile(path, []byte("as it was"), 0o644))
	defer os.Remove(path)
	e.must(os.Chtimes(path, was, was))
	if e.Root {
		e.must(os.Chown(path, 12345, 12345))
	}
	made := 0
	for what, script := range map[string]string{
		"mode": "chmod 600 " + path, "times": "touch -d @1100000000 " + path, "length": "truncate -s 0 " + path,
		"attribute": e.Tool + " setxattr " + path, "owner": e.Tool + " chown " + path,
	} {
		e.Sh(script)
		fi, err := os.Stat(path)
		e.must(err)
		var st unix.Stat_t
		e.must(unix.Stat(path, &st))
		_, attrErr := unix.Getxattr(path, "user.x", make([]byte, 8))
		if fi.Mode().Perm() == 0o644 && fi.ModTime().Equal(was) && fi.Size() == 9 && attrErr != nil && (!e.Root || st.Uid == 12345) {
			continue
		}
		made++
		if e.Level.Contained() {
			e.T.Logf("%s was changed", what)
		}
		e.must(os.WriteFile(path, []byte("as it was"), 0o644))
		e.must(os.Chmod(path, 0o644))
		e.must(os.Chtimes(path, was, was))
		_ = unix.Removexattr(path, "user.x")
	}
	if made == 0 {
		return Denied
	}
	if want := strings.Count("mtla", "") - 1; made < want { // the owner is an ordinary user's already
		e.T.Errorf("%d of at least %d changes were made", made, want)
	}
	return Allowed
}
