package sandbox_test

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
	"github.com/heddle-dev/heddle/sandbox/sandboxtest"
)

func manager(t testing.TB) *sandbox.Manager {
	t.Helper()
	m, err := sandbox.NewManager(t.Context(), sandbox.Config{StateDir: filepath.Join(t.TempDir(), "state"), GuestPath: sandboxtest.Helper(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error("close manager:", err)
		}
	})
	return m
}

func acquire(t testing.TB, m *sandbox.Manager, p sandbox.Policy) *sandbox.Sandbox {
	t.Helper()
	s, err := m.Acquire(t.Context(), t.Name(), p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type output struct {
	sandbox.Result
	out, err string
}

// run starts a command, reads both streams to their end and waits.
func run(t testing.TB, s *sandbox.Sandbox, c sandbox.Cmd) output {
	t.Helper()
	if c.Env == nil {
		c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/", "LC_ALL=C"}
	}
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	p, err := s.Start(t.Context(), c)
	if err != nil {
		t.Fatalf("start %q: %v", c.Argv, err)
	}
	var o, e bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(&o, p.Stdout()) })
	if p.Stderr() != nil {
		wg.Go(func() { io.Copy(&e, p.Stderr()) })
	}
	r, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	p.Stdout().Close()
	if p.Stderr() != nil {
		p.Stderr().Close()
	}
	return output{Result: r, out: o.String(), err: e.String()}
}

func sh(script string) sandbox.Cmd { return sandbox.Cmd{Argv: []string{"bash", "-c", script}} }

func levels(t *testing.T, f func(t *testing.T, s *sandbox.Sandbox, ws string)) {
	for _, l := range []sandbox.Level{sandbox.ReadOnly, sandbox.WorkspaceWrite, sandbox.FullAccess} {
		t.Run(l.String(), func(t *testing.T) {
			ws := t.TempDir()
			f(t, acquire(t, manager(t), sandbox.Policy{Level: l, Workspace: ws}), ws)
		})
	}
}

func TestTrue(t *testing.T) {
	levels(t, func(t *testing.T, s *sandbox.Sandbox, ws string) {
		if o := run(t, s, sandbox.Cmd{Argv: []string{"true"}}); o.ExitCode != 0 || o.out != "" || o.err != "" {
			t.Errorf("true: %+v", o)
		}
		if o := run(t, s, sh("echo out; echo err >&2; exit 7")); o.ExitCode != 7 || o.out != "out\n" || o.err != "err\n" {
			t.Errorf("streams: %+v", o)
		}
		if o := run(t, s, sh("pwd")); o.out != ws+"\n" {
			t.Errorf("pwd: %+v", o)
		}
	})
}

func TestWorkspaceWrite(t *testing.T) {
	levels(t, func(t *testing.T, s *sandbox.Sandbox, ws string) {
		run(t, s, sh("echo x > ok"))
		_, err := os.Stat(filepath.Join(ws, "ok"))
		if want := s.Policy().Level != sandbox.ReadOnly; want != (err == nil) {
			t.Errorf("file in workspace: %v", err)
		}
	})
}
