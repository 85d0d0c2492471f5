package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ran runs commands in one turn that may ask, and returns their items and what
// the model was told last.
func (w *world) ran(level string, cmds ...string) (items []map[string]any, told string) {
	w.t.Helper()
	var steps []step
	for _, cmd := range cmds {
		steps = append(steps, runFor(cmd, 20000))
	}
	w.model.scripts = map[string][]step{"CASE": append(steps, step{say: "done"})}
	app := w.appServer()
	defer app.close()
	thread, _ := app.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "on-request", "sandbox": level})["thread"].(map[string]any)
	if status := app.awaitTurn(app.startTurn(fmt.Sprint(thread["id"]), "CASE"), 60*time.Second); status != "completed" {
		w.t.Errorf("the turn is %s", status)
	}
	if n := app.count("item/commandExecution/requestApproval"); n != 0 {
		w.t.Errorf("%d approvals were asked", n)
	}
	items = app.completed("commandExecution")
	if len(items) != len(cmds) {
		w.t.Fatalf("%d items of %d commands", len(items), len(cmds))
	}
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	return items, w.model.requests[len(w.model.requests)-1]
}

// output is what a command printed.
func output(item map[string]any) string { return fmt.Sprint(item["aggregatedOutput"]) }

// S1 and S2: a command that fails is a result. Nobody is asked, and nothing says
// that it was denied.
func TestS1S2FailureIsNoDenial(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	items, told := w.ran("workspace-write", "bash -c false", "grep zzz /etc/hostname")
	for _, item := range items {
		if item["exitCode"] != float64(1) || item["status"] != "failed" || strings.TrimSpace(output(item)) != "" && item["aggregatedOutput"] != nil {
			t.Errorf("%v: exit %v, %v, output %q", item["command"], item["exitCode"], item["status"], item["aggregatedOutput"])
		}
	}
	_, outputs, _ := strings.Cut(told, "function_call_output")
	outputs, _, _ = strings.Cut(outputs, `"tools":`)
	if outputs == "" || strings.Contains(strings.ToLower(outputs), "denied") || strings.Contains(outputs, "sandbox") {
		t.Errorf("the model was told: %.600s", outputs)
	}
}

// S3 and S4: what a shell left in the background neither holds up an answer nor
// outlives it.
func TestS3S4NothingHoldsTheAnswer(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.appServer()
	defer app.close()
	exec := func(script string, timeout int) (map[string]any, time.Duration) {
		began := time.Now()
		got := app.call("command/exec", map[string]any{"command": []any{"bash", "-c", script}, "cwd": w.workspace, "timeoutMs": timeout})
		return got, time.Since(began)
	}
	exec("true", 20000) // the sandbox is there by now
	got, took := exec("mkfifo p; (while :; do echo x; sleep 1; done) >p & cat p", 1500)
	if took > 3500*time.Millisecond || got["exitCode"] != float64(124) || !strings.HasPrefix(fmt.Sprint(got["stdout"]), "x\n") {
		t.Errorf("S3 after %v: %v", took, got)
	}
	got, took = exec("exec > >(tee -a out.log) 2>&1; echo hi", 20000)
	if took > 5*time.Second || got["exitCode"] != float64(0) || got["stdout"] != "hi\n" || string(readable(filepath.Join(w.workspace, "out.log"))) != "hi\n" {
		t.Errorf("S4 after %v: %v", took, got)
	}
	for _, p := range w.processes() {
		if strings.HasPrefix(p.cmdline, "cat p") || strings.HasPrefix(p.cmdline, "tee ") || strings.HasPrefix(p.cmdline, "bash -c") {
			t.Errorf("left: %s", p.cmdline)
		}
	}
}

