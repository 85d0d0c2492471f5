package gitconf

import (
	"fmt"
	"strings"
	"testing"
)

func TestRefs(t *testing.T) {
	for text, want := range map[string]string{
		"[core]\n hooksPath = .husky/_":                                          "1:.husky/_",
		"[core]\n attributesFile = ~/a\n excludesFile = b":                       "3:~/a 3:b",
		"[include]\n path = x\n[includeIf \"gitdir:/a/\"]\n path=y":              "4:x 4:y",
		"[core]\n fsmonitor = true\n pager = less -R\n editor = vi":              "",
		"[core]\n fsmonitor = \"sh -c 'exec tools/f.sh 2'\"":                     "2:tools/f.sh",
		"[core]\n sshCommand = $HOME/bin/ssh -i key.pem":                         "2:~/bin/ssh 2:key.pem",
		"[filter \"x\"]\n clean = python clean.py\n required = true":             "2:clean.py",
		"[filter \"lfs\"]\n clean = git-lfs clean -- %f":                         "",
		"[credential]\n helper = !./c\n[credential \"https://x\"]\n helper = /d": "2:./c 2:/d",
		"[alias]\n t = !tools/t.sh\n[mergetool \"m\"]\n cmd = tools/m":           "",
		"[gpg \"ssh\"]\n program = ./g\n[pager]\n log = ./p":                     "2:./g 2:./p",
		"[core]\n hooksPath": "",
	} {
		list, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range Refs(list) {
			got = append(got, fmt.Sprintf("%d:%s", r.Kind, r.Path))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q: %s, want %s", text, s, want)
		}
	}
}

func TestRefAbs(t *testing.T) {
	for path, want := range map[string]string{"a/../b": "/w/b", "/x": "/x", "~/h": "/home/u/h", "~": "/home/u", "~other/h": "", "%(prefix)/x": ""} {
		if got, _ := (Ref{Path: path}).Abs("/w", "/home/u"); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if _, ok := (Ref{Path: "~/x"}).Abs("/w", ""); ok {
		t.Error("without a home")
	}
}
