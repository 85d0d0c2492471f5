package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
)

// caseRows are things that users of other sandboxes met.
var caseRows = []Row{
	{"S01", "a command that fails is no refusal", "AAA", func(e *Env) Verdict {
		if o := e.RunIn(e.S, sandbox.Cmd{Argv: []string{"bash", "-c", "false"}}); o.ExitCode == 1 && o.Stderr == "" && len(o.Violations) == 0 {
			return Allowed
		}
		return Denied
	}, nil},
	{"S02", "grep without a match is no refusal", "AAA", func(e *Env) Verdict {
		if o := e.RunIn(e.S, sandbox.Cmd{Argv: []string{"grep", "zzz", "/etc/hostname"}}); o.ExitCode == 1 && o.Stderr == "" && len(o.Violations) == 0 {
			return Allowed
		}
		return Denied
	}, nil},
	{"S05", "outlive an end from outside", "DDD", func(e *Env) Verdict {
		p, err := e.S.Start(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo $$; exec sleep 987665"}, Env: []string{"PATH=/usr/bin:/bin"}})
		e.must(err)
		_, _ = p.Stdout().Read(make([]byte, 16))
		e.must(p.Kill())
		if o := Finish(e.T, p); !o.Killed {
			e.T.Errorf("%+v", o.Result)
		}
		if survivors("sleep 987665") > 0 { // at once: the answer comes after
			return Allowed
		}
		return Denied
	}, nil},
	{"S06", "without a network a request fails at once", "DD-", func(e *Env) Verdict {
		start := time.Now()
		o := e.RunIn(e.S, sandbox.Cmd{Argv: []string{e.Tool, "dial", "tcp", "example.com:443"}})
		if time.Since(start) > 2*time.Second {
			e.T.Errorf("took %v: %s", time.Since(start), o.Stdout)
		}
		return succeeded(e, o)
	}, nil},
	{"S07", "connect to a host's socket by file and by name is refused, and told", "DDA", func(e *Env) Verdict {
		path := listen(e, "unix", freshSocket(e))
		byFile := e.Attack("dial", "unix", path)
		name := listen(e, "unix", fmt.Sprintf("@heddle-s07-%d", time.Now().UnixNano()))
		byName := e.Attack("dial", "unix", name)
		if e.Level.Contained() && (len(byFile.Violations) != 1 || !strings.Contains(byFile.Stdout, "permission denied")) {
			e.T.Errorf("%+v", byFile)
		}
		if e.Level.Contained() && (len(byName.Violations) != 1 || byName.Violations[0].Path != name) {
			e.T.Errorf("%+v", byName)
		}
		if o := e.Attack("dial", "unix", "@heddle-s07-nobody"); len(o.Violations) != 0 || o.ExitCode == 0 {
			e.T.Errorf("a name that nobody has: %+v", o)
		}
		if (byFile.ExitCode == 0) != (byName.ExitCode == 0) {
			e.T.Errorf("by file %+v, by name %+v", byFile, byName)
		}
		return succeeded(e, byFile)
	}, unsupervised},
	{"S15", "a workspace of another user", "DAA", func(e *Env) Verdict {
		ws := e.WS + "-s15"
		e.must(os.Mkdir(ws, 0o755))
		defer os.RemoveAll(ws)
		old := filepath.Join(ws, "old")
		e.must(os.WriteFile(old, nil, 0o644))
		if e.Root {
			e.must(os.Chown(old, 12345, 12345))
			e.must(os.Chown(ws, 12345, 12345))
		}
		e.RunIn(e.Acquire(policyFor(ws)), shell("cd "+ws+"; echo x > f; echo x > old; mkdir d && mv f d/f"))
		v := wrote(filepath.Join(ws, "d", "f"))
		if b, err := os.ReadFile(old); err != nil || (string(b) == "x\n") != (v == Allowed) {
			e.T.Errorf("a new file %c, an old one %q, %v", v, b, err)
		}
		return v
	}, nil},
	{"S16", "three hundred linked worktrees", "AAA", func(e *Env) Verdict {
		ws := e.WS + "-s16"
		defer os.RemoveAll(ws)
		for i := range 300 {
			dir := filepath.Join(ws, ".git", "worktrees", fmt.Sprint("w", i))
			tree := filepath.Join(ws, "trees", fmt.Sprint("w", i))
			e.must(os.MkdirAll(dir, 0o755))
			e.must(os.MkdirAll(tree, 0o755))
			e.must(os.WriteFile(filepath.Join(dir, "gitdir"), []byte(tree+"/.git\n"), 0o644))
			e.must(os.WriteFile(filepath.Join(dir, "commondir"), []byte("../..\n"), 0o644))
			e.must(os.WriteFile(filepath.Join(tree, ".git"), []byte("gitdir: "+dir+"\n"), 0o644))
		}
		best := time.Hour
		for i := range 5 { // others use the machine too
			start := time.Now()
			s := e.Acquire(sandbox.Policy{Workspace: ws, Limits: sandbox.Limits{FileBytes: 1<<44 + int64(i)}})
			best = min(best, time.Since(start))
			if o := e.RunIn(s, shell("echo ok")); o.Stdout != "ok\n" {
				e.T.Logf("%+v", o)
				return Denied
			}
		}
		if best > 100*time.Millisecond {
			e.T.Logf("best start %v", best)
			return Denied
		}
		return Allowed
	}, nil},
	{"S18", "input ends when it is closed, and a late signal is an error", "AAA", func(e *Env) Verdict {
		p, err := e.S.Start(context.Background(), sandbox.Cmd{Argv: []string{"cat"}, Stdin: sandbox.StdinPipe})
		e.must(err)
		_, err = p.Stdin().Write([]byte("all of it"))
		e.must(err)
		e.must(p.Stdin().Close())
		o := Finish(e.T, p)
		if err := p.Signal(os.Interrupt); err == nil {
			e.T.Error("a signal to a finished command is no error")
		}
		if o.Stdout == "all of it" && o.ExitCode == 0 {
			return Allowed
		}
		return Denied
	}, nil},
	{"F01o", "fifty megabytes of output are kept", "AAA", func(e *Env) Verdict {
		o := e.Sh("head -c 50000000 /dev/zero | tr '\\0' x")
		if len(o.Stdout) == 50000000 && strings.Count(o.Stdout, "x") == 50000000 {
			return Allowed
		}
		return Denied
	}, nil},
	{"F02o", "bytes that are no text", "AAA", func(e *Env) Verdict {
		if o := e.Sh(`printf '\377\376\200ok\n'`); o.Stdout == "\xff\xfe\x80ok\n" {
			return Allowed
		}
		return Denied
	}, nil},
	{"G01", "programs of a build work", "AAA", func(e *Env) Verdict {
		if _, err := exec.LookPath("cc"); err != nil {
			e.T.Log("without a compiler")
		}
		o := e.Sh(`d=$(mktemp -d) && cd $d && echo 'int main(){return 7;}' > a.c && if command -v cc >/dev/null; then cc -o a a.c && ./a; test $? = 7; fi && tar cf t.tar a.c && mkdir x && tar xf t.tar -C x && cmp a.c x/a.c`)
		if o.ExitCode == 0 {
			return Allowed
		}
		e.T.Logf("%+v", o)
		return Denied
	}, nil},
}
