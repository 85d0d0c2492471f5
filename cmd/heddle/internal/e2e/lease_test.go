package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fleet starts a control plane with a fence and two executors, and returns a
// client and the control plane's log.
func (w *world) fleet(fence time.Duration) (app *appServer, log string) {
	w.t.Helper()
	address := freePort(w.t)
	log = w.role("controlplane", "--listen", address, "--fence-after", fence.String())
	w.awaitPort(address)
	for _, name := range []string{"a", "b"} {
		w.role("executor", "--connect", address, "--state-dir", filepath.Join(w.home, "executor-"+name), "--id", name)
	}
	return w.client("gateway", "--connect", address, "--listen", "stdio://"), log
}

// holder is the executor under which a command runs, and the other one.
func (w *world) holder(command string) (holder, other int) {
	w.t.Helper()
	w.eventually("an executor runs the command", 30*time.Second, func() bool {
		a, b := w.find("--id a"), w.find("--id b")
		if w.runs(b, command) {
			a, b = b, a
		}
		holder, other = a, b
		return w.runs(holder, command)
	})
	return holder, other
}

func stopped(t *testing.T, pid int) (resume func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(resume) // it could not be ended otherwise
	return resume
}

// D3: an executor is stopped for twice the fence. Its command ends while it is
// still stopped, its item within the fence, and the next command runs on another
// executor under a higher epoch. What the first one says when it goes on is
// refused and changes nothing; it is of use again afterwards.
func TestD3FrozenExecutorOfAFleet(t *testing.T) {
	t.Parallel() // it waits
	const fence = 6 * time.Second
	w := newWorld(t, newModel(t, map[string][]step{
		"LOOP":  {runFor("echo begin; while :; do date +%s%N >side; sleep 0.05; done", 60000), run("echo second >second.txt"), {say: "went on"}},
		"AGAIN": {run("echo third >third.txt"), {say: "once more"}},
	}))
	app, log := w.fleet(fence)
	thread := app.startThread()
	turn := app.startTurn(thread, "LOOP")
	side := filepath.Join(w.workspace, "side")
	w.eventually("the side effect", 30*time.Second, func() bool { return len(readable(side)) > 0 })
	frozen, other := w.holder("date +%s%N")
	resume := stopped(t, frozen)
	began := time.Now()
	if status := app.awaitTurn(turn, 2*fence); status != "completed" {
		t.Errorf("the turn is %s", status)
	}
	if took := time.Since(began); took > fence+5*time.Second {
		t.Errorf("the turn went on after %v", took)
	}
	last := string(readable(side))
	time.Sleep(time.Until(began.Add(2 * fence)))
	if now := string(readable(side)); now != last || w.runs(frozen, "date +%s%N") {
		t.Errorf("the command of the stopped executor goes on: %q, then %q", last, now)
	}
	cmds := app.completed("commandExecution")
	if len(cmds) != 2 || cmds[0]["status"] != "failed" || !strings.HasPrefix(cmds[0]["aggregatedOutput"].(string), "begin\n") || string(readable(filepath.Join(w.workspace, "second.txt"))) != "second\n" {
		t.Errorf("commands: %v", cmds)
	}

	resume()
	w.awaitLog(log, "message of an executor refused")
	if now := string(readable(side)); now != last {
		t.Errorf("the command goes on after all: %q, then %q", last, now)
	}
	if again := app.completed("commandExecution"); len(again) != 2 {
		t.Errorf("commands after the late report: %v", again)
	}
	oneEnd(t, app)
	w.kill(other)
	turn = app.startTurn(thread, "AGAIN")
	if status := app.awaitTurn(turn, 60*time.Second); status != "completed" || string(readable(filepath.Join(w.workspace, "third.txt"))) != "third\n" {
		t.Errorf("the turn on the executor that was stopped is %s", status)
	}
	app.close()
}

// D6: a process that gets a twentieth of a second in each second, as on a machine
// with fifty others that compute, answers its renewals in time: no work of it
// is lost, for longer than its fence.
func TestD6StarvedProcessesKeepTheirWork(t *testing.T) {
	t.Parallel() // it waits
	half := runFor("echo begin; echo $$ > pid; sleep 18; echo end", 30000)
	for name, victim := range map[string]func(*world) int{"executor": (*world).executor, "control plane": (*world).controlPlane} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newModel(t, map[string][]step{"LONG": {half, half, {say: "done"}}}))
			app := w.appServer()
			turn := app.startTurn(app.startThread(), "LONG")
			w.awaitPid()
			pid := victim(w)
			done := make(chan struct{})
			starved := make(chan struct{})
			go func() {
				defer close(starved)
				for {
					_ = syscall.Kill(pid, syscall.SIGSTOP)
					time.Sleep(950 * time.Millisecond)
					_ = syscall.Kill(pid, syscall.SIGCONT)
					select {
					case <-time.After(50 * time.Millisecond):
					case <-done:
						return
					}
				}
			}()
			status := app.awaitTurn(turn, 90*time.Second)
			close(done)
			<-starved
			cmds := app.completed("commandExecution")
			if status != "completed" || len(cmds) != 2 {
				t.Errorf("the turn is %s, commands: %v", status, cmds)
			}
			for _, c := range cmds {
				if c["aggregatedOutput"] != "begin\nend\n" || c["exitCode"] != 0.0 {
					t.Errorf("command: %v", c)
				}
			}
			if now := victim(w); now != pid {
				t.Errorf("process %d was replaced by %d", pid, now)
			}
			if log, _ := os.ReadFile(filepath.Join(w.home, "log/controlplane.log")); strings.Contains(string(log), "executor session ended") {
				t.Errorf("a session was ended:\n%s", log)
			}
			app.close()
		})
	}
}

// D4: a command that no executor takes ends with the reason, for the client and
// for the model; the turn goes on, and the next command runs once there is one.
func TestD4NoExecutorIsTold(t *testing.T) {
	t.Parallel() // it waits
	m := newModel(t, map[string][]step{"RUN": {runFor("echo never >never.txt", 25000), {say: "no luck"}}, "NOW": {run("echo now >now.txt"), {say: "done"}}})
	w := newWorld(t, m)
	address := freePort(t)
	w.role("controlplane", "--listen", address)
	w.awaitPort(address)
	app := w.client("gateway", "--connect", address, "--listen", "stdio://")
	thread := app.startThread()
	if status := app.awaitTurn(app.startTurn(thread, "RUN"), 60*time.Second); status != "completed" {
		t.Errorf("the turn is %s", status)
	}
	cmds := app.completed("commandExecution")
	if len(cmds) != 1 || cmds[0]["status"] != "failed" || !strings.Contains(fmt.Sprint(cmds[0]["aggregatedOutput"]), "no executor is connected") {
		t.Errorf("commands: %v", cmds)
	}
	m.mu.Lock()
	told := m.requests[len(m.requests)-1]
	m.mu.Unlock()
	if _, output, _ := strings.Cut(told, `"function_call_output"`); !strings.Contains(output, "no executor is connected") {
		t.Errorf("the model was told %.400s", output)
	}
	w.role("executor", "--connect", address, "--state-dir", filepath.Join(w.home, "executor-a"), "--id", "a")
	if status := app.awaitTurn(app.startTurn(thread, "NOW"), 60*time.Second); status != "completed" || !there(filepath.Join(w.workspace, "now.txt")) {
		t.Errorf("the turn with an executor is %s", status)
	}
	if there(filepath.Join(w.workspace, "never.txt")) {
		t.Error("the command that was given up ran")
	}
	app.close()
}
