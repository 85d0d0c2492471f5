package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/heddle-dev/heddle/sandbox"
)

// Verdict is what an attempt achieved, judged from outside by its effect.
type Verdict byte

const (
	Denied  Verdict = 'D'
	Allowed Verdict = 'A'
	Private Verdict = 'P' // allowed, and nothing of it is visible outside
	Skipped Verdict = '-' // not run at this level
)

// Row is one line of the attack table.
type Row struct {
	ID   string
	What string
	// Want holds the verdict at read-only, workspace-write and full access.
	Want string
	Do   func(e *Env) Verdict
	// Gap says why this host cannot hold the row, or is empty. A row with a gap is reported by name.
	Gap func(e *Env) string
}

// Rows returns the table.
func Rows() []Row {
	var all []Row
	for _, part := range [][]Row{fileRows, gitRows, hookRows, mountRows, kernelRows, processRows, limitRows, networkRows, proxyRows, leakRows, reachRows, pinRows, denyRows, trustRows, caseRows} {
		all = append(all, part...)
	}
	return all
}

func wrote(path string) Verdict {
	if _, err := os.Lstat(path); err == nil {
		return Allowed
	}
	return Denied
}

// effect runs a script and judges by whether path exists afterwards, which it must not before.
func effect(script string, path func(e *Env) string) func(e *Env) Verdict {
	return func(e *Env) Verdict {
		p := path(e)
		_ = os.RemoveAll(p)
		e.Sh(script)
		defer os.RemoveAll(p)
		return wrote(p)
	}
}

func inWS(name string) func(e *Env) string {
	return func(e *Env) string { return filepath.Join(e.WS, name) }
}

func outside(name string) func(e *Env) string {
	return func(e *Env) string { return filepath.Join(e.Outside, name) }
}

// try runs an operation of the attack tool and judges by its success.
func try(args ...string) func(e *Env) Verdict {
	return func(e *Env) Verdict { return succeeded(e, e.Attack(e.fill(args)...)) }
}

// refuse runs an operation that would succeed, or fail because of its parameters, if nobody refused it.
func refuse(args ...string) func(e *Env) Verdict {
	return func(e *Env) Verdict { return refused(e, e.Attack(e.fill(args)...)) }
}

func refused(e *Env, o Output) Verdict {
	if succeeded(e, o) == Denied && o.ExitCode == 1 {
		return Denied
	}
	e.T.Logf("not refused: %s", o.Stdout)
	return Allowed
}

func (e *Env) fill(args []string) []string {
	list := make([]string, len(args))
	for i, a := range args {
		list[i] = strings.NewReplacer("$WS", e.WS, "$OUTSIDE", e.Outside).Replace(a)
	}
	return list
}

func succeeded(e *Env, o Output) Verdict {
	if o.ExitCode == 0 {
		return Allowed
	}
	if o.ExitCode != 1 && o.ExitCode != 2 {
		e.T.Errorf("attack tool ended with %d: %s%s", o.ExitCode, o.Stdout, o.Stderr)
	}
	return Denied
}

