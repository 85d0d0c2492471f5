package sandbox_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
)

// Files of git's that come with a hostile workspace, in which a pipe would hold up whoever reads it and a device would
// fill the memory, keep no sandbox from being made.
func TestGitFilesThatHaveNoEnd(t *testing.T) {
	for _, name := range []string{".git", "meta/commondir", "meta/config", "meta/gitdir", "meta/worktrees/w/gitdir", "meta/HEAD"} {
		for what, plant := range map[string]func(path string) error{
			"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o644) },
			"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
			"too long": func(path string) error {
				return os.WriteFile(path, []byte("gitdir: x"), 0o644)
			},
		} {
			ws, err := os.MkdirTemp("/var/tmp", "heddle-test-") //nolint:usetesting // not in /tmp
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(ws) })
			for _, dir := range []string{"meta/objects", "meta/refs", "meta/worktrees/w"} {
				if err := os.MkdirAll(filepath.Join(ws, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for file, text := range map[string]string{".git": "gitdir: meta\n", "meta/HEAD": "ref: refs/heads/main\n", "meta/config": "[core]\n"} {
				if err := os.WriteFile(filepath.Join(ws, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(ws, name)
			_ = os.Remove(path)
			if err := plant(path); err != nil {
				t.Fatal(err)
			}
			if what == "too long" {
				if err := os.Truncate(path, 64<<20); err != nil {
					t.Fatal(err)
				}
			}
			for _, git := range []sandbox.GitMode{sandbox.GitProtected, sandbox.GitCommit} {
				done := make(chan error, 1)
				m := manager(t)
				go func() {
					_, err := m.Acquire(context.Background(), "hostile", sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws, Git: git})
					done <- err
				}()
				select {
				case err := <-done:
					if err != nil {
						t.Errorf("%s as %s, git %v: %v", what, name, git, err)
					}
				case <-time.After(20 * time.Second):
					t.Fatalf("%s as %s, git %v: no sandbox is made", what, name, git)
				}
			}
		}
	}
}
