package sandboxtest

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
)

// Env is what a row works with: a sandbox at one level and the host around it.
type Env struct {
	T       testing.TB
	Level   sandbox.Level
	M       *sandbox.Manager
	S       *sandbox.Sandbox
	Cfg     sandbox.Config
	Report  sandbox.Report
	WS      string // workspace, with a .git directory
	Outside string // a directory of the same user that is no root
	Home    string
	Secret  string // a file that the policy denies to read
	Tool    string // the attack tool, readable inside
	Root    bool
	// Landlock: without namespaces, under Policy.Fallback.
	Landlock bool
}

// Host says what an environment does without, as on a host that lacks it.
type Host struct {
	NoCgroup bool
	Landlock bool // no namespaces, the fallback instead
}

// NewEnv makes an environment below base, a directory that is neither in /tmp nor in /run.
func NewEnv(tb testing.TB, base string, level sandbox.Level, tool string, host Host) *Env {
	tb.Helper()
	e := &Env{T: tb, Level: level, Root: os.Geteuid() == 0, Tool: tool}
	e.WS, e.Outside, e.Home = filepath.Join(base, "ws"), filepath.Join(base, "outside"), filepath.Join(base, "home")
	e.Secret = filepath.Join(e.Home, ".ssh", "id_rsa")
	for _, d := range []string{filepath.Join(e.WS, ".git", "hooks"), e.Outside, filepath.Dir(e.Secret)} {
		e.must(os.MkdirAll(d, 0o755))
	}
	e.must(os.WriteFile(filepath.Join(e.WS, ".git", "config"), []byte("[core]\n"), 0o644))
	e.must(os.WriteFile(e.Secret, []byte("PRIVATE"), 0o600))
	e.must(os.WriteFile(filepath.Join(e.Home, ".bashrc"), nil, 0o644))
	e.Cfg = sandbox.Config{StateDir: filepath.Join(base, "state"), GuestPath: Helper(tb), NoCgroup: host.NoCgroup, NoNamespaces: host.Landlock, Home: e.Home}
	e.Landlock = host.Landlock
	var err error
	e.M, err = sandbox.NewManager(context.Background(), e.Cfg)
	e.must(err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := e.M.Close(ctx); err != nil {
			tb.Errorf("close manager: %v", err)
		}
	})
	e.S = e.Acquire(sandbox.Policy{})
	return e
}

// Acquire returns another sandbox of this level; zero fields of p are filled in.
func (e *Env) Acquire(p sandbox.Policy) *sandbox.Sandbox {
	e.T.Helper()
	p = e.leveled(p)
	if p.Workspace == "" {
		p.Workspace = e.WS
	}
	p.DenyRead = append(p.DenyRead, filepath.Dir(e.Secret))
	s, err := e.M.Acquire(context.Background(), e.T.Name(), p)
	e.must(err)
	return s
}

// leveled is p at the environment's level, with the fallback where it is tested.
func (e *Env) leveled(p sandbox.Policy) sandbox.Policy {
	p.Level = e.Level
	if e.Landlock {
		p.Fallback = sandbox.FallbackLandlock
	}
	return p
}

func (e *Env) must(err error) {
	e.T.Helper()
	if err != nil {
		e.T.Fatal(err)
	}
}

// Output is a result with what the command wrote.
type Output struct {
	sandbox.Result
	Stdout, Stderr string
}

// Sh runs a bash script in the environment's sandbox.
func (e *Env) Sh(script string) Output {
	e.T.Helper()
	return e.RunIn(e.S, sandbox.Cmd{Argv: []string{"bash", "-c", script}})
}

// Attack runs one operation of the attack tool.
func (e *Env) Attack(args ...string) Output {
	e.T.Helper()
	return e.RunIn(e.S, sandbox.Cmd{Argv: append([]string{e.Tool}, args...)})
}

// RunIn runs a command to its end.
func (e *Env) RunIn(s *sandbox.Sandbox, c sandbox.Cmd) Output {
	e.T.Helper()
	if c.Env == nil {
		c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + e.Home, "LC_ALL=C",
			"WS=" + e.WS, "OUTSIDE=" + e.Outside, AttackEnv + "=1"}
	}
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	p, err := s.Start(context.Background(), c)
	e.must(err)
	return Finish(e.T, p)
}

// Finish reads a process's output to the end and waits for it.
func Finish(tb testing.TB, p *sandbox.Proc) Output {
	tb.Helper()
	var o, errs bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(&o, p.Stdout()) })
	if p.Stderr() != nil {
		wg.Go(func() { _, _ = io.Copy(&errs, p.Stderr()) })
	}
	r, err := p.Wait(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	wg.Wait()
	p.Stdout().Close()
	if p.Stderr() != nil {
		p.Stderr().Close()
	}
	return Output{Result: r, Stdout: o.String(), Stderr: errs.String()}
}
