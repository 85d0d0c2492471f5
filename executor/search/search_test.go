package search

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func tree(tb testing.TB, names ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, n := range names {
		name, content, _ := strings.Cut(n, "=")
		p := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			must(tb, os.MkdirAll(p, 0o755))
			continue
		}
		must(tb, os.MkdirAll(filepath.Dir(p), 0o755))
		must(tb, os.WriteFile(p, []byte(content), 0o644))
	}
	return dir
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// once asks one query and returns the complete answer.
func once(tb testing.TB, cfg Config, query string) *heddlev1.SearchResults {
	tb.Helper()
	asked := false
	var last *heddlev1.SearchResults
	err := Serve(context.Background(), cfg, func() (*heddlev1.SearchQuery, error) {
		if asked {
			return nil, io.EOF
		}
		asked = true
		return &heddlev1.SearchQuery{Number: 1, Text: query}, nil
	}, func(r *heddlev1.SearchResults) error { last = r; return nil })
	must(tb, err)
	if !last.GetComplete() {
		tb.Fatalf("%q: the last answer is not complete", query)
	}
	return last
}

func paths(r *heddlev1.SearchResults) []string {
	var out []string
	for _, m := range r.GetMatches() {
		out = append(out, m.GetPath())
	}
	return out
}

func TestQueries(t *testing.T) {
	t.Parallel()
	dir := tree(t, "alpha.txt", "beta.txt", "sub/alphabet.md", "src/main.go", "src/domain/model.go", "README.md", ".hidden/alpha", "näme/überall.txt", "a/b/c/readme.txt")
	for query, want := range map[string][]string{
		"alphab":   {"sub/alphabet.md"},
		"zzzzzz":   nil,
		"":         nil,
		"  ":       nil,
		"README":   {"README.md"},
		"readme":   {"README.md", "a/b/c/readme.txt"},
		"sub alph": {"sub/alphabet.md"},
		"ubera":    {"näme/überall.txt"},
		"srcmain":  {"src/main.go", "src/domain"}, // the second only by chance of letters
	} {
		got := paths(once(t, Config{Roots: []string{dir}}, query))
		if query == "srcmain" {
			if len(got) == 0 || got[0] != "src/main.go" {
				t.Errorf("%q: %q", query, got)
			}
			continue
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
	res := once(t, Config{Roots: []string{dir}}, "alphab")
	if m := res.GetMatches()[0]; m.GetRoot() != dir || m.GetScore() == 0 || !slices.Equal(m.GetIndices(), []uint32{4, 5, 6, 7, 8, 9}) {
		t.Errorf("match %v", m)
	}
	res = once(t, Config{Roots: []string{dir}}, "domain")
	if m := res.GetMatches()[0]; m.GetPath() != "src/domain" || !m.GetIsDirectory() {
		t.Errorf("match %v", m)
	}
	if res := once(t, Config{Roots: []string{dir}, Limit: 2}, "a"); len(res.GetMatches()) != 2 {
		t.Errorf("limit: %v", res)
	}
	if res := once(t, Config{Roots: []string{dir, dir, "relative", "/nowhere"}}, "alphab"); len(res.GetMatches()) != 2 {
		t.Errorf("two roots: %v", res)
	}
}

func TestLoopsOfLinksEnd(t *testing.T) {
	t.Parallel()
	dir := tree(t, "d/file")
	must(t, os.Symlink("..", filepath.Join(dir, "d/up")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "broken")))
	if got := paths(once(t, Config{Roots: []string{dir}}, "file")); !slices.Equal(got, []string{"d/file"}) {
		t.Errorf("got %q", got)
	}
}

// What is left out is what git leaves out.
func TestIgnoresAsGit(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	must(t, err)
	rules := []string{
		"# comment", "", "*.log", "!keep.log", "/top", "build/", "doc/*.txt", "**/deep/x", "a/**/z", "trail\\ ", "sp ace", "[ab]c", "[!x]y.q", "\\#hash", "\\!bang",
		"foo/**", "!foo/in", "qu?st", "weird[", "n/*/m", "*.t[xX]t~", "/sub/only", "ünï*",
	}
	names := []string{
		"x.log", "keep.log", "top", "sub/top", "build/out", "sub/build/out", "sub2/build", "doc/a.txt", "doc/sub/a.txt", "p/deep/x", "deep/x", "a/z", "a/b/z", "a/b/c/z", "trail ", "trail",
		"sp ace", "ac", "bc", "cc", "xy.q", "zy.q", "#hash", "!bang", "foo/in", "foo/bar/in", "quest", "qust", "weird[", "n/1/m", "n/1/2/m", "f.txt~", "f.tXt~", "sub/only", "sub/sub/only", "ünïcode",
		"inner/.gitignore=*.tmp\n!x.log\n/local\n", "inner/a.tmp", "inner/x.log", "inner/local", "inner/more/local", "plain", "info-out", "sub/.ignore=",
	}
	dir := tree(t, names...)
	must(t, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(strings.Join(rules, "\n")), 0o644))
	run := func(args ...string) []byte {
		cmd := exec.Command(git, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "HOME="+t.TempDir())
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return out
	}
	run("init", "-q")
	must(t, os.WriteFile(filepath.Join(dir, ".git/info/exclude"), []byte("info-out\n"), 0o644))
	want := strings.Split(strings.TrimRight(string(run("ls-files", "-z", "--others", "--exclude-standard")), "\x00"), "\x00")
	slices.Sort(want)

	got := walked(dir)
	if !slices.Equal(got, want) {
		t.Errorf("only here %q\nonly git %q", minus(got, want), minus(want, got))
	}
	// From a folder inside, the rules above still count.
	var below []string
	for _, w := range want {
		if rest, ok := strings.CutPrefix(w, "sub/"); ok {
			below = append(below, rest)
		}
	}
	if got := walked(filepath.Join(dir, "sub")); !slices.Equal(got, below) {
		t.Errorf("in sub: %q, want %q", got, below)
	}
}

