package executor_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/executor/executortest"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (r *rig) output(id string) string {
	data, _ := r.s.Output(id, 1)
	return string(data)
}

func (r *rig) control(id string, c *executorv1.ActionControl) {
	r.t.Helper()
	c.ActionId, c.LeaseId, c.Epoch = id, "l1", 7
	r.send(executortest.Control(c))
}

func (r *rig) stdin(id string, seq uint64, data string, end bool) {
	r.t.Helper()
	r.control(id, &executorv1.ActionControl{Control: &executorv1.ActionControl_Stdin{Stdin: &executorv1.Stdin{WriteSeq: seq, Data: []byte(data), Close: end}}})
}

// S3: the time limit ends everything the command started.
func TestTimeoutIsExact(t *testing.T) {
	r := newRig(t)
	a := r.shell("mkfifo p; (while :; do echo x; sleep 0.1; done) >p & cat p")
	a.GetStartProcess().TimeoutMs = 700
	began := time.Now()
	res := r.do(a).GetProcess()
	if d := time.Since(began); d < 700*time.Millisecond || d > 2*time.Second {
		t.Errorf("answer after %v", d)
	}
	if !res.GetVerdict().GetTimedOut() || !strings.HasPrefix(r.output(a.GetActionId()), "x\n") {
		t.Errorf("result %v, output %q", res, r.output(a.GetActionId()))
	}
	_ = os.Remove(filepath.Join(r.ws, "p"))
}

// S4: output of a helper that outlives the shell is complete, and nothing is left.
func TestProcessSubstitutionReturns(t *testing.T) {
	r := newRig(t)
	a := r.shell("exec > >(tee -a out.log) 2>&1; echo hi")
	began := time.Now()
	r.do(a)
	if d := time.Since(began); d > 2*time.Second || r.output(a.GetActionId()) != "hi\n" || r.read(filepath.Join(r.ws, "out.log")) != "hi\n" {
		t.Errorf("after %v: %q", d, r.output(a.GetActionId()))
	}
}

// S5 and the interrupt of a process that ignores everything but a kill.
func TestInterruptOfAStubbornProcess(t *testing.T) {
	r := newRig(t)
	a := r.shell("trap '' INT TERM; echo ready; while :; do sleep 1; done")
	a.Policy.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
	r.send(executortest.Do(a))
	if err := r.s.OutputBytes(r.ctx, a.GetActionId(), 1, 6); err != nil {
		t.Fatal(err)
	}
	pid, err := r.s.Started(r.ctx, a.GetActionId())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r.control(a.GetActionId(), &executorv1.ActionControl{Control: &executorv1.ActionControl_Interrupt{Interrupt: &executorv1.Interrupt{}}})
	res := r.result(a.GetActionId()).GetProcess()
	if d := time.Since(began); d < 900*time.Millisecond || d > 1500*time.Millisecond {
		t.Errorf("ended after %v", d)
	}
	if res.GetVerdict().GetSignal() != 9 || !gone(pid) {
		t.Errorf("result %v, gone %v", res, gone(pid))
	}

	b := r.shell("exec sleep 600")
	r.send(executortest.Do(b))
	if _, err := r.s.Started(r.ctx, b.GetActionId()); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	r.control(b.GetActionId(), &executorv1.ActionControl{Control: &executorv1.ActionControl_Interrupt{Interrupt: &executorv1.Interrupt{}}})
	if v := r.result(b.GetActionId()).GetProcess().GetVerdict(); v.GetSignal() != 2 || time.Since(began) > 250*time.Millisecond {
		t.Errorf("verdict %v after %v", v, time.Since(began))
	}
}