// S6: without a network loopback works inside, also for an event loop that
// another thread wakes, and what leaves the machine fails at once.
func TestS6NetworkOff(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	loop := `python3 -c '
import asyncio, threading
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
async def f():
    s = await asyncio.start_server(lambda r, x: (x.write(b"pong"), x.close()), "127.0.0.1", 0)
    r, _ = await asyncio.open_connection(*s.sockets[0].getsockname())
    return (await r.read()).decode()
print(asyncio.run_coroutine_threadsafe(f(), loop).result(5))'`
	items, _ := w.ran("workspace-write", loop, `s=$(date +%s%N); exec 3<>/dev/tcp/93.184.216.34/443; echo rc=$? ms=$((($(date +%s%N)-s)/1000000))`)
	if out := output(items[0]); out != "pong\n" && !strings.Contains(out, "python3: command not found") {
		t.Errorf("event loop: %q", out)
	}
	var rc, ms int
	out := output(items[1])
	if at := strings.LastIndex(out, "rc="); at < 0 {
		t.Errorf("connect: %q", out)
	} else if _, err := fmt.Sscanf(out[at:], "rc=%d ms=%d", &rc, &ms); err != nil || rc == 0 || ms > 2000 {
		t.Errorf("connect: %q, %v", out, err)
	}
}

// S7: sockets of the host cannot be reached from inside, by file or by name, and
// the refusal is told.
func TestS7HostSockets(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	file := filepath.Join(filepath.Dir(w.home), "host.sock")
	name := "heddle-e2e-" + w.mark[:12]
	for _, address := range []string{file, "@" + name} {
		l, err := net.Listen("unix", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	dial := func(address string) string {
		return `python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(` + address + `); print("CONNECTED")'`
	}
	items, told := w.ran("workspace-write", dial(`"`+file+`"`), dial(`"\0`+name+`"`))
	for i, item := range items {
		if item["exitCode"] == float64(0) || strings.Contains(output(item), "\nCONNECTED\n") {
			t.Errorf("socket %d: %v %q", i, item["exitCode"], output(item))
		}
	}
	if !strings.Contains(output(items[0]), "ermission denied") || !strings.Contains(told, "ermission denied") {
		t.Errorf("the refusal was not told: %q", output(items[0]))
	}
	for _, note := range []string{file, "@" + name} {
		if !strings.Contains(told, note+": connecting to this socket of the host was refused") {
			t.Errorf("no word to the model that %s was refused", note)
		}
	}
}

// S8: an empty folder stays empty, whatever part of heddle is killed.
func TestS8EmptyWorkspaceStaysEmpty(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"TRUE": {run("true"), {say: "done"}}, "SLEEP": {runFor("sleep 300", 60000)}}))
	if err := os.RemoveAll(filepath.Join(w.workspace, ".git")); err != nil {
		t.Fatal(err)
	}
	empty := func(what string) {
		t.Helper()
		if entries, err := os.ReadDir(w.workspace); err != nil || len(entries) != 0 {
			t.Errorf("%s: the workspace holds %v, %v", what, entries, err)
		}
	}
	if got := w.exec("--skip-git-repo-check", "TRUE"); got.code != 0 {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
	empty("after true")
	// The control plane first: the next round starts another, which takes away what the killed one left of its socket.
	var app *appServer
	command := func() int { return w.find("sleep 300") }
	for _, victim := range []struct {
		what string
		pid  func() int
	}{
		{"control plane", w.controlPlane}, {"executor", w.executor}, {"command", command}, {"guest", func() int { return w.above(command(), "guest") }},
		{"keeper", func() int { return w.above(command(), "keeper") }}, {"gateway", func() int { return app.cmd.Process.Pid }},
	} {
		app = w.appServer()
		app.startTurn(app.startThread(), "SLEEP")
		app.awaitCommand()
		w.find("sleep 300")
		empty("while a command runs")
		w.kill(victim.pid())
		empty("after the death of the " + victim.what)
		if victim.what != "gateway" {
			app.close()
		}
		w.eventually("everything has ended", 45*time.Second, func() bool { return len(w.processes()) == 0 })
		empty("after the end of all, " + victim.what + " first")
	}
}