var fileRows = []Row{
	{"F01", "write in the workspace", "DAA", effect("echo x > $WS/ok", inWS("ok")), nil},
	{"F02", "write elsewhere", "DDA", effect("echo x > $OUTSIDE/e", outside("e")), nil},
	{"F03", "append to ~/.bashrc", "DDA", func(e *Env) Verdict {
		e.Sh("echo owned >> $HOME/.bashrc")
		return changed(filepath.Join(e.Home, ".bashrc"), "")
	}, nil},
	{"F04", "write through a link that leads out", "DDA", effect("ln -sfn $OUTSIDE $WS/l; echo x > $WS/l/f04", outside("f04")), nil},
	{"F05", "hard link to a file outside", "DDA", effect("ln $HOME/.bashrc $WS/hl", inWS("hl")), nil},
	{"F06", "write a git hook", "DDA", effect("echo x > $WS/.git/hooks/pre-commit", inWS(".git/hooks/pre-commit")), nil},
	{"F07", "change git's config", "DDA", func(e *Env) Verdict {
		e.Sh("echo x >> $WS/.git/config")
		return changed(filepath.Join(e.WS, ".git/config"), "[core]\n")
	}, nil},
	{"F08", "move .git away and make a new one", "DDA", effect("mv $WS/.git $WS/.git2 && mkdir $WS/.git; true", inWS(".git2")), nil},
	{"F09", "remove .git", "DDA", func(e *Env) Verdict {
		defer restoreGit(e)
		e.Sh("rm -rf $WS/.git; rmdir $WS/.git")
		if wrote(filepath.Join(e.WS, ".git", "config")) == Denied {
			return Allowed
		}
		return Denied
	}, nil},
	{"F10", "rename the workspace", "DDA", func(e *Env) Verdict {
		e.Sh("cd /; mv $WS $WS-moved")
		if os.Rename(e.WS+"-moved", e.WS) == nil {
			return Allowed
		}
		return Denied
	}, nil},
	{"F12", "create a missing protected name", "DDA", func(e *Env) Verdict {
		p := filepath.Join(e.WS, ".codex")
		defer os.RemoveAll(p)
		o := e.Sh("mkdir -p $WS/.codex && echo x > $WS/.codex/config.toml")
		v := wrote(p)
		if e.Level.String() == "workspace-write" && (len(o.Violations) != 1 || o.Violations[0].Quarantine == "") {
			e.T.Errorf("violations = %+v, want one with a quarantine", o.Violations)
		}
		return v
	}, nil},
	{"F13", "write another thread's workspace", "DDA", func(e *Env) Verdict { return e.neighbour("echo x > $OTHER/f", nil) }, nil},
	{"F14", "read another thread's workspace", "AAA", func(e *Env) Verdict { return e.neighbour("cat $OTHER/secret", nil) }, nil},
	{"F14b", "the same when the policy denies it", "DDA", func(e *Env) Verdict {
		return e.neighbour("cat $OTHER/secret; ls $OTHER; cat /proc/*/cwd/secret", []string{e.WS + "-other"})
	}, nil},
	{"F15", "read a denied secret", "DDA", func(e *Env) Verdict {
		if o := e.Sh("cat $HOME/.ssh/id_rsa; ls $HOME/.ssh"); strings.Contains(o.Stdout, "PRIVATE") || strings.Contains(o.Stdout, "id_rsa") {
			return Allowed
		}
		return Denied
	}, nil},
	{"F16", "write /tmp", "PPA", privateWrite("/tmp/heddle-f16"), nil},
	{"F16b", "write /tmp where it is the host's", "DAA", func(e *Env) Verdict {
		path := filepath.Join(os.TempDir(), fmt.Sprintf("heddle-f16b-%d", os.Getpid()))
		defer os.Remove(path)
		e.RunIn(e.Acquire(sandbox.Policy{Tmp: sandbox.TmpHost}), shell("echo x > "+path))
		return wrote(path)
	}, nil},
	{"F17", "write /dev/shm", "PPA", privateWrite("/dev/shm/heddle-f17"), nil},
	{"F17b", "fill /dev/shm beyond its cap", "DD-", try("fill", "/dev/shm/f17b", "100000000"), nil},
	{"F18", "reach .git by another name", "DDA", effect("mkdir -p $WS/sub; echo x > $WS/sub/../.git/f18", inWS(".git/f18")), nil},
	{"F19", "change the mode of .git", "DDA", func(e *Env) Verdict {
		e.Sh("chmod 700 $WS/.git")
		fi, err := os.Stat(filepath.Join(e.WS, ".git"))
		e.must(err)
		_ = os.Chmod(filepath.Join(e.WS, ".git"), 0o755)
		if fi.Mode().Perm() == 0o700 {
			return Allowed
		}
		return Denied
	}, nil},
	{"F20", "change owner, mode, times, length and attributes of a host's file", "DDA", changeOutside, nil},
	{"F21", "a .git file: overwrite it, move it, write the directory it names", "DDA", gitFileRow, nil},
	{"F22", "a .git link: replace it, write its target", "DDA", gitLinkRow, nil},
	{"F23", "write a hook after the host made .git anew", "DDA", func(e *Env) Verdict {
		defer restoreGit(e)
		e.Sh("true")
		e.must(os.RemoveAll(filepath.Join(e.WS, ".git")))
		e.must(os.MkdirAll(filepath.Join(e.WS, ".git/hooks"), 0o755))
		e.Sh("echo x > $WS/.git/hooks/f23")
		return wrote(filepath.Join(e.WS, ".git/hooks/f23"))
	}, nil},
	{"F23b", "write after the host made the workspace anew", "DAA", func(e *Env) Verdict {
		e.Sh("true")
		e.must(os.Rename(e.WS, e.WS+"-old"))
		e.must(os.Mkdir(e.WS, 0o755))
		e.Sh("cd $WS && echo x > f23b")
		v := wrote(filepath.Join(e.WS, "f23b"))
		e.must(os.RemoveAll(e.WS))
		e.must(os.Rename(e.WS+"-old", e.WS))
		return v
	}, nil},
}

