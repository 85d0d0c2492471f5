package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/sandboxtest"
)

// hostGit runs git outside, as the user would.
func hostGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-c", "protocol.file.allow=always", "-c", "user.name=u", "-c", "user.email=u@x", "-c", "init.defaultBranch=main"}, args...)...)
	c.Dir = dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
	b, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q in %s: %v\n%s", args, dir, err, b)
	}
	return string(b)
}

// gitSh is a script in which git knows its author.
func gitSh(script string) sandbox.Cmd {
	c := sh("set -e; " + script)
	c.MergeStderr = true
	c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=u", "GIT_AUTHOR_EMAIL=u@x", "GIT_COMMITTER_NAME=u", "GIT_COMMITTER_EMAIL=u@x"}
	return c
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// repositories makes a main checkout with a submodule, and a linked worktree beside it.
func repositories(t *testing.T) (base string) {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "heddle-git-") //nolint:usetesting // /tmp is private in a sandbox
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	repositoriesAt(t, base)
	return base
}

func repositoriesAt(t *testing.T, base string) {
	t.Helper()
	for _, d := range []string{"lib", "r"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
		hostGit(t, filepath.Join(base, d), "init", "-q")
		write(t, filepath.Join(base, d, "f"), "1\n")
		hostGit(t, filepath.Join(base, d), "add", "f")
		hostGit(t, filepath.Join(base, d), "commit", "-qm", "a")
	}
	r := filepath.Join(base, "r")
	hostGit(t, r, "submodule", "--quiet", "add", filepath.Join(base, "lib"), "sub")
	hostGit(t, r, "commit", "-qm", "sub")
	hostGit(t, r, "worktree", "add", "-q", "../w")
	hostGit(t, r, "worktree", "add", "-q", "../w2")
}

// TestGitShown: the repository of a linked worktree can be read where the private /tmp hides what is around it.
func TestGitShown(t *testing.T) {
	base := t.TempDir()
	repositoriesAt(t, base)
	for _, l := range []sandbox.Level{sandbox.ReadOnly, sandbox.WorkspaceWrite} {
		s := acquire(t, manager(t), sandbox.Policy{Level: l, Workspace: filepath.Join(base, "w")})
		o := run(t, s, gitSh("git log --format=%s -1; touch "+base+"/r/.git/x || echo refused"))
		if o.ExitCode != 0 || o.out != "sub\ntouch: cannot touch '"+base+"/r/.git/x': Read-only file system\nrefused\n" {
			t.Errorf("%v: %+v", l, o)
		}
	}
}

const gitWork = `echo 2 >> f; git add f; git commit -qm two; git branch topic; git branch -d topic
echo 3 >> f; git stash -q; git stash pop -q; git commit -qam three
git checkout -q -b side HEAD~1; echo s > s; git add s; git commit -qm side; git rebase -q -; git log --format=%s -1; git status --short; git gc -q; git fsck`

// S10: the work of a repository, a linked worktree and a submodule goes on when commits are allowed.
func TestGitCommit(t *testing.T) {
	for _, where := range []string{"r", "w", "r/sub"} {
		t.Run(where, func(t *testing.T) {
			base := repositories(t)
			ws := filepath.Join(base, where)
			s := acquire(t, manager(t), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws, Git: sandbox.GitCommit})
			o := run(t, s, gitSh(gitWork))
			if o.ExitCode != 0 || !strings.Contains(o.out, "side\n") || len(o.Violations) != 0 {
				t.Fatalf("%+v", o)
			}
			if got := hostGit(t, ws, "log", "--format=%s", "-1"); got != "side\n" {
				t.Errorf("outside: %q", got)
			}
			hostGit(t, ws, "fsck")
		})
	}
}

// TestGitCommitPlaces: a checkout's submodule and a worktree made inside work from the main checkout.
func TestGitCommitPlaces(t *testing.T) {
	base := repositories(t)
	s := acquire(t, manager(t), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: filepath.Join(base, "r"), Git: sandbox.GitCommit})
	o := run(t, s, gitSh(`cd sub; echo 2 > f; git commit -qam insub; cd ..; git add sub; git commit -qm up
git worktree add -q wt; cd wt; echo 9 > n; git add n; git commit -qm inwt; cd ..; git worktree list; git worktree remove --force wt; git log --all --format=%s`))
	if o.ExitCode != 0 || !strings.Contains(o.out, "inwt") || len(o.Violations) != 0 {
		t.Fatalf("%+v", o)
	}
	if got := hostGit(t, filepath.Join(base, "r", "sub"), "log", "--format=%s", "-1"); got != "insub\n" {
		t.Errorf("%q", got)
	}
}

// TestGitCommitBelow: a folder of a checkout is enough of a workspace, and the rest of the checkout stays read-only.
func TestGitCommitBelow(t *testing.T) {
	r := filepath.Join(repositories(t), "r")
	ws := filepath.Join(r, "docs", "a")
	write(t, filepath.Join(ws, "x"), "1\n")
	s := acquire(t, manager(t), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws, Git: sandbox.GitCommit})
	o := run(t, s, gitSh("echo 2 >> x; git add .; git commit -qm below; touch ../../g || echo refused; touch ../../.git/hooks/pre-commit || echo closed"))
	if o.ExitCode != 0 || !strings.HasSuffix(o.out, "closed\n") || !strings.Contains(o.out, "refused\n") {
		t.Fatalf("%+v", o)
	}
	if got := hostGit(t, r, "log", "--format=%s", "-1"); got != "below\n" {
		t.Errorf("%q", got)
	}
}

