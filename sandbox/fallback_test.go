package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/sandboxtest"
)

// bareManager makes a manager as on a host without namespaces.
func bareManager(t *testing.T) *sandbox.Manager {
	t.Helper()
	m, err := sandbox.NewManager(t.Context(), sandbox.Config{StateDir: filepath.Join(t.TempDir(), "state"), GuestPath: sandboxtest.Helper(t), NoNamespaces: true})
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

// TestNoFallbackUnlessAsked: without the setting a contained level fails, and with it so does every policy that
// Landlock cannot enforce; each says why.
func TestNoFallbackUnlessAsked(t *testing.T) {
	m := bareManager(t)
	ws := t.TempDir()
	for name, c := range map[string]struct {
		p    sandbox.Policy
		want string
	}{
		"not asked":       {sandbox.Policy{}, "namespaces are turned off"},
		"full network":    {sandbox.Policy{Fallback: sandbox.FallbackLandlock, Net: sandbox.NetFull}, "network"},
		"proxied network": {sandbox.Policy{Fallback: sandbox.FallbackLandlock, Net: sandbox.NetProxied}, "network"},
		"git may commit":  {sandbox.Policy{Fallback: sandbox.FallbackLandlock, Git: sandbox.GitCommit}, ".git"},
		"denied path in a writable one": {sandbox.Policy{Fallback: sandbox.FallbackLandlock, DenyRead: []string{ws}},
			"takes nothing out"},
	} {
		t.Run(name, func(t *testing.T) {
			c.p.Level, c.p.Workspace = sandbox.WorkspaceWrite, ws
			_, err := m.Acquire(t.Context(), t.Name(), c.p)
			var un *sandbox.UnenforceableError
			if !errors.As(err, &un) || !strings.Contains(un.Cause, c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
		})
	}
}

// TestFallbackIsReported: a probe names the backend's gaps where namespaces are missing, and only there.
func TestFallbackIsReported(t *testing.T) {
	cfg := sandbox.Config{StateDir: filepath.Join(t.TempDir(), "state"), GuestPath: sandboxtest.Helper(t), NoNamespaces: true}
	r := sandbox.Probe(t.Context(), cfg)
	if r.Supports(sandbox.WorkspaceWrite) || r.Fallback == nil {
		t.Fatalf("report %+v", r)
	}
	if r.Landlock < 3 {
		if r.Fallback.Cause == "" {
			t.Error("no cause")
		}
		return
	}
	if !r.Fallback.Levels["workspace-write"] || !r.Fallback.Levels["read-only"] || len(r.Fallback.Gaps) < 8 {
		t.Errorf("fallback %+v", r.Fallback)
	}
	cfg.NoNamespaces = false
	if r := sandbox.Probe(t.Context(), cfg); r.Supports(sandbox.WorkspaceWrite) && r.Fallback != nil {
		t.Errorf("fallback %+v although nothing needs it", r.Fallback)
	}
}

// TestFallbackTerminalAndTmp: a terminal works, TMPDIR is writable, and nothing stays behind.
func TestFallbackTerminalAndTmp(t *testing.T) {
	m := bareManager(t)
	s := acquire(t, m, sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: t.TempDir(), Fallback: sandbox.FallbackLandlock})
	o := run(t, s, sandbox.Cmd{TTY: true, Argv: []string{"sh", "-c", "test -t 0 && test -t 1 && echo x >$TMPDIR/f && echo $TMPDIR"}})
	if o.ExitCode != 0 {
		t.Fatalf("%+v", o)
	}
	dir := strings.TrimSpace(o.out)
	if o := run(t, s, sandbox.Cmd{Argv: []string{"cat", dir + "/f"}}); o.out != "x\n" {
		t.Errorf("%+v", o)
	}
	if err := m.Release(t.Context(), t.Name()); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(dir); len(left) > 0 {
		t.Errorf("%s is left", dir)
	}
}

// TestFallbackHides: what is hidden from every sandbox, such as the keys of logins, is so without namespaces too.
func TestFallbackHides(t *testing.T) {
	secret := t.TempDir()
	if err := os.WriteFile(filepath.Join(secret, "key"), []byte("sk-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, bare := range map[string]bool{"fallback": true, "namespaces": false} {
		m, err := sandbox.NewManager(t.Context(), sandbox.Config{
			StateDir: filepath.Join(t.TempDir(), "state"), GuestPath: sandboxtest.Helper(t), NoNamespaces: bare, Hide: []string{secret},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error("close manager:", err)
			}
		})
		for _, level := range []sandbox.Level{sandbox.ReadOnly, sandbox.WorkspaceWrite} {
			s, err := m.Acquire(t.Context(), t.Name()+name+level.String(), sandbox.Policy{Level: level, Workspace: t.TempDir(), Fallback: sandbox.FallbackLandlock})
			if err != nil {
				t.Fatal(err)
			}
			if o := run(t, s, sandbox.Cmd{Argv: []string{"cat", filepath.Join(secret, "key")}}); o.ExitCode == 0 || strings.Contains(o.out, "sk-secret") {
				t.Errorf("%s, %s: the key can be read: %+v", name, level, o)
			}
		}
	}
}

// TestHiddenLater: what is hidden stays so when it comes to be only after a sandbox of the same policy.
func TestHiddenLater(t *testing.T) {
	for name, bare := range map[string]bool{"fallback": true, "namespaces": false} {
		secret := filepath.Join(t.TempDir(), "secrets")
		m, err := sandbox.NewManager(t.Context(), sandbox.Config{
			StateDir: filepath.Join(t.TempDir(), "state"), GuestPath: sandboxtest.Helper(t), NoNamespaces: bare, Hide: []string{secret},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error("close manager:", err)
			}
		})
		p := sandbox.Policy{Level: sandbox.ReadOnly, Workspace: t.TempDir(), Fallback: sandbox.FallbackLandlock}
		s, err := m.Acquire(t.Context(), t.Name()+name, p)
		if err != nil {
			t.Fatal(err)
		}
		run(t, s, sandbox.Cmd{Argv: []string{"true"}})
		if err := os.Mkdir(secret, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(secret, "key"), []byte("sk-secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err = m.Acquire(t.Context(), t.Name()+name, p)
		if err != nil {
			t.Fatal(err)
		}
		if o := run(t, s, sandbox.Cmd{Argv: []string{"cat", filepath.Join(secret, "key")}}); o.ExitCode == 0 || strings.Contains(o.out, "sk-secret") {
			t.Errorf("%s: the key can be read: %+v", name, o)
		}
	}
}
