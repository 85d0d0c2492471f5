package inspect_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/executor/inspect"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// look reads the usual instruction files of a repository unless the query says
// which.
func look(t *testing.T, q inspect.Query) inspect.Result {
	t.Helper()
	if q.Names == nil {
		q.Names, q.RootMarkers, q.MaxBytes = []string{"AGENTS.override.md", "AGENTS.md"}, []string{".git"}, cmp.Or(q.MaxBytes, 32<<10)
	}
	r, err := inspect.Workspace(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"}, args...)...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestInstructionsFromRootDown(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, ".git/HEAD"), "ref: refs/heads/main\n")
	write(t, filepath.Join(root, "AGENTS.md"), "top")
	write(t, filepath.Join(root, "a/AGENTS.md"), "plain")
	write(t, filepath.Join(root, "a/AGENTS.override.md"), "override \xff")
	write(t, filepath.Join(root, "a/b/AGENTS.md"), "deep")
	write(t, filepath.Join(root, "other/AGENTS.md"), "not on the way")
	r := look(t, inspect.Query{Cwd: filepath.Join(root, "a/b")})
	if r.RepoRoot != root || len(r.Warnings) != 0 || len(r.Instructions) != 3 {
		t.Fatalf("%+v", r)
	}
	for i, want := range []inspect.File{
		{Path: filepath.Join(root, "AGENTS.md"), Content: "top"},
		{Path: filepath.Join(root, "a/AGENTS.override.md"), Content: "override \uFFFD"},
		{Path: filepath.Join(root, "a/b/AGENTS.md"), Content: "deep"},
	} {
		if r.Instructions[i] != want {
			t.Errorf("file %d: %+v, want %+v", i, r.Instructions[i], want)
		}
	}
}

// Where instructions are looked for, and under which names, is the query's.
func TestChosenInstructions(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "go.work"), "")
	write(t, filepath.Join(root, "AGENTS.md"), "top")
	write(t, filepath.Join(root, "mod/.git/HEAD"), "ref: refs/heads/main\n")
	write(t, filepath.Join(root, "mod/TEAM.md"), "team")
	write(t, filepath.Join(root, "mod/sub/AGENTS.md"), "sub")
	write(t, filepath.Join(root, "mod/sub/TEAM.md"), "hidden")
	both, cwd := []string{"AGENTS.md", "TEAM.md"}, filepath.Join(root, "mod/sub")
	for name, tt := range map[string]struct {
		q    inspect.Query
		want string
	}{
		"another root":    {inspect.Query{Names: both, RootMarkers: []string{"none", "go.work"}, MaxBytes: 100}, "top team sub"},
		"the nearest":     {inspect.Query{Names: both, RootMarkers: []string{"go.work", ".git"}, MaxBytes: 100}, "team sub"},
		"no markers":      {inspect.Query{Names: both, MaxBytes: 100}, "sub"},
		"no such entry":   {inspect.Query{Names: both, RootMarkers: []string{"none", "", "../mod"}, MaxBytes: 100}, "sub"},
		"another order":   {inspect.Query{Names: []string{"TEAM.md", "AGENTS.md"}, RootMarkers: []string{"go.work"}, MaxBytes: 100}, "top team hidden"},
		"fewer bytes":     {inspect.Query{Names: both, RootMarkers: []string{".git"}, MaxBytes: 6}, "team su"},
		"none at all":     {inspect.Query{Names: both, RootMarkers: []string{".git"}}, ""},
		"a path for name": {inspect.Query{Names: []string{"../mod/TEAM.md", "sub/AGENTS.md"}, RootMarkers: []string{".git"}, MaxBytes: 100}, ""},
	} {
		tt.q.Cwd = cwd
		r := look(t, tt.q)
		var got []string
		for _, f := range r.Instructions {
			got = append(got, f.Content)
		}
		if strings.Join(got, " ") != tt.want || r.RepoRoot != filepath.Join(root, "mod") {
			t.Errorf("%s: %q, want %q; root %s", name, got, tt.want, r.RepoRoot)
		}
	}
}

func TestInstructionsAreBounded(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, ".git/HEAD"), "ref: refs/heads/main\n")
	write(t, filepath.Join(root, "AGENTS.md"), strings.Repeat("x", 70))
	write(t, filepath.Join(root, "a/AGENTS.md"), strings.Repeat("y", 70))
	r := look(t, inspect.Query{Cwd: filepath.Join(root, "a"), MaxBytes: 100})
	if len(r.Instructions) != 2 || len(r.Instructions[1].Content) != 30 {
		t.Fatalf("%+v", r.Instructions)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], filepath.Join(root, "a/AGENTS.md")) {
		t.Fatalf("warnings: %v", r.Warnings)
	}
}

