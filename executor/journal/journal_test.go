package journal_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/executor/journal"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

func open(tb testing.TB, dir, boot string) *journal.Journal {
	tb.Helper()
	j, err := journal.Open(journal.Config{Dir: dir, BootID: boot})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { j.Close() })
	return j
}

func action(id string) *executorv1.Action {
	return &executorv1.Action{ActionId: id, LeaseId: "l", Epoch: 3}
}

func result(id string, code int32) *executorv1.ActionResult {
	return &executorv1.ActionResult{ActionId: id, LeaseId: "l", Epoch: 3,
		Outcome: &executorv1.ActionResult_Process{Process: &executorv1.ProcessResult{ExitCode: code}}}
}

func accept(tb testing.TB, j *journal.Journal, id string) journal.State {
	tb.Helper()
	st, err := j.Accept(action(id))
	if err != nil {
		tb.Fatal(err)
	}
	return st
}

func TestLifeOfAnAction(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, "boot")
	if st := accept(t, j, "a"); st != journal.Unknown {
		t.Fatal("first accept:", st)
	}
	if st := accept(t, j, "a"); st != journal.Running {
		t.Fatal("second accept:", st)
	}
	if err := j.Finish(result("a", 7)); err != nil {
		t.Fatal(err)
	}
	if err := j.Finish(result("a", 8)); err != nil {
		t.Fatal(err)
	}
	if st := accept(t, j, "a"); st != journal.Finished {
		t.Fatal("accept of a finished one:", st)
	}
	j.Close()
	j = open(t, dir, "boot")
	if r := j.Result("a"); r.GetProcess().GetExitCode() != 7 || r.GetEpoch() != 3 {
		t.Fatalf("result after reopening: %v", r)
	}
	if err := j.Ack("a"); err != nil {
		t.Fatal(err)
	}
	if st := accept(t, j, "a"); st != journal.Acked || j.Result("a") != nil || len(j.Unacked()) != 0 {
		t.Fatal("accept of an acknowledged one:", st)
	}
	j.Close()
	if st := accept(t, open(t, dir, "boot"), "a"); st != journal.Acked {
		t.Fatal("accept of an acknowledged one after reopening:", st)
	}
}

func TestOrphansHaveUnknownOutcome(t *testing.T) {
	for boot, part := range map[string]string{"boot": "process ended", "other": "machine was restarted"} {
		dir := t.TempDir()
		j := open(t, dir, "boot")
		accept(t, j, "a")
		j.Close()
		j = open(t, dir, boot)
		e := j.Result("a").GetError()
		if e.GetCode() != "outcome_unknown" || !strings.Contains(e.GetMessage(), part) {
			t.Errorf("boot %q: %v", boot, e)
		}
		if got := j.Unacked(); len(got) != 1 || got[0] != "a" {
			t.Errorf("boot %q: unacknowledged %v", boot, got)
		}
	}
}

func TestDamagedEnd(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, "boot")
	accept(t, j, "a")
	if err := j.Finish(result("a", 7)); err != nil {
		t.Fatal(err)
	}
	j.Close()
	path := filepath.Join(dir, "journal")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(whole); cut >= 0; cut-- {
		for _, tail := range []string{"", "garbage \x00\x00\x00\x01"} {
			if err := os.WriteFile(path, append(whole[:cut:cut], tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			j := open(t, dir, "boot")
			if r := j.Result("a"); cut == len(whole) && r.GetProcess().GetExitCode() != 7 {
				t.Fatalf("whole file, tail %q: %v", tail, r)
			}
			if st := accept(t, j, "b"); st != journal.Unknown {
				t.Fatalf("cut at %d: accept: %v", cut, st)
			}
			j.Close()
			if st := accept(t, open(t, dir, "boot"), "b"); st == journal.Unknown {
				t.Fatalf("cut at %d: what was written after it is lost", cut)
			}
		}
	}
}

func TestCompactionWhileRunning(t *testing.T) {
	j := open(t, t.TempDir(), "boot")
	big := strings.Repeat("x", 1<<20)
	for i := range 40 {
		id := fmt.Sprint("a", i)
		accept(t, j, id)
		r := result(id, 0)
		r.Outcome = &executorv1.ActionResult_PatchPlan{PatchPlan: &executorv1.PatchPlan{Summary: big}}
		if err := j.Finish(r); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if err := j.Ack(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if file, live := j.Size(); file > 20<<20 || live < 1<<20 || live > 2<<20 {
		t.Fatalf("file %d, live %d", file, live)
	}
	if j.Result("a0").GetPatchPlan().GetSummary() != big {
		t.Fatal("a result was lost in compaction")
	}
}

const childEnv = "JOURNAL_TEST_CHILD"

// TestMain is also the process that is killed: it accepts and finishes actions
// and says what it has done after each step.
func TestMain(m *testing.M) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	j, err := journal.Open(journal.Config{Dir: dir, BootID: "boot"})
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		id := fmt.Sprint("a", i)
		if _, err := j.Accept(action(id)); err != nil {
			os.Exit(1)
		}
		fmt.Fprintln(os.Stdout, "accepted", id)
		if err := j.Finish(result(id, int32(i%100))); err != nil {
			os.Exit(1)
		}
		fmt.Fprintln(os.Stdout, "finished", id)
	}
}

func TestKilledProcessLosesNothing(t *testing.T) {
	for round := range 5 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		accepted, finished := map[string]bool{}, map[string]bool{}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			what, id, _ := strings.Cut(lines.Text(), " ")
			if what == "accepted" {
				accepted[id] = true
			} else {
				finished[id] = true
			}
			if n == 200+round*37 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // killed
		if len(finished) < 100 {
			t.Fatalf("the child did %d actions: %v", len(finished), lines.Err())
		}
		j := open(t, dir, "boot")
		for id := range accepted {
			r := j.Result(id)
			if r == nil {
				t.Fatalf("%s was accepted and is not known", id)
			}
			if finished[id] && r.GetProcess() == nil {
				t.Fatalf("%s was finished and is %v", id, r)
			}
		}
	}
}

func BenchmarkAcceptFinishAck(b *testing.B) {
	j := open(b, b.TempDir(), "boot")
	n := 0
	for b.Loop() {
		n++
		id := fmt.Sprint("a", n)
		accept(b, j, id)
		if err := j.Finish(result(id, 0)); err != nil {
			b.Fatal(err)
		}
		if err := j.Ack(id); err != nil {
			b.Fatal(err)
		}
	}
}
