package sandboxtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox"
)

// pinRows are about folders that another sandbox, or the user, leads elsewhere after they were given to one.
var pinRows = []Row{
	{"L07", "lead another thread's workspace elsewhere by a link above it", "DDD", func(e *Env) Verdict { return redirected(e, false) }, nil},
	{"L07b", "the same, and its sandbox is made anew", "DDD", func(e *Env) Verdict { return redirected(e, true) }, nil},
	{"L07c", "lead a writable root elsewhere", "-DD", redirectedRoot, nil},
	{"L07d", "lead it elsewhere and back all the time", "DDD", redirectRace, nil},
	{"L07e", "a workspace that the user made anew in the same place", "DAA", func(e *Env) Verdict {
		ws := filepath.Join(filepath.Dir(e.WS), "l07e")
		e.must(os.Mkdir(ws, 0o755))
		defer os.RemoveAll(ws)
		s := e.Acquire(pinnedTo(e, ws))
		e.must(os.Rename(ws, ws+"-old"))
		defer os.RemoveAll(ws + "-old")
		e.must(os.Mkdir(ws, 0o755))
		e.RunIn(s, shell("cd "+ws+" && echo x > f"))
		return wrote(filepath.Join(ws, "f"))
	}, nil},
}

// pinnedTo is a policy for a workspace as it is now.
func pinnedTo(e *Env, ws string, roots ...string) sandbox.Policy {
	p := e.leveled(sandbox.Policy{Workspace: ws, WritableRoots: roots})
	for _, path := range append([]string{ws}, roots...) {
		at, err := sandbox.Locate(path)
		e.must(err)
		p.Pins = append(p.Pins, sandbox.Pin{Path: path, Real: at.Real})
	}
	return p
}

// stage makes base/w/a/b, the workspace of a victim in the workspace w of an attacker, and base/out/b.
func (e *Env) stage() (w, victim, out string) {
	base, err := os.MkdirTemp(filepath.Dir(e.WS), "pin-")
	e.must(err)
	e.T.Cleanup(func() { os.RemoveAll(base) })
	e.must(os.Chmod(base, 0o755))
	w, out = filepath.Join(base, "w"), filepath.Join(base, "out")
	victim = filepath.Join(w, "a", "b")
	e.must(os.MkdirAll(victim, 0o755))
	e.must(os.MkdirAll(filepath.Join(out, "b"), 0o755))
	return w, victim, filepath.Join(out, "b", "f")
}

// redirected leads a victim's workspace elsewhere, as another sandbox can that may write above it, and runs a command
// of the victim that would write.
func redirected(e *Env, again bool) Verdict {
	w, victim, out := e.stage()
	p := pinnedTo(e, victim)
	s := e.Acquire(p)
	e.RunIn(s, shell("true"))
	e.RunIn(e.Acquire(sandbox.Policy{Workspace: w}), shell("cd "+w+" && mv a a0 && ln -s ../out a"))
	if e.Level == sandbox.ReadOnly { // somebody else did
		e.must(os.Rename(filepath.Join(w, "a"), filepath.Join(w, "a0")))
		e.must(os.Symlink("../out", filepath.Join(w, "a")))
	}
	var err error
	if again {
		s, err = e.M.Acquire(context.Background(), "l07-again", p)
	}
	if err == nil {
		_, err = s.Start(context.Background(), sandbox.Cmd{Argv: []string{"touch", victim + "/f"}, Dir: victim, Env: []string{"PATH=/usr/bin:/bin"}})
	}
	moved, ok := errors.AsType[*sandbox.MovedError](err)
	if !ok || moved.Path != victim || moved.Was != victim || moved.Now != filepath.Dir(out) || !strings.Contains(moved.Fix(), moved.Now) {
		e.T.Errorf("start: %v", err)
		return Allowed
	}
	if s != nil {
		err = s.FS().WriteFile(context.Background(), filepath.Join(victim, "f"), nil, sandbox.WriteOptions{})
		if _, ok := errors.AsType[*sandbox.MovedError](err); !ok {
			e.T.Errorf("a file action: %v", err)
		}
	}
	return wrote(out)
}

func redirectedRoot(e *Env) Verdict {
	w, victim, out := e.stage()
	own := filepath.Join(filepath.Dir(w), "own")
	e.must(os.Mkdir(own, 0o755))
	missing := filepath.Join(w, "a", "later")
	p := pinnedTo(e, own, victim, missing)
	s := e.Acquire(p)
	run := func(script string) {
		if proc, err := s.Start(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}); err == nil {
			Finish(e.T, proc)
		} else if _, ok := errors.AsType[*sandbox.MovedError](err); !ok {
			e.T.Error(err)
		}
	}
	e.must(os.Symlink(filepath.Dir(out), missing)) // one that did not exist when it was given
	if e.Level == sandbox.WorkspaceWrite {
		run("touch " + missing + "/f")
	}
	e.must(os.Remove(missing))
	e.must(os.Rename(filepath.Join(w, "a"), filepath.Join(w, "a0")))
	e.must(os.Symlink("../out", filepath.Join(w, "a")))
	if e.Level == sandbox.WorkspaceWrite { // at full access a command names what it writes itself
		run("touch " + victim + "/f")
	}
	return wrote(out)
}

// redirectRace changes what leads to the workspace all the time while commands start in it and write by a relative
// name.
func redirectRace(e *Env) Verdict {
	w, victim, out := e.stage()
	e.must(os.Symlink("../out", filepath.Join(w, "link")))
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			_ = exchange(filepath.Join(w, "a"), filepath.Join(w, "link"))
			_ = exchange(filepath.Join(w, "a"), filepath.Join(w, "link"))
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond) // so that some commands do start
		}
	}()
	started := 0
	policy := e.leveled(sandbox.Policy{Workspace: victim, Pins: []sandbox.Pin{{Path: victim, Real: victim}}})
	for i := 0; i < 60 && wrote(out) == Denied; i++ {
		s, err := e.M.Acquire(context.Background(), "l07d", policy)
		if err != nil {
			continue
		}
		p, err := s.Start(context.Background(), sandbox.Cmd{Argv: []string{"touch", "f"}, Dir: victim, Env: []string{"PATH=/usr/bin:/bin"}})
		if err == nil {
			Finish(e.T, p)
			started++
		}
	}
	stop.Store(true)
	<-done
	e.T.Logf("%d commands started", started)
	return wrote(out)
}

func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