func changed(path, was string) Verdict {
	b, err := os.ReadFile(path)
	_ = os.WriteFile(path, []byte(was), 0o644)
	if err != nil || string(b) != was {
		return Allowed
	}
	return Denied
}

func restoreGit(e *Env) {
	git := filepath.Join(e.WS, ".git")
	_ = os.RemoveAll(git)
	e.must(os.MkdirAll(filepath.Join(git, "hooks"), 0o755))
	e.must(os.WriteFile(filepath.Join(git, "config"), []byte("[core]\n"), 0o644))
}

func privateWrite(path string) func(e *Env) Verdict {
	return func(e *Env) Verdict {
		_ = os.Remove(path)
		defer os.Remove(path)
		o := e.Sh("echo x > " + path + " && cat " + path)
		switch {
		case o.Stdout != "x\n":
			return Denied
		case wrote(path) == Allowed:
			return Allowed
		}
		return Private
	}
}

// gitFileRow uses a workspace whose .git is a file that names a directory inside the workspace.
func gitFileRow(e *Env) Verdict {
	ws := e.WS + "-f21"
	e.must(os.MkdirAll(filepath.Join(ws, "meta", "hooks"), 0o755))
	e.must(os.WriteFile(filepath.Join(ws, ".git"), []byte("gitdir: meta\n"), 0o644))
	defer os.RemoveAll(ws)
	s := e.Acquire(policyFor(ws))
	o := e.RunIn(s, shell("cd "+ws+"; echo x > .git; mv .git .g2; rm -f .git; echo x > meta/hooks/h; ls -a; true"))
	b, err := os.ReadFile(filepath.Join(ws, ".git"))
	intact := err == nil && string(b) == "gitdir: meta\n"
	switch hook := wrote(filepath.Join(ws, "meta/hooks/h")); {
	case intact && hook == Denied:
		return Denied
	case !intact && hook == Allowed:
		return Allowed
	default:
		e.T.Errorf("partly: .git intact %v, hook %c: %s", intact, hook, o.Stderr)
		return Allowed
	}
}

// gitLinkRow uses a workspace whose .git is a link to a directory inside the workspace.
func gitLinkRow(e *Env) Verdict {
	ws := e.WS + "-f22"
	e.must(os.MkdirAll(filepath.Join(ws, "meta.git", "hooks"), 0o755))
	e.must(os.Symlink("meta.git", filepath.Join(ws, ".git")))
	defer os.RemoveAll(ws)
	s := e.Acquire(policyFor(ws))
	o := e.RunIn(s, shell("cd "+ws+"; echo x > .git/hooks/h; rm -f .git; mkdir -p .git/hooks; echo x > .git/hooks/h2; true"))
	link, _ := os.Readlink(filepath.Join(ws, ".git"))
	intact := link == "meta.git"
	switch hook := wrote(filepath.Join(ws, "meta.git/hooks/h")); {
	case intact && hook == Denied:
		return Denied
	case !intact && hook == Allowed:
		return Allowed
	default:
		e.T.Errorf("partly: link intact %v, hook %c: %s", intact, hook, o.Stderr)
		return Allowed
	}
}

var mountRows = []Row{
	{"M01", "mount a tmpfs", "DD-", refuse("mount", "$WS"), nil},
	{"M02", "remount / writable", "DD-", refuse("remount-rw", "/"), nil},
	{"M02b", "remount /usr writable", "DD-", refuse("remount-rw", "/usr"), nil},
	{"M03", "remount .git writable", "DD-", refuse("remount-rw", "$WS/.git"), nil},
	{"M04", "unmount .git", "DD-", refuse("umount", "$WS/.git"), nil},
	{"M05", "fsopen", "DD-", refuse("fsopen"), nil},
	{"M06", "open_tree", "DD-", refuse("open_tree", "/"), nil},
	{"M07", "chroot", "DD-", refuse("chroot", "$WS"), nil},
	{"M07b", "pivot_root", "DD-", refuse("pivot_root", "$WS"), nil},
	{"M08", "unshare a user namespace by program", "DD-", func(e *Env) Verdict {
		if e.Sh("unshare -Ur true").ExitCode == 0 {
			return Allowed
		}
		return Denied
	}, nil},
	{"M09", "clone3 a user namespace", "DD-", refuse("clone3-user"), nil},
	{"M10", "unshare a mount namespace", "DD-", refuse("unshare-ns"), nil},
	{"M11", "enter the namespaces of PID 1", "DD-", refuse("setns-1"), nil},
	{"M11b", "enter a namespace", "DD-", refuse("setns-self"), nil},
	{"M12", "open by handle", "DD-", refuse("handle", "/etc/passwd"), nil},
}

