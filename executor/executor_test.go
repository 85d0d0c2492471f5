package executor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/executor"
	"github.com/heddle-dev/heddle/executor/executortest"
	"github.com/heddle-dev/heddle/executor/runner"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/sandboxtest"
)

// rig is an executor with real sandboxes and a control plane on a unix socket.
type rig struct {
	t     testing.TB
	ctx   context.Context
	plane *executortest.Plane
	s     *executortest.Session
	ws    string
	state string
	sock  string
	n     int
}

func newRig(tb testing.TB) *rig {
	tb.Helper()
	r := newPlane(tb)
	ex, closeAll, err := realExecutor(r.sock, r.state, sandboxtest.Helper(tb))
	if err != nil {
		tb.Fatal(err)
	}
	run, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ex.Run(run) }()
	tb.Cleanup(func() {
		stop()
		if err := errors.Join(<-done, closeAll()); err != nil {
			tb.Error("stop:", err)
		}
	})
	r.session()
	r.send(executortest.Assign(executortest.Lease("l1", "thread/1", 7, 30*time.Second, 15*time.Second)))
	return r
}

// newPlane is a rig whose executor is still missing.
func newPlane(tb testing.TB) *rig {
	tb.Helper()
	base, err := os.MkdirTemp("", "hx") //nolint:usetesting // a socket's path must be short
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(base) })
	r := &rig{t: tb, plane: executortest.New(), ws: filepath.Join(base, "ws"), state: filepath.Join(base, "state"), sock: filepath.Join(base, "s")}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	tb.Cleanup(cancel)
	r.ctx = ctx
	if err := os.Mkdir(r.ws, 0o755); err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("unix", r.sock)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.plane.Serve(l))
	return r
}

// realExecutor makes an executor with sandboxes of the kernel.
func realExecutor(sock, state, helper string) (*executor.Executor, func() error, error) {
	manager, err := sandbox.NewManager(context.Background(), sandbox.Config{StateDir: filepath.Join(state, "sandbox"), GuestPath: helper})
	if err != nil {
		return nil, nil, err
	}
	closeAll := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return manager.Close(ctx)
	}
	ex, err := executor.New(executor.Config{
		Addrs: []string{"unix://" + sock}, StateDir: state, Version: "test",
		Boxes: runner.Sandboxes{Manager: manager}, Report: &heddlev1.SandboxReport{Backend: "test"},
	})
	return ex, closeAll, err
}

// session takes the next session.
func (r *rig) session() {
	r.t.Helper()
	s, err := r.plane.Session(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	r.s = s
	r.t.Cleanup(func() {
		if err := s.Problem(); err != nil {
			r.t.Error(err)
		}
	})
}

func (r *rig) send(m *executorv1.ConnectResponse) {
	r.t.Helper()
	if err := r.s.Send(m); err != nil {
		r.t.Fatal(err)
	}
}

// action makes one in the workspace under the rig's lease.
func (r *rig) action() *executorv1.Action {
	r.n++
	return &executorv1.Action{
		ActionId: fmt.Sprintf("a%d", r.n), LeaseId: "l1", Epoch: 7, Attempt: 1, Workspace: r.ws,
		Policy: &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, Network: heddlev1.NetworkMode_NETWORK_MODE_OFF},
	}
}

func (r *rig) do(a *executorv1.Action) *executorv1.ActionResult {
	r.t.Helper()
	r.send(executortest.Do(a))
	return r.result(a.GetActionId())
}