// S18: a pipe as standard input, written and closed.
func TestStdinPipe(t *testing.T) {
	r := newRig(t)
	a := r.action()
	a.Kind = &executorv1.Action_StartProcess{StartProcess: &executorv1.StartProcess{
		Argv: []string{"/bin/cat"}, Cwd: r.ws, MergeOutput: true, Stdin: executorv1.StdinMode_STDIN_MODE_PIPE}}
	r.send(executortest.Do(a))
	r.stdin(a.GetActionId(), 1, "one\n", false)
	if err := r.s.OutputBytes(r.ctx, a.GetActionId(), 1, 4); err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("0123456789abcdef", 16<<10)
	r.stdin(a.GetActionId(), 2, big, true)
	res := r.result(a.GetActionId()).GetProcess()
	if res.GetExitCode() != 0 || r.output(a.GetActionId()) != "one\n"+big {
		t.Errorf("exit %d, %d bytes", res.GetExitCode(), len(r.output(a.GetActionId())))
	}
}

// F7: an interactive session takes a here-document and shows its file.
func TestTerminal(t *testing.T) {
	r := newRig(t)
	a := r.action()
	a.Kind = &executorv1.Action_StartProcess{StartProcess: &executorv1.StartProcess{
		Argv: []string{"/bin/sh"}, Cwd: r.ws, Env: []string{"PATH=/usr/bin:/bin", "PS1=", "PS2="}, Tty: true, Rows: 40, Cols: 132}}
	r.send(executortest.Do(a))
	r.stdin(a.GetActionId(), 1, "stty -echo; stty size\n", false)
	if err := r.s.OutputBytes(r.ctx, a.GetActionId(), 1, len("stty -echo; stty size\r\n40 132\r\n")); err != nil {
		t.Fatalf("%v: %q", err, r.output(a.GetActionId()))
	}
	r.control(a.GetActionId(), &executorv1.ActionControl{Control: &executorv1.ActionControl_Resize{Resize: &executorv1.Resize{Rows: 20, Cols: 80}}})
	r.stdin(a.GetActionId(), 2, "cat > f <<'X'\nline one\nline two\nX\ncat f; sleep 0.2; stty size; exit 6\n", false)
	res := r.result(a.GetActionId()).GetProcess()
	if out := r.output(a.GetActionId()); res.GetExitCode() != 6 || !strings.Contains(out, "40 132") || !strings.HasSuffix(out, "line one\r\nline two\r\n20 80\r\n") {
		t.Errorf("exit %d, output %q", res.GetExitCode(), out)
	}
}

// F1, F2, F3 and F6: large, odd and impossible output and arguments.
func TestOutputAndArgumentExtremes(t *testing.T) {
	r := newRig(t)
	t.Run("F1 capped with a count", func(t *testing.T) {
		a := r.shell("head -c 50000000 /dev/zero | tr '\\0' x")
		a.GetStartProcess().OutputCap = 5_000_000
		res := r.do(a).GetProcess()
		out, dropped := r.s.Output(a.GetActionId(), 1)
		if len(out) != 5_000_000 || dropped != 45_000_000 || res.GetStdoutBytes() != 5_000_000 || res.GetDroppedBytes() != 45_000_000 {
			t.Errorf("%d bytes, %d dropped, result %v", len(out), dropped, r.result(a.GetActionId()))
		}
	})
	t.Run("F2 invalid bytes", func(t *testing.T) {
		a := r.shell(`printf '\377\376\200ok\n'`)
		r.do(a)
		if out := r.output(a.GetActionId()); out != "\xff\xfe\x80ok\n" {
			t.Errorf("%q", out)
		}
	})
	t.Run("F3 one long argument", func(t *testing.T) {
		a := r.action()
		a.Kind = &executorv1.Action_StartProcess{StartProcess: &executorv1.StartProcess{Argv: []string{"/bin/true", strings.Repeat("x", 131_073)}, Cwd: r.ws}}
		res := r.do(a).GetProcess()
		errs, _ := r.s.Output(a.GetActionId(), 2)
		if res.GetExitCode() != 126 || !strings.Contains(string(errs), "longer than the kernel allows") {
			t.Errorf("%v, %q", res, errs)
		}
	})
	t.Run("F6 many small writes", func(t *testing.T) {
		a := r.shell("dd if=/dev/urandom bs=1024 count=20480 status=none | tee copy")
		before := r.s.Chunks()
		r.do(a)
		out, _ := r.s.Output(a.GetActionId(), 1)
		if want := r.read(filepath.Join(r.ws, "copy")); len(out) != 20<<20 || !bytes.Equal(out, []byte(want)) {
			t.Errorf("%d bytes", len(out))
		}
		t.Logf("%d chunks", r.s.Chunks()-before)
	})
	t.Run("missing program", func(t *testing.T) {
		a := r.action()
		a.Kind = &executorv1.Action_StartProcess{StartProcess: &executorv1.StartProcess{Argv: []string{"no-such-program"}, Cwd: r.ws, Env: []string{"PATH=/usr/bin:/bin"}, MergeOutput: true}}
		if res := r.do(a).GetProcess(); res.GetExitCode() != 127 || strings.Count(r.output(a.GetActionId()), "\n") != 1 {
			t.Errorf("%v, %q", res, r.output(a.GetActionId()))
		}
	})
	t.Run("missing folder", func(t *testing.T) {
		a := r.shell("true")
		a.GetStartProcess().Cwd = filepath.Join(r.ws, "none")
		if e := r.do(a).GetError(); e.GetCode() != "bad_cwd" {
			t.Errorf("%v", r.result(a.GetActionId()))
		}
	})
}

