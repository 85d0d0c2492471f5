package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var killScripts = map[string][]step{
	"LONG": {runFor("echo begin; echo $$ > pid; sleep 4; echo end", 30000), {say: "went on"}},
	"STAY": {runFor("echo begin; echo $$ > pid; sleep 600", 60000), {say: "told"}},
	"THEN": {runFor("echo begin; echo $$ > pid; sleep 600", 60000), run("echo second > second.txt"), {say: "went on"}},
	"HI":   {{say: "hi"}},
}

// startLong starts a turn with a command that runs for a while.
func startLong(t *testing.T, word string) (w *world, app *appServer, thread, turn string) {
	t.Helper()
	w = newWorld(t, newModel(t, killScripts))
	app = w.appServer()
	thread = app.startThread()
	turn = app.startTurn(thread, word)
	app.awaitCommand()
	w.awaitPid()
	return w, app, thread, turn
}

// awaitPid waits until the command itself runs.
func (w *world) awaitPid() {
	w.t.Helper()
	w.eventually("the command runs", 30*time.Second, func() bool {
		data, err := os.ReadFile(filepath.Join(w.workspace, "pid"))
		return err == nil && len(data) > 0
	})
}

// oneEnd is invariant I2 seen by a client.
func oneEnd(t *testing.T, app *appServer) {
	t.Helper()
	if n := app.count("turn/completed"); n != 1 {
		t.Errorf("%d turn/completed, want 1", n)
	}
	if s, c := app.count("item/started"), app.count("item/completed"); s != c {
		t.Errorf("%d items started and %d completed", s, c)
	}
}

func TestI2KillControlPlane(t *testing.T) {
	w, app, _, turn := startLong(t, "LONG")
	old := w.controlPlane()
	w.kill(old)
	if status := app.awaitTurn(turn, 60*time.Second); status != "completed" {
		t.Errorf("turn %s, want completed", status)
	}
	cmds := app.completed("commandExecution")
	if len(cmds) != 1 || cmds[0]["exitCode"] != 0.0 || cmds[0]["aggregatedOutput"] != "begin\nend\n" {
		t.Errorf("command %v, want its true end and whole output", cmds)
	}
	if w.controlPlane() == old {
		t.Error("no new control plane")
	}
	oneEnd(t, app)
	app.close()
}

func TestTermControlPlane(t *testing.T) {
	w, app, _, turn := startLong(t, "LONG")
	old := w.controlPlane()
	if err := syscall.Kill(old, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.eventually("end of the control plane", 10*time.Second, func() bool { return !alive(old) })
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the control plane took %v to end", took)
	}
	if status := app.awaitTurn(turn, 60*time.Second); status != "completed" {
		t.Errorf("turn %s, want completed", status)
	}
	if cmds := app.completed("commandExecution"); len(cmds) != 1 || cmds[0]["aggregatedOutput"] != "begin\nend\n" {
		t.Errorf("command %v, want its true end", cmds)
	}
	oneEnd(t, app)
	app.close()
}