func (r *rig) result(id string) *executorv1.ActionResult {
	r.t.Helper()
	res, err := r.s.Result(r.ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func (r *rig) shell(script string) *executorv1.Action {
	a := r.action()
	a.Kind = &executorv1.Action_StartProcess{StartProcess: &executorv1.StartProcess{
		Argv: []string{"/bin/bash", "-c", script}, Cwd: r.ws, Env: []string{"PATH=/usr/bin:/bin"}, MergeOutput: true}}
	return a
}

func (r *rig) plan(text string) *executorv1.Action {
	a := r.action()
	a.Kind = &executorv1.Action_PlanPatch{PlanPatch: &executorv1.PlanPatch{Patch: text, Cwd: r.ws}}
	return a
}

func (r *rig) write(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.ws, name), []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read(path string) string {
	r.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

// gone reports whether a process runs no more; a dead one that its new parent has
// not collected yet counts as gone.
func gone(pid int64) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

func TestProcess(t *testing.T) {
	r := newRig(t)
	a := r.shell("echo out; echo err >&2; exit 3")
	res := r.do(a).GetProcess()
	out, _ := r.s.Output(a.GetActionId(), 1)
	if res.GetExitCode() != 3 || string(out) != "out\nerr\n" || res.GetStdoutBytes() != 8 {
		t.Fatalf("exit %d, output %q, result %v", res.GetExitCode(), out, res)
	}
	if pid, err := r.s.Started(r.ctx, a.GetActionId()); err != nil || pid <= 0 {
		t.Fatalf("started: pid %d, %v", pid, err)
	}

	b := r.shell("echo out; echo err >&2; pwd")
	b.GetStartProcess().MergeOutput = false
	r.do(b)
	out, _ = r.s.Output(b.GetActionId(), 1)
	errs, _ := r.s.Output(b.GetActionId(), 2)
	if string(out) != "out\n"+r.ws+"\n" || string(errs) != "err\n" {
		t.Fatalf("separate streams: %q and %q", out, errs)
	}
}

func TestPatchPlanAndCommit(t *testing.T) {
	r := newRig(t)
	r.write("a.txt", "one\ntwo\nthree\n")
	r.write("b.txt", "b\n")
	r.write("c.txt", "c\n")
	if err := os.Chmod(filepath.Join(r.ws, "c.txt"), 0o751); err != nil {
		t.Fatal(err)
	}
	text := "*** Begin Patch\n*** Add File: new.txt\n+hello\n+world\n*** Update File: a.txt\n@@\n one\n-two\n+TWO\n three\n" +
		"*** Delete File: b.txt\n*** Update File: c.txt\n*** Move to: sub/d.txt\n@@\n-c\n+C\n*** End Patch"
	p := r.plan(text)
	plan := r.do(p).GetPatchPlan()
	if plan.GetRejected() != "" || plan.GetSummary() != "A new.txt\nM a.txt\nM sub/d.txt\nD b.txt\n" || len(plan.GetOutsideRoots()) != 0 {
		t.Fatalf("plan: %v", plan)
	}
	if r.read(filepath.Join(r.ws, "a.txt")) != "one\ntwo\nthree\n" {
		t.Fatal("planning wrote a file")
	}
	c := r.action()
	c.ActionHash = plan.GetPlanHash()
	c.Kind = &executorv1.Action_CommitPatch{CommitPatch: &executorv1.CommitPatch{Patch: text, Cwd: r.ws, PlanHash: plan.GetPlanHash(), BaseHashes: plan.GetBaseHashes()}}
	done := r.do(c).GetPatchCommitted()
	if done == nil || done.GetSummary() != plan.GetSummary() {
		t.Fatalf("commit: %v", r.result(c.GetActionId()))
	}
	for path, want := range map[string]string{"a.txt": "one\nTWO\nthree\n", "new.txt": "hello\nworld\n", "sub/d.txt": "C\n"} {
		if got := r.read(filepath.Join(r.ws, path)); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if info, err := os.Stat(filepath.Join(r.ws, "sub/d.txt")); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("mode of the moved file: %v, %v", info.Mode(), err)
	}
	names, _ := os.ReadDir(r.ws)
	if len(names) != 3 {
		t.Errorf("left in the workspace: %v", names)
	}
	// The same commit again is answered, not done.
	r.s.Forget(c.GetActionId())
	if again := r.do(c); again.GetError().GetCode() != "refused" {
		t.Errorf("repeated commit: %v", again)
	}
	// A plan whose files have changed is refused.
	c2 := r.action()
	c2.Kind = c.Kind
	if res := r.do(c2); res.GetError().GetCode() != "refused" {
		t.Errorf("commit of a stale plan: %v", res)
	}
}

// I7: a patch, a folder, a base or a policy that differs from what was approved is
// refused, and no file is written.
func TestApprovedPatchIsChecked(t *testing.T) {
	r := newRig(t)
	r.write("a.txt", "one\n")
	if err := os.Mkdir(filepath.Join(r.ws, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := func(line string) string {
		return "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+" + line + "\n*** Add File: new.txt\n+n\n*** End Patch"
	}
	plan := r.do(r.plan(text("two"))).GetPatchPlan()
	for name, change := range map[string]func(a *executorv1.Action, c *executorv1.CommitPatch){
		"patch":       func(_ *executorv1.Action, c *executorv1.CommitPatch) { c.Patch = text("three") },
		"folder":      func(_ *executorv1.Action, c *executorv1.CommitPatch) { c.Cwd = filepath.Join(r.ws, "sub") },
		"base hashes": func(_ *executorv1.Action, c *executorv1.CommitPatch) { c.BaseHashes = map[string][]byte{"/x": {1}} },
		"plan hash":   func(_ *executorv1.Action, c *executorv1.CommitPatch) { c.PlanHash = []byte("another") },
		"approval":    func(a *executorv1.Action, _ *executorv1.CommitPatch) { a.ActionHash = []byte("another") },
		"roots":       func(a *executorv1.Action, _ *executorv1.CommitPatch) { a.Policy.WritableRoots = []string{"/var/tmp"} },
		"network": func(a *executorv1.Action, _ *executorv1.CommitPatch) {
			a.Policy.Network = heddlev1.NetworkMode_NETWORK_MODE_FULL
		},
	} {
		a := r.action()
		c := &executorv1.CommitPatch{Patch: text("two"), Cwd: r.ws, PlanHash: plan.GetPlanHash(), BaseHashes: plan.GetBaseHashes()}
		a.ActionHash, a.Kind = plan.GetPlanHash(), &executorv1.Action_CommitPatch{CommitPatch: c}
		change(a, c)
		if res := r.do(a); res.GetError().GetCode() != "refused" {
			t.Errorf("another %s under the same approval: %v", name, res)
		}
		if _, err := os.Stat(filepath.Join(r.ws, "new.txt")); err == nil || r.read(filepath.Join(r.ws, "a.txt")) != "one\n" {
			t.Fatalf("another %s: a file was written", name)
		}
	}
}

func TestPatchOutsideNeedsGrant(t *testing.T) {
	r := newRig(t)
	other, err := os.MkdirTemp("/var/tmp", "hx-other") //nolint:usetesting // must be outside of /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	path := filepath.Join(other, "deep", "f.txt")
	text := "*** Begin Patch\n*** Add File: " + path + "\n+x\n*** Add File: in.txt\n+y\n*** End Patch"
	plan := r.do(r.plan(text)).GetPatchPlan()
	if len(plan.GetOutsideRoots()) != 1 || plan.GetOutsideRoots()[0] != path {
		t.Fatalf("outside roots: %v", plan.GetOutsideRoots())
	}
	commit := func(granted ...string) *executorv1.ActionResult {
		c := r.action()
		c.Kind = &executorv1.Action_CommitPatch{CommitPatch: &executorv1.CommitPatch{
			Patch: text, Cwd: r.ws, PlanHash: plan.GetPlanHash(), BaseHashes: plan.GetBaseHashes(), GrantedPaths: granted}}
		return r.do(c)
	}
	if res := commit(); res.GetError().GetCode() != "refused" {
		t.Fatalf("without grant: %v", res)
	}
	if _, err := os.Stat(filepath.Join(r.ws, "in.txt")); err == nil {
		t.Fatal("a refused commit wrote a file")
	}
	if res := commit(path); res.GetPatchCommitted() == nil {
		t.Fatalf("with grant: %v", res)
	}
	if r.read(path) != "x\n" || r.read(filepath.Join(r.ws, "in.txt")) != "y\n" {
		t.Error("content")
	}
}

func TestInspectAndRead(t *testing.T) {
	r := newRig(t)
	r.write("AGENTS.md", "rules\n")
	a := r.action()
	a.Kind = &executorv1.Action_Inspect{Inspect: &executorv1.Inspect{Cwd: r.ws, InstructionNames: []string{"NONE.md", "AGENTS.md"}, MaxBytes: 100}}
	in := r.do(a).GetInspection()
	if !in.GetCwdExists() || len(in.GetInstructions()) != 1 || in.GetInstructions()[0].GetContent() != "rules\n" || in.GetShell() == "" {
		t.Fatalf("inspection: %v", in)
	}
	b := r.action()
	b.Kind = &executorv1.Action_ReadFile{ReadFile: &executorv1.ReadFile{Path: filepath.Join(r.ws, "AGENTS.md"), MaxBytes: 3}}
	if f := r.do(b).GetFileContent(); string(f.GetData()) != "rul" || !f.GetTruncated() {
		t.Fatalf("file: %v", f)
	}
	c := r.action()
	c.Kind = &executorv1.Action_Prepare{Prepare: &executorv1.Prepare{}}
	if p := r.do(c).GetPrepared(); p.GetReport().GetBackend() != "test" {
		t.Fatalf("prepared: %v", p)
	}
}

func TestReconnectKeepsProcessAndOutput(t *testing.T) {
	r := newRig(t)
	a := r.shell("echo first; while [ ! -e go ]; do sleep 0.02; done; echo second; exit 4")
	r.send(executortest.Do(a))
	if err := r.s.OutputBytes(r.ctx, a.GetActionId(), 1, 6); err != nil {
		t.Fatal(err)
	}
	r.s.Kick()
	r.session()
	reg := r.s.Register
	if len(reg.GetLeases()) != 1 || len(reg.GetRunning()) != 1 || reg.GetRunning()[0].GetActionId() != a.GetActionId() || reg.GetRunning()[0].GetOutputBytes() < 6 {
		t.Fatalf("announced: %v", reg)
	}
	r.send(executortest.Assign(reg.GetLeases()...))
	r.write("go", "")
	if res := r.result(a.GetActionId()).GetProcess(); res.GetExitCode() != 4 || res.GetStdoutBytes() != 13 {
		t.Fatalf("result: %v", res)
	}
	if out, _ := r.s.Output(a.GetActionId(), 1); !strings.HasSuffix(string(out), "second\n") || len(out) != 13 {
		t.Fatalf("output on the second session: %q", out)
	}
}

func TestRevokeEndsProcessesThenConfirms(t *testing.T) {
	r := newRig(t)
	a := r.shell("sleep 600 & sleep 600")
	a.Policy.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
	r.send(executortest.Do(a))
	pid, err := r.s.Started(r.ctx, a.GetActionId())
	if err != nil {
		t.Fatal(err)
	}
	r.send(executortest.Revoke("l1", 7, "thread was closed"))
	if _, err := r.s.Released(r.ctx, "l1"); err != nil {
		t.Fatal(err)
	}
	if !gone(pid) {
		t.Errorf("process %d is still there after the release", pid)
	}
	if e := r.result(a.GetActionId()).GetError(); e.GetCode() != "cancelled" || e.GetMessage() != "thread was closed" {
		t.Errorf("result: %v", e)
	}
	if res := r.do(r.shell("true")); res.GetError().GetCode() != "refused" {
		t.Errorf("action under a revoked lease: %v", res)
	}
}

// lateResult waits for a result on this session or, once that ended, on the next.
func (r *rig) lateResult(id string) *executorv1.ActionResult {
	r.t.Helper()
	for {
		res, err := r.s.Result(r.ctx, id)
		if err == nil {
			return res
		}
		r.session() // fails when the time is up
	}
}
