package runner

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/executor/login"
	"github.com/heddle-dev/heddle/executor/output"
	"github.com/heddle-dev/heddle/proto/failpoint"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
	"github.com/heddle-dev/heddle/sandbox"
)

const (
	readSize    = 32 << 10
	defaultRows = 24
	defaultCols = 80
	// maxProbe bounds what a profile and the question after it may print.
	maxProbe = 4 << 20
	// drainTime bounds reading the last output of a process that was ended from
	// outside.
	drainTime = time.Second
)

var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// process starts a command and follows it to its end.
func (r *Runner) process(ctx context.Context, a *action, m *executorv1.Action, p *executorv1.StartProcess, res *executorv1.ActionResult) *heddlev1.ActionError {
	sum := actionhash.Process(p.GetArgv(), p.GetCwd(), p.GetEnv(), p.GetTty(), m.GetPolicy(), m.GetWorkspace())
	if err := checkHash(m.GetActionHash(), sum); err != nil {
		return failure(ctx, err, codeRefused)
	}
	cmd, err := command(p)
	if err != nil {
		return failure(ctx, err, codeRefused)
	}
	policy := r.policy(m)
	b, err := r.box(ctx, a.lease, policy)
	if err != nil {
		return failure(ctx, err, codeSpawnFailed)
	}
	if !policy.Level.Contained() {
		// Nobody approved a profile that a contained command may have written.
		cmd.Argv = login.WithoutPlanted(cmd.Argv, cmd.Env, append([]string{m.GetWorkspace()}, m.GetPolicy().GetWritableRoots()...))
	}
	cmd = r.logins.Command(ctx, boxKey(a.lease, policy), cmd, runIn(b))
	if a.network != nil {
		cmd.Network = a.network.hooks()
	}
	proc, err := b.Start(ctx, cmd)
	if err != nil {
		return failure(ctx, err, codeSpawnFailed)
	}
	failpoint.Hit("executor/started")
	return r.follow(ctx, a, proc, p, res)
}

// boxKey identifies the sandbox of an action.
func boxKey(l *lease, p sandbox.Policy) string {
	return l.key + " " + p.Key()
}

// runIn runs short commands in b for their output.
func runIn(b Box) login.Run {
	return func(ctx context.Context, c sandbox.Cmd) ([]byte, bool) {
		proc, err := b.Start(ctx, c)
		if err != nil {
			return nil, false
		}
		defer context.AfterFunc(ctx, func() { _ = proc.Kill() })()
		errs := make(chan struct{})
		go func() {
			defer close(errs)
			_, _ = io.Copy(io.Discard, proc.Stderr())
		}()
		out, rerr := io.ReadAll(io.LimitReader(proc.Stdout(), maxProbe))
		if len(out) == maxProbe {
			_ = proc.Kill()
		}
		<-errs
		proc.Stdout().Close()
		proc.Stderr().Close()
		end, err := proc.Wait(context.WithoutCancel(ctx))
		return out, err == nil && rerr == nil && end.ExitCode == 0 && end.Signal == 0 && !end.TimedOut && ctx.Err() == nil
	}
}

// checkHash compares an approved hash, when there is one, with that of what is
// about to be done.
func checkHash(approved, actual []byte) error {
	if len(approved) == 0 || subtle.ConstantTimeCompare(approved, actual) == 1 {
		return nil
	}
	return refusedf("the approval is for another action: approved %s, asked for %s", hex.EncodeToString(approved), hex.EncodeToString(actual))
}

func command(p *executorv1.StartProcess) (sandbox.Cmd, error) {
	if len(p.GetArgv()) == 0 || p.GetArgv()[0] == "" {
		return sandbox.Cmd{}, refusedf("the command is empty")
	}
	for _, s := range p.GetArgv() {
		if strings.ContainsRune(s, 0) {
			return sandbox.Cmd{}, refusedf("an argument of the command contains a NUL byte")
		}
	}
	c := sandbox.Cmd{
		Argv: p.GetArgv(), Env: p.GetEnv(), Dir: p.GetCwd(), TTY: p.GetTty(), MergeStderr: p.GetMergeOutput(),
		Timeout: time.Duration(p.GetTimeoutMs()) * time.Millisecond,
	}
	if p.GetStdin() == executorv1.StdinMode_STDIN_MODE_PIPE {
		c.Stdin = sandbox.StdinPipe
	}
	if c.TTY {
		c.Rows, c.Cols = size(p.GetRows(), defaultRows), size(p.GetCols(), defaultCols)
	}
	return c, nil
}

func size(n int32, otherwise uint16) uint16 {
	if n <= 0 || n > 0xffff {
		return otherwise
	}
	return uint16(n)
}