func TestOutsideOfARepositoryOnlyCwd(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "AGENTS.md"), "above")
	write(t, filepath.Join(dir, "sub/AGENTS.md"), "here")
	r := look(t, inspect.Query{Cwd: filepath.Join(dir, "sub")})
	if r.RepoRoot != "" || len(r.Instructions) != 1 || r.Instructions[0].Content != "here" {
		t.Fatalf("%+v", r)
	}
	if r = look(t, inspect.Query{Cwd: filepath.Join(dir, "none")}); r.CwdExists || len(r.Warnings) != 0 {
		t.Fatalf("missing folder: %+v", r)
	}
}

// F8: what cannot be read is named in a warning, and nothing is followed or
// waited for.
func TestUnreadableInstructions(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	write(t, outside, "secret")
	for name, make := range map[string]func(path string) error{
		"link out":  func(p string) error { return os.Symlink(outside, p) },
		"link up":   func(p string) error { return os.Symlink("../../../../../../../../etc/hostname", p) },
		"folder":    func(p string) error { return os.Mkdir(p, 0o755) },
		"fifo":      func(p string) error { return syscall.Mkfifo(p, 0o644) },
		"link loop": func(p string) error { return os.Symlink("AGENTS.md", p) },
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, ".git/HEAD"), "ref: refs/heads/main\n")
		path := filepath.Join(root, "AGENTS.md")
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		r := look(t, inspect.Query{Cwd: root})
		if len(r.Instructions) != 0 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], path) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestUnreadableMode(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "AGENTS.md")
	write(t, path, "x")
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(root); d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan inspect.Result)
	go func() {
		// This thread gives up root's right to read everything, and is not reused.
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if err := unix.Setfsuid(65534); err != nil {
				t.Error(err)
			}
		}
		r, err := inspect.Workspace(t.Context(), inspect.Query{Cwd: root, Names: []string{"AGENTS.md"}, MaxBytes: 100})
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	r := <-done
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], path) || !strings.Contains(r.Warnings[0], "permission denied") {
		t.Fatalf("%+v", r)
	}
}

func TestGit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "-q")
	if g, err := inspect.ReadGit(dir); err != nil || g.Branch != "main" || g.SHA != "" {
		t.Fatalf("before the first commit: %+v, %v", g, err)
	}
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "one")
	git(t, dir, "remote", "add", "origin", "https://user:hunter2@example.com/r.git")
	sha := git(t, dir, "rev-parse", "HEAD")
	want := inspect.Git{SHA: sha, Branch: "main", OriginURL: "https://example.com/r.git"}
	check := func(what, dir string, want inspect.Git) {
		t.Helper()
		if g, err := inspect.ReadGit(dir); err != nil || g != want {
			t.Errorf("%s: %+v, %v, want %+v", what, g, err, want)
		}
	}
	check("loose ref", dir, want)
	git(t, dir, "pack-refs", "--all")
	check("packed ref", dir, want)

	tree := filepath.Join(filepath.Dir(dir), "w")
	git(t, dir, "worktree", "add", "-q", "-b", "feature/x", tree)
	check("linked work tree", tree, inspect.Git{SHA: sha, Branch: "feature/x", OriginURL: want.OriginURL})

	git(t, dir, "checkout", "-q", "--detach")
	check("detached", dir, inspect.Git{SHA: sha, OriginURL: want.OriginURL})

	if err := os.Rename(filepath.Join(dir, ".git"), filepath.Join(filepath.Dir(dir), "meta.git")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../meta.git", filepath.Join(dir, ".git")); err != nil {
		t.Fatal(err)
	}
	check(".git is a link", dir, inspect.Git{SHA: sha, OriginURL: want.OriginURL})
}

func TestGitDamaged(t *testing.T) {
	for name, head := range map[string]string{
		"no file":   "",
		"garbage":   "\x00\xff\n",
		"escaping":  "ref: ../../../../etc/passwd\n",
		"loop":      "ref: refs/heads/loop\n",
		"reftable":  "ref: refs/heads/.invalid\n",
		"bad hash":  strings.Repeat("z", 40) + "\n",
		"long line": strings.Repeat("a", 200_000),
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, ".git/refs/heads/loop"), "ref: refs/heads/loop\n")
		if head != "" {
			write(t, filepath.Join(dir, ".git/HEAD"), head)
		}
		r := look(t, inspect.Query{Cwd: dir})
		if r.Git.SHA != "" || (head == "") != (len(r.Warnings) == 1) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestMachine(t *testing.T) {
	if got := inspect.Shell("/bin/sh"); got != "/bin/sh" {
		t.Errorf("preferred shell: %s", got)
	}
	if got := inspect.Shell("/no/such"); got != "/bin/bash" && got != "/bin/sh" {
		t.Errorf("missing shell: %s", got)
	}
	if got := inspect.Timezone(":Europe/Vienna"); got != "Europe/Vienna" {
		t.Errorf("time zone of the variable: %s", got)
	}
	if got := inspect.Timezone("../../etc/passwd"); got == "../../etc/passwd" || got == "" {
		t.Errorf("bad time zone: %q", got)
	}
}
