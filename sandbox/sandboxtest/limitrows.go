package sandboxtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
)

// counted says why limits are not set by cgroups here, with their counters.
func counted(e *Env) string {
	for _, g := range e.Report.Gaps {
		if g.Guarantee == sandbox.GapLimits {
			return g.Why
		}
	}
	return ""
}

// countedOrContained is for the number of processes, which contained levels limit on every host.
func countedOrContained(e *Env) string {
	if e.Level.Contained() {
		return ""
	}
	return counted(e)
}

var limitRows = []Row{
	{"R02", "a fork bomb", "DDD", func(e *Env) Verdict {
		s, alive := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{Pids: 64}}), e.bystander()
		c := shell(":(){ sleep 0.05; : | : & }; sleep 987658 & : & sleep 1")
		c.Timeout = 2 * time.Second
		o := e.RunIn(s, c)
		if !o.PidsHit && counted(e) == "" {
			e.T.Errorf("limit not reported: %+v", o.Result)
		}
		if !strings.Contains(o.Stderr, "Resource temporarily unavailable") {
			e.T.Errorf("no limit was felt: %.300s", o.Stderr)
		}
		if o := e.RunIn(s, shell("echo alive")); o.Stdout != "alive\n" {
			e.T.Errorf("next command: %+v", o)
		}
		alive()
		return waitGone("987658")
	}, countedOrContained},
	{"R03", "a memory bomb", "DDD", func(e *Env) Verdict {
		s, alive := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{MemoryBytes: 64 << 20}}), e.bystander()
		o := e.RunIn(s, shell("x=$(head -c 400000000 /dev/zero | tr '\\0' x); echo ${#x}"))
		if o.Stdout == "400000000\n" {
			return Allowed
		}
		if !o.OOMKilled {
			e.T.Errorf("not reported: %+v %s", o.Result, o.Stderr)
		}
		if o := e.RunIn(s, shell("echo alive")); o.Stdout != "alive\n" || o.OOMKilled {
			e.T.Errorf("next command: %+v", o)
		}
		alive()
		return Denied
	}, counted},
	{"R03b", "more processor time than allowed", "DDD", func(e *Env) Verdict {
		s := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{CPU: 200}})
		c := shell("while :; do :; done")
		c.Timeout = time.Second
		o := e.RunIn(s, c)
		if used := o.UserTime + o.SystemTime; used > 500*time.Millisecond {
			e.T.Logf("used %v of 1 s", used)
			return Allowed
		}
		return Denied
	}, counted},
	{"R04", "fill /tmp beyond its cap", "DD-", func(e *Env) Verdict {
		s := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{TmpBytes: 8 << 20}})
		o := e.RunIn(s, shell("head -c 20000000 /dev/zero >/tmp/big; stat -c %s /tmp/big"))
		if o.Stdout == "20000000\n" || !strings.Contains(o.Stderr, "No space left") {
			e.T.Logf("%+v", o)
			return Allowed
		}
		return Denied
	}, nil},
	{"R04b", "write a file larger than allowed", "DDD", func(e *Env) Verdict {
		s := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{FileBytes: 1 << 20}})
		path := filepath.Join(e.WS, "r04b")
		defer os.Remove(path)
		o := e.RunIn(s, shell("head -c 3000000 /dev/zero >"+path+"; true"))
		if fi, err := os.Stat(path); err == nil && fi.Size() > 1<<20 {
			e.T.Logf("%+v", o)
			return Allowed
		}
		return Denied
	}, nil},
	{"R04c", "fill the disk through the workspace", "-DD", fillDisk, sharedDisk},
}

// bystander starts a command of another sandbox; the function returned fails the test unless it is still as it was.
func (e *Env) bystander() (alive func()) {
	p, err := e.S.Start(context.Background(), sandbox.Cmd{Argv: []string{"cat"}, Stdin: sandbox.StdinPipe, Env: []string{"PATH=/usr/bin:/bin"}})
	e.must(err)
	return func() {
		_, err := p.Stdin().Write([]byte("alive"))
		p.Stdin().Close()
		if o := Finish(e.T, p); err != nil || o.ExitCode != 0 || o.Stdout != "alive" {
			e.T.Errorf("another sandbox's command: %v, %+v", err, o)
		}
	}
}