// above is the process above pid whose last argument is role.
func (w *world) above(pid int, role string) int {
	w.t.Helper()
	for pid > 1 {
		stat := string(readFile(w.t, fmt.Sprintf("/proc/%d/stat", pid)))
		if _, err := fmt.Sscanf(stat[strings.LastIndex(stat, ")")+1:], " %1s %d", new(string), &pid); err != nil {
			w.t.Fatal(err)
		}
		if strings.HasSuffix(string(readFile(w.t, fmt.Sprintf("/proc/%d/cmdline", pid))), "\x00"+role+"\x00") {
			return pid
		}
	}
	w.t.Fatalf("no %s above the command", role)
	return 0
}

// S9: a .git that is a link to a folder elsewhere: commands work, and the folder
// is as protected as .git is. A link that a command put in its place is taken away
// when the command has ended.
func TestS9LinkedGit(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	meta := filepath.Join(filepath.Dir(w.workspace), "meta.git")
	git := filepath.Join(w.workspace, ".git")
	if err := os.Rename(git, meta); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../meta.git", git); err != nil {
		t.Fatal(err)
	}
	items, _ := w.ran("workspace-write", "echo works > made; cat made", "echo x > .git/hooks-x; echo rc=$?", "echo x > ../meta.git/y; echo rc=$?", "rm .git && ln -s /tmp .git", "readlink .git")
	if output(items[0]) != "works\n" {
		t.Errorf("a command: %q", output(items[0]))
	}
	if output(items[4]) != "../meta.git\n" {
		t.Errorf("the next command sees .git as %q", output(items[4]))
	}
	for _, item := range items[1:3] {
		if out := output(item); !strings.Contains(out, "rc=") || strings.Contains(out, "rc=0") {
			t.Errorf("%v: %q", item["command"], out)
		}
	}
	if entries, err := os.ReadDir(meta); err != nil || len(entries) != 3 {
		t.Errorf("meta.git holds %v, %v", entries, err)
	}
	if to, err := os.Readlink(git); to != "../meta.git" {
		t.Errorf(".git leads to %q, %v", to, err)
	}
}

// S12: a write that is not allowed fails for the command that tries it.
func TestS12ReadOnlyWriteFails(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	for _, level := range []string{"read-only", "workspace-write"} {
		items, _ := w.ran(level, "echo x >/srv/f; echo rc=$?; ls /srv/f", "echo x >f; echo rc=$?; ls f; rm -f f")
		if out := output(items[0]); !strings.Contains(out, "rc=") || strings.Contains(out, "rc=0") || items[0]["exitCode"] == float64(0) {
			t.Errorf("%s: exit %v, %q", level, items[0]["exitCode"], out)
		}
		if wrote := strings.HasPrefix(output(items[1]), "rc=0\nf\n"); wrote != (level == "workspace-write") {
			t.Errorf("%s in the workspace: %q", level, output(items[1]))
		}
	}
	if _, err := os.Stat("/srv/f"); err == nil {
		t.Error("/srv/f is there")
	}
}

// S18: a pipe is written, closed and read to its end; what comes for a finished
// command is an error and no hang.
func TestS18StdinClosed(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.appServer()
	defer app.close()
	app.send(map[string]any{"id": "cat", "method": "command/exec", "params": map[string]any{
		"command": []any{"cat"}, "cwd": w.workspace, "processId": "p", "streamStdin": true}})
	app.call("command/exec/write", map[string]any{"processId": "p", "deltaBase64": "YWxsIG9mIGl0", "closeStdin": true})
	m := app.await("end of cat", 30*time.Second, func(m message) bool { return string(m.ID) == `"cat"` })
	if m.Result["stdout"] != "all of it" || m.Result["exitCode"] != float64(0) {
		t.Errorf("cat: %v %v", m.Result, m.Error)
	}
	for method, params := range map[string]map[string]any{
		"command/exec/write": {"processId": "p", "deltaBase64": "Aw=="}, "command/exec/terminate": {"processId": "p"},
	} {
		if got := app.refused(method, params); got != `-32600 no active command/exec for process id "p"` {
			t.Errorf("%s: %s", method, got)
		}
	}
}