// TestGitProtected: without the setting, git fails at once and nothing changes.
func TestGitProtected(t *testing.T) {
	base := repositories(t)
	for _, where := range []string{"r", "w"} {
		ws := filepath.Join(base, where)
		s := acquire(t, manager(t), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws})
		o := run(t, s, gitSh("echo 2 >> f; git add f"))
		if o.ExitCode == 0 || !strings.Contains(o.out, "Read-only file system") {
			t.Errorf("%s: %+v", where, o)
		}
		if got := hostGit(t, ws, "diff", "--cached", "--name-only"); got != "" {
			t.Errorf("%s: staged %q", where, got)
		}
	}
}

// TestGitCommitForeign: a .git file that names a repository which does not name the checkout opens nothing.
func TestGitCommitForeign(t *testing.T) {
	base := repositories(t)
	ws := filepath.Join(base, "evil")
	for name, content := range map[string]string{
		"directly":          "gitdir: ../r/.git\n",
		"another worktree":  "gitdir: ../r/.git/worktrees/w\n",
		"by its own linked": "gitdir: meta\n",
	} {
		t.Run(name, func(t *testing.T) {
			defer os.RemoveAll(ws)
			write(t, filepath.Join(ws, ".git"), content)
			write(t, filepath.Join(ws, "meta", "HEAD"), "ref: refs/heads/main\n")
			write(t, filepath.Join(ws, "meta", "gitdir"), filepath.Join(ws, ".git")+"\n")
			write(t, filepath.Join(ws, "meta", "commondir"), filepath.Join(base, "r", ".git")+"\n")
			s := acquire(t, manager(t), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws, Git: sandbox.GitCommit})
			run(t, s, gitSh("touch "+base+"/r/.git/pwn "+base+"/r/.git/worktrees/w/pwn || true; echo x > .git || true"))
			for _, f := range []string{"r/.git/pwn", "r/.git/worktrees/w/pwn"} {
				if _, err := os.Lstat(filepath.Join(base, f)); err == nil {
					t.Errorf("%s was written", f)
				}
			}
			if b, _ := os.ReadFile(filepath.Join(ws, ".git")); string(b) != content {
				t.Errorf(".git is %q", b)
			}
		})
	}
}

// TestManyWorktrees is S16: the start stays fast with 300 linked worktrees, and the work in one goes on.
func TestManyWorktrees(t *testing.T) {
	base := repositories(t)
	r := filepath.Join(base, "r")
	src := filepath.Join(r, ".git", "worktrees", "w2")
	for i := range 300 {
		dst := filepath.Join(r, ".git", "worktrees", "x"+string(rune('a'+i%26))+strings.Repeat("y", i/26))
		if err := os.CopyFS(dst, os.DirFS(src)); err != nil {
			t.Fatal(err)
		}
	}
	var plain time.Duration // of an empty workspace, on a machine as busy as it is
	for _, where := range []string{"empty", "r", "w"} {
		ws := filepath.Join(base, where)
		if err := os.MkdirAll(ws, 0o755); err != nil {
			t.Fatal(err)
		}
		m := manager(t)
		best := time.Hour
		for i := range 3 {
			from := time.Now()
			s, err := m.Acquire(t.Context(), string(rune('a'+i)), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws, Git: sandbox.GitCommit})
			if err != nil {
				t.Fatal(err)
			}
			if o := run(t, s, sh("echo hi")); o.out != "hi\n" {
				t.Fatalf("%+v", o)
			}
			best = min(best, time.Since(from))
			if i > 0 || where == "empty" {
				continue
			}
			if o := run(t, s, gitSh("echo 2 >> f; git add f; git commit -qm more; touch "+src+"/commondir "+r+"/.git/worktrees/new || echo refused")); !strings.Contains(o.out, "refused") || len(o.Violations) > 0 {
				t.Errorf("%+v", o)
			}
		}
		t.Logf("%s: start and first command in %v", where, best)
		if where == "empty" {
			plain = best
		} else if best > max(100*time.Millisecond, 2*plain) {
			t.Errorf("%s: start took %v, %v with an empty workspace", where, best, plain)
		}
	}
}

// TestFileActionPlants is S11 for file actions: what a file action puts into a nested repository is found too, and told by the next command.
func TestFileActionPlants(t *testing.T) {
	ws := filepath.Join(repositories(t), "r")
	hook := filepath.Join(ws, "n", ".git", "hooks", "pre-commit")
	s := acquire(t, manager(t), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws})
	run(t, s, sh("git init -q n"))
	if err := s.FS().WriteFile(t.Context(), hook, []byte("#!/bin/sh\n"), sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	o := run(t, s, sh("true"))
	if len(o.Violations) != 1 || o.Violations[0].Path != hook || o.Violations[0].Quarantine == "" {
		t.Errorf("%+v", o)
	}
	if _, err := os.Lstat(hook); err == nil {
		t.Error("the hook is still there")
	}
}

// TestStateStaysDeleted: work in the background does not bring a deleted home back.
func TestStateStaysDeleted(t *testing.T) {
	state := filepath.Join(t.TempDir(), "home", "state")
	if m, err := sandbox.NewManager(t.Context(), sandbox.Config{StateDir: state, GuestPath: sandboxtest.Helper(t), Existing: true}); err == nil {
		m.Close(t.Context())
		t.Error("made")
	}
	if _, err := os.Lstat(filepath.Dir(state)); err == nil {
		t.Error("the folder is there")
	}
}