// walked returns the files that are found, without those of git's own folder.
func walked(root string) []string {
	x := &index{ended: make(chan struct{})}
	x.walk(context.Background(), []string{root})
	var out []string
	for _, f := range x.files {
		if name := f.path.ToString(); !f.dir && !strings.HasPrefix(name, ".git/") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func minus(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

func TestNoIgnoringOutsideOfRepositories(t *testing.T) {
	t.Parallel()
	dir := tree(t, ".gitignore=*\n", "seen")
	if got := walked(dir); !slices.Contains(got, "seen") {
		t.Errorf("got %q", got)
	}
}

// A newer query takes the place of one that is worked on, and is answered last.
func TestLatestQueryWins(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("dir%d/file%d.txt", i%7, i))
	}
	dir := tree(t, names...)
	queries := make(chan *heddlev1.SearchQuery)
	answers := make(chan *heddlev1.SearchResults, 100)
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	go func() {
		done <- Serve(ctx, Config{Roots: []string{dir}}, func() (*heddlev1.SearchQuery, error) {
			q, ok := <-queries
			if !ok {
				return nil, io.EOF
			}
			return q, nil
		}, func(r *heddlev1.SearchResults) error { answers <- r; return nil })
	}()
	for i := 1; i <= 20; i++ {
		queries <- &heddlev1.SearchQuery{Number: uint64(i), Text: fmt.Sprintf("file%d", i)}
	}
	close(queries)
	must(t, <-done)
	close(answers)
	var last *heddlev1.SearchResults
	for r := range answers {
		if r.GetNumber() < last.GetNumber() {
			t.Errorf("an answer to %d after one to %d", r.GetNumber(), last.GetNumber())
		}
		last = r
	}
	if last.GetNumber() != 20 || !last.GetComplete() || !strings.Contains(last.GetMatches()[0].GetPath(), "file20") {
		t.Errorf("last answer %v", last)
	}
}

func TestServeEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	hold := make(chan struct{})
	defer close(hold)
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, Config{Roots: []string{t.TempDir()}}, func() (*heddlev1.SearchQuery, error) { <-hold; return nil, io.EOF },
			func(*heddlev1.SearchResults) error { return nil })
	}()
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Serve did not end")
	}
}

func FuzzRule(f *testing.F) {
	f.Add("a/**/[!b]*.c", "a/x/y.c")
	f.Add("[[:alpha:]-]\\", "q")
	f.Add("**", "é/ü")
	f.Fuzz(func(t *testing.T, line, path string) {
		if len(line) > 200 || !fs.ValidPath(path) {
			return
		}
		r := &rules{base: ".", list: parseRules(line)}
		r.ignored(path, false) // must neither panic nor take long
	})
}

func BenchmarkRank(b *testing.B) {
	x := &index{ended: make(chan struct{})}
	dir := tree(b, "a/b/c/alpha_beta.go")
	x.walk(context.Background(), []string{dir})
	files := slices.Repeat(x.files, 25_000)
	terms := termsOf("alphabeta")
	for b.Loop() {
		rank(files, terms, 50, func() bool { return false })
	}
}