// Output goes on into the spool while nobody is connected, and comes whole.
func TestOutputWhileDisconnected(t *testing.T) {
	r := newRig(t)
	a := r.shell("head -c 3000000 /dev/urandom | tee copy; touch done")
	r.plane.HoldAcks.Store(true)
	r.send(executortest.Do(a))
	if err := r.s.OutputBytes(r.ctx, a.GetActionId(), 1, 1000); err != nil {
		t.Fatal(err)
	}
	r.s.Kick()
	for {
		if _, err := os.Stat(filepath.Join(r.ws, "done")); err == nil {
			break
		}
		if r.ctx.Err() != nil {
			t.Fatal("the process did not go on")
		}
		<-time.After(5 * time.Millisecond)
	}
	r.plane.HoldAcks.Store(false)
	r.session()
	r.send(executortest.Assign(executortest.Lease("l1", "thread/1", 7, 30*time.Second, 15*time.Second)))
	// What came before acknowledgements were on again.
	r.send(executortest.OutputAck(a.GetActionId(), 1, int64(len(r.output(a.GetActionId())))))
	r.result(a.GetActionId())
	if out := r.output(a.GetActionId()); out != r.read(filepath.Join(r.ws, "copy")) {
		t.Errorf("%d bytes", len(out))
	}
	names, err := os.ReadDir(filepath.Join(r.state, "spool"))
	if err != nil || len(names) != 0 {
		t.Errorf("spool: %v, %v", names, err)
	}
}

// Many commands at a time, each with its own output.
func TestParallelCommands(t *testing.T) {
	r := newRig(t)
	var list []*executorv1.Action
	for i := range 40 {
		a := r.shell(fmt.Sprintf("echo out-%d; exit %d", i, i%7))
		list = append(list, a)
		r.send(executortest.Do(a))
	}
	for i, a := range list {
		res := r.result(a.GetActionId()).GetProcess()
		if int(res.GetExitCode()) != i%7 || r.output(a.GetActionId()) != fmt.Sprintf("out-%d\n", i) {
			t.Errorf("command %d: %v, %q", i, res, r.output(a.GetActionId()))
		}
	}
}

