package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
)

// denyRows are about paths that must not be read.
var denyRows = []Row{
	{"F26", "read what a pattern denies, by its name", "DDA", readDenied("cat .env pkg/.env pkg/deep/er/.env"), nil},
	{"F26b", "by the name of a folder on the way that was changed", "DDA", readDenied("mv pkg p2; cat p2/.env p2/deep/er/.env; mv p2 pkg"), nil},
	{"F26c", "by a link to it", "DDA", readDenied("ln -s pkg/.env l; cat l; ln pkg/.env hl; cat hl; cp -a pkg/.env c; cat c"), nil},
	{"F26d", "after it was moved, removed or replaced", "DDA", readDenied("mv pkg/.env m; cat m; rm -f .env; cat .env; git mv pkg/.env m2 2>/dev/null; cat m2"), nil},
	{"F26e", "by /proc and by its number", "DDA", readDenied("cat /proc/self/cwd/pkg/.env /proc/1/cwd$PWD/pkg/.env /proc/1/root$PWD/pkg/.env; find . -name .env -exec cat {} +; exec 9<pkg; cat /proc/self/fd/9/.env"), nil},
	{"F26f", "what lies in a folder that is denied", "DDA", readDenied("cat secrets/a secrets/b/c; ls secrets; cp -r secrets s2; cat s2/a"), nil},
	{"F26g", "what a link that is denied leads to", "DDA", readDenied("cat target"), nil},
	{"F26h", "what is denied below the home", "DDA", readDenied("cat $HOME/.aws/credentials"), nil},
	{"F26i", "a file that is made after the sandbox", "DDA", func(e *Env) Verdict {
		s, ws := e.denied()
		e.RunIn(s, shell("true"))
		e.must(os.WriteFile(filepath.Join(ws, "pkg", "deep", ".env"), []byte("PRIVATE"), 0o644))
		e.must(os.Remove(filepath.Join(ws, ".env")))
		e.must(os.WriteFile(filepath.Join(ws, ".env"), []byte("PRIVATE"), 0o644)) // made anew
		return private(e.RunIn(s, shell("cd "+ws+"; cat pkg/deep/.env .env")))
	}, nil},
	{"F26j", "a file action that reads it", "DDA", func(e *Env) Verdict {
		s, ws := e.denied()
		e.must(os.Symlink("pkg/.env", filepath.Join(ws, "AGENTS.md")))
		e.must(os.Symlink("..", filepath.Join(ws, "pkg", "up")))
		v := Denied
		for _, path := range []string{"pkg/.env", "AGENTS.md", "pkg/up/pkg/.env", "secrets/b/c", "target"} {
			b, _ := s.FS().ReadFile(e.T.Context(), filepath.Join(ws, path), 100)
			if private(Output{Stdout: string(b)}) == Allowed {
				v = Allowed
			}
		}
		return v
	}, nil},
	{"F26k", "what is not denied can be read beside it", "AAA", func(e *Env) Verdict {
		s, ws := e.denied()
		if o := e.RunIn(s, shell("cd "+ws+"; cat pkg/env.txt .environment pkg/.env.example")); o.Stdout == "openopenopen" {
			return Allowed
		}
		return Denied
	}, nil},
	{"S16b", "ten thousand matches of a pattern", "DD-", tenThousandMatches, nil},
}

// denied makes a workspace with things that a policy denies.
func (e *Env) denied() (*sandbox.Sandbox, string) {
	ws, err := os.MkdirTemp(filepath.Dir(e.WS), "deny-")
	e.must(err)
	e.T.Cleanup(func() { os.RemoveAll(ws) })
	e.must(os.Chmod(ws, 0o755))
	for name, text := range map[string]string{".env": "PRIVATE", "pkg/.env": "PRIVATE", "pkg/deep/er/.env": "PRIVATE", "secrets/a": "PRIVATE", "secrets/b/c": "PRIVATE", "secrets/.env": "PRIVATE",
		"target": "PRIVATE", "pkg/env.txt": "open", ".environment": "open", "pkg/.env.example": "open"} {
		e.must(os.MkdirAll(filepath.Dir(filepath.Join(ws, name)), 0o755))
		e.must(os.WriteFile(filepath.Join(ws, name), []byte(text), 0o644))
	}
	e.must(os.Symlink("../target", filepath.Join(ws, "pkg", "token.link")))
	aws := filepath.Join(e.Home, ".aws")
	e.must(os.MkdirAll(aws, 0o755))
	e.must(os.WriteFile(filepath.Join(aws, "credentials"), []byte("PRIVATE"), 0o644))
	return e.Acquire(sandbox.Policy{Workspace: ws, DenyRead: []string{"**/.env", "secrets", "pkg/*.link", "~/.aws/cred*"}}), ws
}

func private(o Output) Verdict {
	if strings.Contains(o.Stdout, "PRIVATE") {
		return Allowed
	}
	return Denied
}

func readDenied(script string) func(e *Env) Verdict {
	return func(e *Env) Verdict {
		s, ws := e.denied()
		return private(e.RunIn(s, shell("HOME="+e.Home+"; cd "+ws+"; "+script)))
	}
}

// tenThousandMatches also bounds how long the start takes.
func tenThousandMatches(e *Env) Verdict {
	ws := e.WS + "-s16b"
	defer os.RemoveAll(ws)
	for i := range 100 {
		dir := filepath.Join(ws, fmt.Sprint("d", i))
		e.must(os.MkdirAll(dir, 0o755))
		for k := range 100 {
			e.must(os.WriteFile(filepath.Join(dir, fmt.Sprint(k, ".key")), []byte("PRIVATE"), 0o644))
		}
	}
	best, plain, look, first := time.Hour, time.Hour, time.Hour, time.Duration(0)
	for i := range 5 { // others use the machine too
		start := time.Now()
		e.Acquire(sandbox.Policy{Workspace: ws, Limits: sandbox.Limits{FileBytes: 1<<44 + 200 + int64(i)}})
		plain = min(plain, time.Since(start))
		start = time.Now()
		for k := range 10000 {
			wrote(filepath.Join(ws, fmt.Sprint("d", k/100), fmt.Sprint(k%100, ".key")))
		}
		look = min(look, time.Since(start))
		start = time.Now()
		s := e.Acquire(sandbox.Policy{Workspace: ws, DenyRead: []string{"**/*.key"}, Limits: sandbox.Limits{FileBytes: 1<<44 + 100 + int64(i)}})
		best = min(best, time.Since(start))
		start = time.Now()
		if o := e.RunIn(s, shell("echo ok")); o.Stdout != "ok\n" {
			e.T.Fatalf("%+v", o)
		}
		first = time.Since(start)
		if i > 0 {
			continue
		}
		if v := private(e.RunIn(s, shell("cd "+ws+"; cat d0/0.key d99/99.key d50/5*.key"))); v == Allowed {
			return v
		}
	}
	e.T.Logf("best start %v, without them %v, one look at each %v, a command %v", best, plain, look, first)
	if best > max(100*time.Millisecond, plain+40*look) { // on a machine as busy as it is
		e.T.Errorf("best start %v", best)
	}
	return Denied
}