// The client, the control plane and then nobody: the executor ends by itself at
// its fence.
func TestI4KillClientAndControlPlane(t *testing.T) {
	w := newWorld(t, newModel(t, killScripts))
	const fence = 4 * time.Second
	cp := w.command(context.WithoutCancel(t.Context()), "controlplane", "--local", "--idle-exit", "20s", "--fence-after", fence.String())
	if err := cp.Start(); err != nil {
		t.Fatal(err)
	}
	w.awaitSocket()
	client := w.command(context.WithoutCancel(t.Context()), "exec", "STAY")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	w.awaitPid()
	for _, cmd := range []*exec.Cmd{client, cp} {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	began := time.Now()
	w.eventually("the command ends", 2*fence, func() bool { return !w.running("sleep 600") })
	if took := time.Since(began); took > fence+time.Second {
		t.Errorf("the command ran for %v after its control plane died, want at most %v", took, fence)
	}
	w.eventually("nothing is left", 15*time.Second, func() bool { return len(w.processes()) == 0 })
	// Both were killed; the socket's name is all that may be there, and the
	// next client replaces it.
	if got := w.exec("say HI"); got.code != 0 || got.stdout != "hi\n" {
		t.Errorf("the next client: %+v", got)
	}
}

func (w *world) awaitSocket() {
	w.t.Helper()
	w.eventually("the control plane listens", 20*time.Second, func() bool {
		_, err := os.Stat(filepath.Join(w.home, "run/control.sock"))
		return err == nil
	})
}

func TestKillAppServer(t *testing.T) {
	w, app, thread, _ := startLong(t, "STAY")
	pid := app.cmd.Process.Pid
	w.kill(pid)
	// At once, not only after the session's grace: the peer is known to be dead.
	w.eventually("end of the command", 10*time.Second, func() bool {
		for _, p := range w.processes() {
			if strings.Contains(p.cmdline, "sleep 600") {
				return false
			}
		}
		return true
	})
	next := w.appServer()
	result := next.call("thread/resume", map[string]any{"threadId": thread})
	row, _ := result["thread"].(map[string]any)
	turns, _ := row["turns"].([]any)
	if len(turns) != 1 {
		t.Fatalf("%d turns after resume, want 1: %v", len(turns), result)
	}
	turn, _ := turns[0].(map[string]any)
	if turn["status"] != "interrupted" {
		t.Errorf("turn %v, want interrupted", turn["status"])
	}
	items, _ := turn["items"].([]any)
	var kinds []string
	for _, it := range items {
		item, _ := it.(map[string]any)
		kinds = append(kinds, fmt.Sprint(item["type"]))
		if item["type"] == "commandExecution" && item["status"] == "inProgress" {
			t.Errorf("an item is open after the end of its turn: %v", item)
		}
	}
	if got := strings.Join(kinds, " "); !strings.Contains(got, "userMessage") || !strings.Contains(got, "commandExecution") {
		t.Errorf("items %s, want the whole history", got)
	}
	next.close()
}

func TestKillExec(t *testing.T) {
	w := newWorld(t, newModel(t, killScripts))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := w.command(ctx, "exec", "STAY")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.awaitPid()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	w.eventually("nothing is left", 15*time.Second, func() bool { return len(w.processes()) == 0 })
}

func TestInterruptExec(t *testing.T) {
	w := newWorld(t, newModel(t, killScripts))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := w.command(ctx, "exec", "--json", "STAY")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.awaitPid()
	began := time.Now()
	_ = cmd.Process.Signal(syscall.SIGINT)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || time.Since(began) > 5*time.Second {
		t.Errorf("exit %d after %v, want 130 soon", code, time.Since(began))
	}
	evs := events(t, stdout.String())
	if last := evs[len(evs)-1]; last["type"] != "turn.failed" {
		t.Errorf("last event %v", last)
	}
	for _, p := range w.processes() {
		if strings.Contains(p.cmdline, "sleep 600") {
			t.Errorf("the command is still there: %v", p)
		}
	}
}

// C20: an executor that is lost in mid-command: its item ends with a typed error
// within fence_after, which is 30 s, and the model is told.
func TestC20KillExecutor(t *testing.T) {
	w, app, _, turn := startLong(t, "THEN")
	killed := time.Now()
	w.kill(w.executor())
	if status := app.awaitTurn(turn, 60*time.Second); status != "completed" {
		t.Errorf("turn %s, want completed", status)
	}
	cmds := app.completed("commandExecution")
	if len(cmds) != 2 || cmds[0]["status"] != "failed" {
		t.Errorf("commands %v, want the first failed and a second", cmds)
	}
	ended, _ := cmds[0]["completedAtMs"].(float64)
	if took := time.UnixMilli(int64(ended)).Sub(killed); took > 30*time.Second {
		t.Errorf("the item ended %v after the death of its executor", took)
	}
	w.model.mu.Lock()
	told := w.model.requests[1]
	w.model.mu.Unlock()
	if _, output, _ := strings.Cut(told, `"function_call_output"`); !strings.Contains(output, "executor") || !strings.Contains(output, "lost") {
		t.Errorf("the model was not told: %s", output)
	}
	if data, _ := os.ReadFile(filepath.Join(w.workspace, "second.txt")); string(data) != "second\n" {
		t.Error("the next command did not run on the new executor")
	}
	oneEnd(t, app)
	app.close()
}

func TestKillGuest(t *testing.T) {
	w, app, _, turn := startLong(t, "THEN")
	for _, pid := range guests(w.executor()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if status := app.awaitTurn(turn, 60*time.Second); status != "completed" {
		t.Errorf("turn %s, want completed", status)
	}
	cmds := app.completed("commandExecution")
	if len(cmds) != 2 || cmds[0]["status"] != "failed" || cmds[1]["status"] != "completed" {
		t.Errorf("commands %v, want the first failed and the second done in a new sandbox", cmds)
	}
	oneEnd(t, app)
	app.close()
}

// guests finds the first processes of the sandboxes below an executor: those
// that are process 1 of a pid namespace of their own.
func guests(executor int) []int {
	var out []int
	for _, pid := range descendants(executor) {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
				if ids := strings.Fields(rest); len(ids) > 1 && ids[len(ids)-1] == "1" {
					out = append(out, pid)
				}
			}
		}
	}
	return out
}

func descendants(pid int) []int {
	var out []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		data, _ := os.ReadFile(path)
		for _, field := range strings.Fields(string(data)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err == nil {
				out = append(append(out, child), descendants(child)...)
			}
		}
	}
	return out
}
