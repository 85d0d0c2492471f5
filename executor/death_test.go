package executor_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/executor/executortest"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox/sandboxtest"
)

const childEnv = "EXECUTOR_TEST_CHILD"

// TestMain is also an executor process of its own, to be killed and stopped.
func TestMain(m *testing.M) {
	args := strings.Split(os.Getenv(childEnv), "\n")
	if len(args) != 3 {
		os.Exit(m.Run())
	}
	ex, _, err := realExecutor(args[0], args[1], args[2])
	if err == nil {
		err = ex.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// child starts an executor process and takes its session.
func (r *rig) child() *exec.Cmd {
	r.t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{r.sock, r.state, sandboxtest.Helper(r.t)}, "\n"))
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	r.session()
	return c
}

// waitGone waits until a process is gone.
func (r *rig) waitGone(pid int64, limit time.Duration) {
	r.t.Helper()
	for end := time.Now().Add(limit); !gone(pid); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("process %d is still there after %v", pid, limit)
		}
	}
}

// I5 and I3: an executor killed in the middle takes its commands with it; its
// successor says that their outcome is not known and runs nothing again.
func TestKilledExecutor(t *testing.T) {
	r := newPlane(t)
	c := r.child()
	r.send(executortest.Assign(executortest.Lease("l1", "thread/1", 7, 30*time.Second, 15*time.Second)))
	done := r.shell("echo done; exit 3")
	r.plane.HoldAcks.Store(true)
	r.do(done)
	a := r.shell("echo $$ >>pids; echo ready; sleep 600 & exec sleep 600")
	a.Policy.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
	r.send(executortest.Do(a))
	pid, err := r.s.Started(r.ctx, a.GetActionId())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.s.OutputBytes(r.ctx, a.GetActionId(), 1, len("ready\n")); err != nil {
		t.Fatal(err)
	}
	id := r.s.Register.GetExecutorId()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // killed
	r.waitGone(pid, 5*time.Second)

	r.child()
	if reg := r.s.Register; reg.GetExecutorId() != id || len(reg.GetRunning()) != 0 || len(reg.GetLeases()) != 0 {
		t.Fatalf("registered again: %v", reg)
	}
	r.send(executortest.Assign(executortest.Lease("l1", "thread/1", 7, 30*time.Second, 15*time.Second)))
	if e := r.result(a.GetActionId()).GetError(); e.GetCode() != "outcome_unknown" {
		t.Errorf("the running action: %v", e)
	}
	if res := r.result(done.GetActionId()).GetProcess(); res.GetExitCode() != 3 {
		t.Errorf("the finished action: %v", r.result(done.GetActionId()))
	}
	r.s.Forget(a.GetActionId())
	if e := r.do(a).GetError(); e.GetCode() != "outcome_unknown" {
		t.Errorf("the same action again: %v", r.result(a.GetActionId()))
	}
	if lines := strings.Count(r.read(filepath.Join(r.ws, "pids")), "\n"); lines != 1 {
		t.Errorf("the command ran %d times", lines)
	}
}

// D3: a stopped executor's commands end at the fence while it is still stopped.
func TestD3StoppedExecutorIsFenced(t *testing.T) {
	const fence = 2 * time.Second
	r := newPlane(t)
	c := r.child()
	r.send(executortest.Assign(executortest.Lease("l1", "thread/1", 7, fence, time.Second)))
	a := r.shell("while :; do date +%s%N >side; sleep 0.05; done")
	r.send(executortest.Do(a))
	if _, err := r.s.Started(r.ctx, a.GetActionId()); err != nil {
		t.Fatal(err)
	}
	granted := time.Now()
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(granted.Add(fence + 500*time.Millisecond)))
	first := r.read(filepath.Join(r.ws, "side"))
	<-time.After(fence)
	if last := r.read(filepath.Join(r.ws, "side")); last != first {
		t.Errorf("written after the fence: %q, then %q", first, last)
	}
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	res := r.lateResult(a.GetActionId())
	if res.GetEpoch() != 7 || (res.GetError().GetCode() != "executor_lost" && !res.GetProcess().GetVerdict().GetSandboxLost()) {
		t.Errorf("result: %v", res)
	}
}
