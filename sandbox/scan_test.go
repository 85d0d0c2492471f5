package sandbox

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watched is a scanner of one folder that has looked at it once.
func watched(t *testing.T) (*scanner, string) {
	t.Helper()
	ws := t.TempDir()
	sc := newScanner(slog.New(slog.DiscardHandler), filepath.Join(t.TempDir(), "quarantine"), newStamper())
	t.Cleanup(sc.stamper.close)
	t.Cleanup(sc.close)
	sc.update(&plan{roots: []string{ws}})
	return sc, ws
}

func makeRepo(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{"objects", "refs", "hooks"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	plant(t, filepath.Join(dir, "HEAD"), "ref: refs/heads/main\n")
	plant(t, filepath.Join(dir, "config"), "[core]\n\tbare = false\n")
}

func plant(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func told(t *testing.T, v []Violation, want ...string) {
	t.Helper()
	var got []string
	for _, x := range v {
		got = append(got, x.Path)
		if x.Quarantine == "" {
			t.Errorf("%s was not moved: %s", x.Path, x.What)
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("told of %q, want %q", got, want)
	}
}

// TestLookUnderWay: what a command makes while the first look is under way is the command's.
func TestLookUnderWay(t *testing.T) {
	sc, ws := watched(t)
	user := filepath.Join(ws, "user", ".git")
	makeRepo(t, user)
	plant(t, filepath.Join(user, "hooks", "pre-push"), "user's")
	first := sc.newPass()
	sc.begin()
	makeRepo(t, filepath.Join(ws, "n", ".git"))
	planted := []string{filepath.Join(ws, "n", ".git", "hooks", "pre-commit")}
	plant(t, planted[0], "evil")
	told(t, first.run(), planted...)
	told(t, sc.look())
	sc.leave()
	if _, err := os.Lstat(filepath.Join(user, "hooks", "pre-push")); err != nil {
		t.Error("the user's hook is gone")
	}
}

// TestLookBetween: a repository that the user makes between two commands is the user's, what the next command puts
// into it is not.
func TestLookBetween(t *testing.T) {
	sc, ws := watched(t)
	told(t, sc.look())
	git := filepath.Join(ws, "cloned", ".git")
	makeRepo(t, git)
	plant(t, filepath.Join(git, "config"), "[core]\n\tfsmonitor = user's\n")
	sc.begin()
	hook := filepath.Join(git, "hooks", "pre-commit")
	plant(t, hook, "evil")
	told(t, sc.look(), hook)
	sc.leave()
	if b, _ := os.ReadFile(filepath.Join(git, "config")); !strings.Contains(string(b), "user's") {
		t.Errorf("the user's configuration is %q", b)
	}
}

// TestLookFollows: repositories that lead to one another are all looked at by the same look.
func TestLookFollows(t *testing.T) {
	for range 20 { // the order of a look is not fixed
		sc, ws := watched(t)
		told(t, sc.look())
		sc.begin()
		const n = 6
		at := func(i int) string { return filepath.Join(ws, fmt.Sprint("s", i)) }
		makeRepo(t, filepath.Join(ws, "n", ".git"))
		plant(t, filepath.Join(ws, "n", ".git", "commondir"), at(0))
		for i := range n {
			makeRepo(t, at(i))
			if err := os.Remove(filepath.Join(at(i), "HEAD")); err != nil {
				t.Fatal(err)
			}
			plant(t, filepath.Join(at(i), "commondir"), at(i+1))
		}
		makeRepo(t, at(n))
		config := filepath.Join(at(n), "config")
		plant(t, config, "[core]\n\tfsmonitor = evil\n")
		told(t, sc.look(), config)
		sc.leave()
	}
}

// TestLookMapped: a command that goes on can change a file through mapped memory without a new stamp.
func TestLookMapped(t *testing.T) {
	sc, ws := watched(t)
	git := filepath.Join(ws, "n", ".git")
	hook := filepath.Join(git, "hooks", "pre-commit")
	makeRepo(t, git)
	plant(t, hook, "good")
	told(t, sc.look())
	sc.begin()
	f, err := os.OpenFile(hook, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	m[0] = 'g'
	told(t, sc.look()) // the end of another command
	told(t, sc.look())
	copy(m, "evil")
	told(t, sc.look(), hook)
	sc.leave()
}

// TestLookRemote: where stamps tell nothing, only what was seen before is the user's.
func TestLookRemote(t *testing.T) {
	sc, ws := watched(t)
	dev := func() uint64 { st, _ := lstat(ws); return st.Dev }()
	sc.kinds[dev] = stampRemote
	sc.remote.Store(true)
	told(t, sc.look())
	git := filepath.Join(ws, "user", ".git")
	makeRepo(t, git)
	plant(t, filepath.Join(git, "hooks", "pre-push"), "user's")
	sc.begin()
	hook := filepath.Join(git, "hooks", "pre-commit")
	plant(t, hook, "evil")
	told(t, sc.look(), hook)
	sc.leave()
}

// TestMoments: the order of changes is told without any wait between them.
func TestMoments(t *testing.T) {
	s := newStamper()
	defer s.close()
	dir := t.TempDir()
	kind := stampKindOf(dir)
	if kind == stampRemote {
		t.Skipf("GAP: stamps of %s are given by another machine or program", dir)
	}
	stamp := func(name string) int64 {
		path := filepath.Join(dir, name)
		plant(t, path, "x")
		st, _ := lstat(path)
		return st.Ctim.Nano()
	}
	exact := false
	for i := range 2000 {
		before := stamp(fmt.Sprint("b", i))
		m := s.now()
		if after := stamp(fmt.Sprint("a", i)); kind.before(after, m.today()) {
			t.Fatalf("a change after %+v has %d", m, after)
		}
		exact = m.fine != m.coarse
		if exact && kind == stampFine && !kind.before(before, m.today()) {
			t.Fatalf("a change before %+v has %d", m, before)
		}
	}
	t.Logf("stamps between ticks: %v", exact)
	m := s.now()
	m.boot -= time.Hour // as if the time of day had been set back by an hour since
	if kind.before(m.coarse-int64(30*time.Minute), m.today()) {
		t.Error("a change after the time was set back counts as old")
	}
	if !kind.before(m.coarse-int64(2*time.Hour), m.today()) {
		t.Error("a change long before counts as new")
	}
}

func BenchmarkMoment(b *testing.B) {
	s := newStamper()
	defer s.close()
	for b.Loop() {
		s.now()
	}
}
