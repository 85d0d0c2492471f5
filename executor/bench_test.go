package executor_test

import (
	"context"
	"io"
	"path/filepath"
	"testing"

	"github.com/heddle-dev/heddle/executor/executortest"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/sandboxtest"
)

// BenchmarkTrueThroughExecutor starts /bin/true over a unix socket and waits for
// its result. Its distance from BenchmarkTrueInSandbox is what the executor costs.
func BenchmarkTrueThroughExecutor(b *testing.B) {
	r := newRig(b)
	r.ctx = context.Background()
	warm := r.action()
	warm.Kind = &executorv1.Action_Prepare{Prepare: &executorv1.Prepare{}}
	r.do(warm)
	for b.Loop() {
		a := r.action()
		a.Kind = &executorv1.Action_StartProcess{StartProcess: &executorv1.StartProcess{
			Argv: []string{"/bin/true"}, Cwd: r.ws, Env: []string{"PATH=/usr/bin:/bin"}, MergeOutput: true}}
		if res := r.do(a).GetProcess(); res == nil || res.GetExitCode() != 0 {
			b.Fatalf("result: %v", r.result(a.GetActionId()))
		}
	}
}

// BenchmarkTrueInSandbox is the same command without executor.
func BenchmarkTrueInSandbox(b *testing.B) {
	ws := b.TempDir()
	m, err := sandbox.NewManager(b.Context(), sandbox.Config{StateDir: filepath.Join(b.TempDir(), "state"), GuestPath: sandboxtest.Helper(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = m.Close(context.Background()) }()
	s, err := m.Acquire(b.Context(), "thread/1", sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p, err := s.Start(b.Context(), sandbox.Cmd{Argv: []string{"/bin/true"}, Env: []string{"PATH=/usr/bin:/bin"}, MergeStderr: true})
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, p.Stdout())
		if _, err := p.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
		p.Stdout().Close()
	}
}

// BenchmarkOutput moves 16 MiB of output in pieces of 1 KiB.
func BenchmarkOutput(b *testing.B) {
	r := newRig(b)
	r.ctx = context.Background()
	const size = 16 << 20
	b.SetBytes(size)
	for b.Loop() {
		a := r.shell("dd if=/dev/zero bs=1024 count=16384 status=none")
		r.send(executortest.Do(a))
		if got := r.result(a.GetActionId()).GetProcess().GetStdoutBytes(); got != size {
			b.Fatalf("%d bytes", got)
		}
		r.s.ForgetOutput(a.GetActionId())
	}
}
