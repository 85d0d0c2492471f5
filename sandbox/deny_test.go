package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDenials(t *testing.T) {
	p := Policy{DenyRead: []string{"/etc/shadow", "~/.ssh", "secrets", "**/.env", "a/b/**", "/srv/*/key?"}}
	plain, patterns, err := denials(p, []string{"/w", "/x"}, "/home/u")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(plain, " "); got != "/etc/shadow /home/u/.ssh /w/secrets /x/secrets" {
		t.Errorf("plain: %s", got)
	}
	var got []string
	for _, d := range patterns {
		got = append(got, d.base+":"+strings.Join(d.rest, "/"))
	}
	if s := strings.Join(got, " "); s != "/w:**/.env /x:**/.env /w/a/b:**/* /x/a/b:**/* /srv:*/key?" {
		t.Errorf("patterns: %s", s)
	}
	if _, _, err := denials(p, nil, ""); err == nil {
		t.Error("~ without a home")
	}
	for _, bad := range []string{"", "a\x00", "a/[", "../x", "/a/../b", "a**b"} {
		if checkDenied([]string{bad}) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestDenyTree: what matches is found again after each change, and only folders that changed are read.
func TestDenyTree(t *testing.T) {
	ws := t.TempDir()
	file := func(name string) {
		if err := os.MkdirAll(filepath.Join(ws, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		plant(t, filepath.Join(ws, name), "x")
	}
	s := newStamper()
	defer s.close()
	tree := newDenyTree([]denial{{ws, []string{"**", ".env"}}, {ws, []string{"a", "*", "k?"}}, {ws, []string{"**", "d", "**", "*.p"}}}, s)
	expect := func(want ...string) {
		t.Helper()
		if err := tree.look(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for at := range tree.found {
			got = append(got, strings.TrimPrefix(at, ws+"/"))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, name := range []string{".env", "x/y/.env", "x/.environ", "a/1/k1", "a/1/k12", "a/k1", "x/d/z/q/1.p", "x/d/2.p", "3.p"} {
		file(name)
	}
	expect(".env", "a/1/k1", "x/d/2.p", "x/d/z/q/1.p", "x/y/.env")
	covered := tree.found
	file("x/y/new/.env")
	if err := os.Rename(filepath.Join(ws, "a"), filepath.Join(ws, "b")); err != nil {
		t.Fatal(err)
	}
	expect(".env", "x/d/2.p", "x/d/z/q/1.p", "x/y/.env", "x/y/new/.env")
	if at, bad := tree.uncovered(covered); !bad || at != filepath.Join(ws, "x/y/new/.env") {
		t.Errorf("uncovered: %s", at)
	}
	covered = tree.found
	if err := os.Remove(filepath.Join(ws, ".env")); err != nil {
		t.Fatal(err)
	}
	expect("x/d/2.p", "x/d/z/q/1.p", "x/y/.env", "x/y/new/.env")
	if at, bad := tree.uncovered(covered); bad {
		t.Errorf("uncovered: %s", at)
	}
	if err := os.Symlink("x/.environ", filepath.Join(ws, ".env")); err != nil {
		t.Fatal(err)
	}
	expect("x/.environ", "x/d/2.p", "x/d/z/q/1.p", "x/y/.env", "x/y/new/.env")
}