// What a sandbox does not let a patch write is an error that changes nothing.
func TestPatchOfProtectedFileFails(t *testing.T) {
	r := newRig(t)
	if err := os.Mkdir(filepath.Join(r.ws, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.write(".git/config", "x\n")
	r.write("a", "1\n")
	text := "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** Update File: .git/config\n@@\n-x\n+y\n*** End Patch"
	plan := r.do(r.plan(text)).GetPatchPlan()
	if want := filepath.Join(r.ws, ".git/config"); len(plan.GetOutsideRoots()) != 1 || plan.GetOutsideRoots()[0] != want {
		t.Fatalf("outside: %v", plan.GetOutsideRoots())
	}
	c := r.action()
	c.Kind = &executorv1.Action_CommitPatch{CommitPatch: &executorv1.CommitPatch{
		Patch: text, Cwd: r.ws, PlanHash: plan.GetPlanHash(), BaseHashes: plan.GetBaseHashes()}}
	if e := r.do(c).GetError(); e.GetCode() != "refused" {
		t.Errorf("commit: %v", r.result(c.GetActionId()))
	}
	c2 := r.action()
	c2.Kind = &executorv1.Action_CommitPatch{CommitPatch: &executorv1.CommitPatch{
		Patch: text, Cwd: r.ws, PlanHash: plan.GetPlanHash(), BaseHashes: plan.GetBaseHashes(), GrantedPaths: plan.GetOutsideRoots()}}
	if r.do(c2).GetPatchCommitted() == nil || r.read(filepath.Join(r.ws, ".git/config")) != "y\n" || r.read(filepath.Join(r.ws, "a")) != "2\n" {
		t.Errorf("granted commit: %v", r.result(c2.GetActionId()))
	}
}

// A path that leaves the workspace by a link is outside, and is written only
// when its real place was approved.
func TestPatchThroughALink(t *testing.T) {
	r := newRig(t)
	other, err := os.MkdirTemp("/var/tmp", "hx-other") //nolint:usetesting // must be outside of /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	if err := os.Symlink(other, filepath.Join(r.ws, "link")); err != nil {
		t.Fatal(err)
	}
	r.write("real", "1\n")
	if err := os.Symlink("real", filepath.Join(r.ws, "alias")); err != nil {
		t.Fatal(err)
	}
	text := "*** Begin Patch\n*** Add File: link/f\n+x\n*** Update File: alias\n@@\n-1\n+2\n*** End Patch"
	plan := r.do(r.plan(text)).GetPatchPlan()
	if want := filepath.Join(other, "f"); len(plan.GetOutsideRoots()) != 1 || plan.GetOutsideRoots()[0] != want {
		t.Fatalf("outside: %v", plan)
	}
	commit := func(granted string) *executorv1.ActionResult {
		c := r.action()
		c.Kind = &executorv1.Action_CommitPatch{CommitPatch: &executorv1.CommitPatch{
			Patch: text, Cwd: r.ws, PlanHash: plan.GetPlanHash(), BaseHashes: plan.GetBaseHashes(), GrantedPaths: []string{granted}}}
		return r.do(c)
	}
	if res := commit(filepath.Join(r.ws, "link/f")); res.GetError().GetCode() != "refused" {
		t.Errorf("the name in the workspace was granted: %v", res)
	}
	if res := commit(filepath.Join(other, "f")); res.GetPatchCommitted() == nil {
		t.Fatalf("the real place was granted: %v", res)
	}
	info, err := os.Lstat(filepath.Join(r.ws, "alias"))
	if err != nil || info.Mode()&os.ModeSymlink == 0 || r.read(filepath.Join(r.ws, "real")) != "2\n" || r.read(filepath.Join(other, "f")) != "x\n" {
		t.Errorf("after: %v, %v, %q", info, err, r.read(filepath.Join(r.ws, "real")))
	}
}

// A profile that a contained command may have written is not run by a command
// that leaves the sandbox.
func TestPlantedProfile(t *testing.T) {
	r := newRig(t)
	if err := os.WriteFile(filepath.Join(r.ws, ".bash_profile"), []byte("touch planted\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	a := r.shell("echo approved")
	a.GetStartProcess().Argv = []string{"/bin/bash", "-lc", "echo approved"}
	a.GetStartProcess().Env = append(a.GetStartProcess().GetEnv(), "HOME="+r.ws)
	a.Policy.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
	if res := r.do(a).GetProcess(); res.GetExitCode() != 0 || r.output(a.GetActionId()) != "approved\n" {
		t.Fatalf("result %v, output %q", res, r.output(a.GetActionId()))
	}
	if _, err := os.Lstat(filepath.Join(r.ws, "planted")); err == nil {
		t.Fatal("the planted profile was run outside of the sandbox")
	}
}
