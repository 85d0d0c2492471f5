package gitconf_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/sandbox/gitconf"
)

const sample = "\xef\xbb\xbf# c\n[core]\n\trepositoryformatversion = 0\r\n\tbare\n[Remote \"o\\\"r\"] url = https://x/y ; note\n" +
	"[branch.Main]\n\tmerge = refs/heads/\\\nmain\n[alias]\n\tx = \"!touch \\\"a b\\\" # no note\" \n  y = a   b  \n[core] FsMonitor=/tmp/p\n"

// git itself is the judge of what a file says.
func TestParseAgreesWithGit(t *testing.T) {
	f := filepath.Join(t.TempDir(), "c")
	if err := os.WriteFile(f, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "config", "--file", f, "--list", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, e := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		name, value, _ := strings.Cut(e, "\n")
		want = append(want, name+"="+value)
	}
	list, err := gitconf.Parse([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestBadFilesAreErrors(t *testing.T) {
	for _, s := range []string{"x = 1\n", "[core\nx=1\n", "[core]\nx = \"open\n", "[core]\nx = \\q\n", "[core]\n\x00", "[core]\n=1\n", "[a \"b\n\"]\n", "[core]\nx y\n", "[]\nx=1\n"} {
		if l, err := gitconf.Parse([]byte(s)); err == nil {
			t.Errorf("%q gave %v", s, l)
		}
	}
}

func TestHarmless(t *testing.T) {
	inside := func(p string) bool { return p == "/ws/sub" }
	for text, want := range map[string]bool{
		"[core]\nfilemode=true":                             true,
		"[core]\nfsmonitor=true":                            true,
		"[core]\nfsmonitor=/tmp/x":                          false,
		"[core]\nhooksPath=x":                               false,
		"[core]\nsshCommand=x":                              false,
		"[core]\npager=x":                                   false,
		"[core]\nworktree=/ws/sub":                          true,
		"[core]\nworktree=/home/u":                          false,
		"[include]\npath=x":                                 false,
		"[includeIf \"gitdir:/\"]\npath=x":                  false,
		"[alias]\nst=status":                                false,
		"[filter \"x\"]\nclean=sh":                          false,
		"[filter \"lfs\"]\nclean=git-lfs clean -- %f":       true,
		"[filter \"lfs\"]\nclean=sh -c x":                   false,
		"[diff \"x\"]\ntextconv=sh":                         false,
		"[diff]\nexternal=sh":                               false,
		"[merge \"x\"]\ndriver=sh":                          false,
		"[remote \"origin\"]\nurl=https://h/r":              true,
		"[remote \"origin\"]\nurl=ext::sh -c x":             false,
		"[remote \"origin\"]\nuploadpack=sh":                false,
		"[remote \"origin\"]\nfetch=+refs/heads/*:refs/x/*": true,
		"[submodule \"s\"]\nupdate=!sh":                     false,
		"[submodule \"s\"]\nupdate=rebase":                  true,
		"[url \"ext::sh\"]\ninsteadOf=https":                false,
		"[credential]\nhelper=!sh":                          false,
		"[gpg]\nprogram=sh":                                 false,
		"[user]\nname=A":                                    true,
		"[branch \"m\"]\nmerge=refs/heads/m":                true,
		"[pager]\nlog=sh":                                   false,
		"[hook \"x\"]\ncommand=sh":                          false,
		"[mergetool \"x\"]\ncmd=sh":                         false,
		"[sequence]\neditor=sh":                             false,
		"[something]\nnew=1":                                false,
	} {
		l, err := gitconf.Parse([]byte(text + "\n"))
		if err != nil || len(l) != 1 {
			t.Fatalf("%q: %v, %v", text, l, err)
		}
		if got := gitconf.Harmless(l[0], inside); got != want {
			t.Errorf("%q: harmless %v, want %v", text, got, want)
		}
	}
}

func TestWithout(t *testing.T) {
	got, n, err := gitconf.Without([]byte(sample), func(e gitconf.Entry) bool { return !gitconf.Harmless(e, nil) })
	if err != nil || n != 3 {
		t.Fatalf("%d entries, %v", n, err)
	}
	for _, s := range []string{"!touch", "FsMonitor", "a   b"} {
		if strings.Contains(string(got), s) {
			t.Errorf("%q is left: %s", s, got)
		}
	}
	if l, err := gitconf.Parse(got); err != nil || len(l) != 4 {
		t.Errorf("%v, %v", l, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, _, err := gitconf.Without(b, func(e gitconf.Entry) bool { return e.Section == "alias" }); err == nil {
			l, err := gitconf.Parse(out)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range l {
				if e.Section == "alias" {
					t.Fatal("alias is left")
				}
			}
		}
	})
}