// follow reads a process's output, waits for the end of everything it started
// and fills in the result.
func (r *Runner) follow(ctx context.Context, a *action, proc Process, p *executorv1.StartProcess, res *executorv1.ActionResult) *heddlev1.ActionError {
	outs := []io.ReadCloser{proc.Stdout()}
	if proc.Stderr() != nil {
		outs = append(outs, proc.Stderr())
	}
	streams := make([]*output.Stream, len(outs))
	for i := range outs {
		streams[i] = output.New(output.Config{
			Spool: r.spoolPath(a, i+1), Cap: p.GetOutputCap(), Direct: p.GetDirect(), Notify: a.poke,
		})
	}
	a.running(proc, streams)
	defer context.AfterFunc(ctx, func() { _ = proc.Kill() })()

	readers := make(chan error, len(outs))
	for i, out := range outs {
		go func() { readers <- r.copyOutput(proc, out, streams[i]) }()
	}
	// Wait ends by itself once everything was killed; ctx must not cut it short,
	// because the result promises that nothing of the command is left.
	end, err := proc.Wait(context.WithoutCancel(ctx))
	if err != nil {
		return failure(ctx, err, codeSandboxLost)
	}
	rerr := drain(ctx, outs, streams, readers)
	if ctx.Err() != nil {
		return failure(ctx, context.Cause(ctx), codeCancelled)
	}
	if rerr != nil {
		return failure(ctx, rerr, codeIO)
	}
	res.Outcome = &executorv1.ActionResult_Process{Process: processResult(end, streams)}
	return nil
}

func (r *Runner) spoolPath(a *action, stream int) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			return c
		}
		return '_'
	}, a.id)
	return filepath.Join(r.cfg.SpoolDir, fmt.Sprintf("%s.%d.%d", name, a.epoch, stream))
}

// running publishes a started process: delivery tells of it, controls reach it.
func (a *action) running(proc Process, streams []*output.Stream) {
	a.mu.Lock()
	a.started, a.pid, a.proc, a.streams = true, int64(proc.PID()), proc, streams
	asked := a.size
	a.mu.Unlock()
	a.poke()
	if w := proc.Stdin(); w != nil && a.input != nil {
		a.input.attach(w)
	}
	if asked != nil {
		resize(proc, asked)
	}
}

// copyOutput reads one stream to its end. An output that cannot be kept ends the
// process: it is never cut without a word.
func (r *Runner) copyOutput(proc Process, from io.Reader, to *output.Stream) error {
	defer to.Close()
	buf := readBuffers.Get().(*[readSize]byte)
	defer readBuffers.Put(buf)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				_ = proc.Kill()
				if errors.Is(werr, output.ErrClosed) {
					return nil
				}
				return werr
			}
		}
		if err != nil {
			return nil // every error of a pipe or terminal whose other end is gone is its end
		}
	}
}

// drain waits for the readers. For an action that was ended from outside it does
// not wait for acknowledgements or for a stream that does not end.
func drain(ctx context.Context, outs []io.ReadCloser, streams []*output.Stream, readers <-chan error) error {
	var errs []error
	forced := ctx.Done()
	var late <-chan time.Time
	for left := len(outs); left > 0; {
		select {
		case err := <-readers:
			errs = append(errs, err)
			left--
		case <-forced:
			forced, late = nil, time.After(drainTime)
		case <-late:
			late = nil
			for i := range outs {
				streams[i].Discard()
				outs[i].Close()
			}
		}
	}
	for _, o := range outs {
		o.Close()
	}
	return errors.Join(errs...)
}

func processResult(end sandbox.Result, streams []*output.Stream) *executorv1.ProcessResult {
	out := streams[0].State()
	res := &executorv1.ProcessResult{
		ExitCode: int32(end.ExitCode), DurationMs: end.Duration.Milliseconds(),
		StdoutBytes: out.Size, DroppedBytes: out.Dropped,
		Verdict: &heddlev1.ProcessVerdict{
			Signal: int32(end.Signal), TimedOut: end.TimedOut, OomKilled: end.OOMKilled,
			PidsHit: end.PidsHit, DiskLow: end.DiskLow, SandboxLost: end.SandboxLost,
		},
	}
	if len(streams) > 1 {
		e := streams[1].State()
		res.StderrBytes = e.Size
		res.DroppedBytes += e.Dropped
	}
	if end.Leftovers {
		res.Verdict.Killed = 1
	}
	for _, v := range end.Violations {
		what := v.What
		if v.Quarantine != "" {
			what += "; moved to " + v.Quarantine
		}
		res.Verdict.Violations = append(res.Verdict.Violations, &heddlev1.PathViolation{Path: valid(v.Path), What: valid(what)})
	}
	return res
}
