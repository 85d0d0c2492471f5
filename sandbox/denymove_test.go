package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/sandbox"
)

// TestDeniedStaysDeniedWhenItsFolderMoves: a command cannot make a denied path readable by renaming what it lies in.
func TestDeniedStaysDeniedWhenItsFolderMoves(t *testing.T) {
	for name, deny := range map[string]string{"plain": "conf/secrets/key", "folder": "conf/secrets", "pattern": "conf/*/key", "absolute": ""} {
		t.Run(name, func(t *testing.T) {
			m := manager(t)
			ws := t.TempDir()
			if err := os.MkdirAll(filepath.Join(ws, "conf/secrets"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(ws, "conf/secrets/key"), []byte("sk-secret"), 0o644); err != nil {
				t.Fatal(err)
			}
			if deny == "" {
				deny = filepath.Join(ws, "conf/secrets/key")
			}
			p := sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws, DenyRead: []string{deny}}
			s := acquire(t, m, p)
			run(t, s, sandbox.Cmd{Argv: []string{"sh", "-c", "mv conf/secrets conf/s2; mv conf c2"}, Dir: ws})
			s, err := m.Acquire(t.Context(), t.Name(), p)
			if err != nil {
				t.Fatal(err)
			}
			if o := run(t, s, sandbox.Cmd{Argv: []string{"sh", "-c", "find . -type f | xargs cat"}, Dir: ws}); strings.Contains(o.out, "sk-secret") {
				t.Errorf("the key can be read: %+v", o)
			}
		})
	}
}

// TestFoldersBesideDeniedNamesMove: a name that is denied in any folder is denied under any name of its folder, which
// can be renamed as ever.
func TestFoldersBesideDeniedNamesMove(t *testing.T) {
	m := manager(t)
	ws := t.TempDir()
	if err := os.Mkdir(filepath.Join(ws, "app"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws, "app/.env"), []byte("sk-secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws, DenyRead: []string{"**/.env"}}
	if o := run(t, acquire(t, m, p), sandbox.Cmd{Argv: []string{"mv", "app", "app2"}, Dir: ws}); o.ExitCode != 0 {
		t.Errorf("rename: %+v", o)
	}
	s, err := m.Acquire(t.Context(), t.Name(), p)
	if err != nil {
		t.Fatal(err)
	}
	if o := run(t, s, sandbox.Cmd{Argv: []string{"cat", "app2/.env"}, Dir: ws}); strings.Contains(o.out, "sk-secret") {
		t.Errorf("the key can be read: %+v", o)
	}
}

// TestDeniedBehindLinkStaysDenied: what a denied path leads to over a link stays denied when a command replaces that.
func TestDeniedBehindLinkStaysDenied(t *testing.T) {
	m := manager(t)
	ws := t.TempDir()
	if err := os.Mkdir(filepath.Join(ws, "conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws, "conf/key"), []byte("sk-secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("conf", filepath.Join(ws, "now")); err != nil {
		t.Fatal(err)
	}
	p := sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws, DenyRead: []string{"now/key"}}
	run(t, acquire(t, m, p), sandbox.Cmd{Argv: []string{"sh", "-c", "rm now; ln -s /etc now"}, Dir: ws})
	s, err := m.Acquire(t.Context(), t.Name(), p)
	if err != nil {
		t.Fatal(err)
	}
	if o := run(t, s, sandbox.Cmd{Argv: []string{"cat", "conf/key"}, Dir: ws}); strings.Contains(o.out, "sk-secret") {
		t.Errorf("the key can be read: %+v", o)
	}
}