var kernelRows = []Row{
	{"K01", "open /proc/sys/vm/swappiness for writing", "DD-", refuse("open-rw", "/proc/sys/vm/swappiness"), nil},
	{"K02", "open sysrq-trigger", "DD-", try("open-rw", "/proc/sysrq-trigger"), nil},
	{"K03", "open core_pattern for writing", "DD-", refuse("open-rw", "/proc/sys/kernel/core_pattern"), nil},
	{"K04", "write in /sys", "DD-", refuse("open-rw", "/sys/kernel/mm/transparent_hugepage/enabled"), nil},
	{"K05", "move itself to another cgroup", "DD-", func(e *Env) Verdict {
		o := e.Sh("for f in $(find /sys/fs/cgroup -maxdepth 3 -name cgroup.procs 2>/dev/null); do echo $$ > $f && echo moved; done")
		if strings.Contains(o.Stdout, "moved") {
			return Allowed
		}
		return Denied
	}, nil},
	{"K06", "make a device node", "DD-", refuse("mknod", "/tmp/disk"), nil},
	{"K07", "open a disk", "DD-", try("open-r", "/dev/vda"), nil},
	{"K08", "open kmsg", "DD-", try("open-r", "/dev/kmsg"), nil},
	{"K09", "io_uring", "DD-", refuse("io_uring"), nil},
	{"K10", "bpf", "DD-", refuse("bpf"), nil},
	{"K11", "perf_event_open", "DD-", refuse("perf"), nil},
	{"K12", "userfaultfd", "DD-", refuse("userfaultfd"), nil},
	{"K13", "keyctl", "DD-", refuse("keyctl"), nil},
	{"K14", "add_key", "DD-", refuse("add_key"), nil},
	{"K15", "read the kernel log", "DD-", refuse("syslog"), nil},
	{"K16", "set the clock", "DD-", refuse("clock_settime"), nil},
	{"K17", "load a module", "DD-", refuse("init_module"), nil},
	{"K17b", "real-time priority", "DD-", refuse("sched-fifo"), nil},
	{"K17c", "set the host name", "DD-", refuse("sethostname"), nil},
	{"K18", "a setuid program gains its owner's id", "DDA", setuidProgram, nil},
	{"K18b", "become uid 0 or gain a capability", "DD-", func(e *Env) Verdict {
		o := e.Sh("grep -E '^(Cap(Eff|Bnd|Prm|Amb)|NoNewPrivs)' /proc/self/status")
		none := strings.Count(o.Stdout, "\t0000000000000000\n")
		if e.Landlock && os.Geteuid() != 0 && none == 3 && strings.Contains(o.Stdout, "NoNewPrivs:\t1\n") {
			none++ // who has no capability cannot empty the set that bounds them, and no program can give one
		}
		if none != 4 {
			e.T.Logf("capabilities: %s", o.Stdout)
			return Allowed
		}
		return Denied
	}, nil},
	{"K19", "push input into a terminal", "DD-", inTerminal("tiocsti"), nil},
	{"K19b", "the same with high bits set", "DD-", inTerminal("tiocsti-high"), nil},
	{"K19c", "use the selection of a console", "DD-", inTerminal("tioclinux"), nil},
	{"K20", "system calls of the x32 ABI", "DD-", refuse("x32"), nil},
	{"K20b", "system calls of the 32-bit ABI", "DD-", try("int80"), nil},
	{"K21", "runs in the initial user namespace", "DD-", func(e *Env) Verdict {
		host, err := os.Readlink("/proc/self/ns/user")
		e.must(err)
		if strings.TrimSpace(e.Sh("readlink /proc/self/ns/user").Stdout) == host {
			return Allowed
		}
		return Denied
	}, nil},
	{"K22", "shown ids are the caller's", "AAA", func(e *Env) Verdict {
		if o := e.Sh("id -u; id -g"); o.Stdout == fmt.Sprintf("%d\n%d\n", os.Getuid(), os.Getgid()) {
			return Allowed
		}
		return Denied
	}, nil},
}
