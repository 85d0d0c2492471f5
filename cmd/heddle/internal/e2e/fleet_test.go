package e2e

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// role starts a long-lived role and ends it with the test. It returns the file
// with what the role writes.
func (w *world) role(args ...string) (log string) {
	w.t.Helper()
	cmd := w.command(context.WithoutCancel(w.t.Context()), args...)
	file, err := os.CreateTemp(w.home, "role-*.log")
	if err != nil {
		w.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	w.t.Cleanup(func() {
		if w.t.Failed() {
			data, _ := os.ReadFile(file.Name())
			w.t.Logf("%s:\n%s", strings.Join(args, " "), data)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			w.t.Errorf("%s did not end on SIGTERM", args[0])
			_ = cmd.Process.Kill()
			<-done
		}
	})
	return file.Name()
}

// awaitLog waits until a role has written a text.
func (w *world) awaitLog(log, text string) {
	w.t.Helper()
	w.eventually(text+" in "+log, 20*time.Second, func() bool {
		data, _ := os.ReadFile(log)
		return strings.Contains(string(data), text)
	})
}

// awaitPort waits until somebody listens at an address.
func (w *world) awaitPort(address string) {
	w.t.Helper()
	w.eventually("somebody listens at "+address, 20*time.Second, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Control plane, two executors and a gateway as four processes over TCP. The
// executor that runs the command is killed; the turn goes on on the other.
func TestFourProcessesOverTCP(t *testing.T) {
	w := newWorld(t, newModel(t, killScripts))
	address := freePort(t)
	const fence = 5 * time.Second
	w.role("controlplane", "--listen", address, "--fence-after", fence.String())
	w.awaitPort(address)
	for _, name := range []string{"a", "b"} {
		w.role("executor", "--connect", address, "--state-dir", filepath.Join(w.home, "executor-"+name), "--id", name)
	}
	app := w.client("gateway", "--connect", address, "--listen", "stdio://")
	thread := app.startThread()
	turn := app.startTurn(thread, "THEN")
	app.awaitCommand()
	w.awaitPid()
	var victim string
	w.eventually("one executor runs the command", 30*time.Second, func() bool {
		for _, name := range []string{"a", "b"} {
			if len(guests(w.find("--id "+name))) > 0 && w.runs(w.find("--id "+name), "sleep 600") {
				victim = name
				return true
			}
		}
		return false
	})
	pid := w.find("--id " + victim)
	w.kill(pid)
	began := time.Now()
	app.await("the item ends", fence+5*time.Second, func(m message) bool {
		item, _ := m.Params["item"].(map[string]any)
		return m.Method == "item/completed" && item["type"] == "commandExecution" && item["status"] == "failed"
	})
	if took := time.Since(began); took > fence+time.Second {
		t.Errorf("the item ended %v after the executor, want at most %v", took, fence)
	}
	if w.running("sleep 600") {
		t.Error("the command outlived its executor")
	}
	if status := app.awaitTurn(turn, 60*time.Second); status != "completed" {
		t.Errorf("turn %s, want completed", status)
	}
	if data, _ := os.ReadFile(filepath.Join(w.workspace, "second.txt")); string(data) != "second\n" {
		t.Error("the next command did not run on the other executor")
	}
	oneEnd(t, app)
	app.close()
}

// runs tells whether a descendant of a process has the text in its command line.
func (w *world) runs(pid int, text string) bool {
	for _, child := range descendants(pid) {
		if data, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(child), "cmdline")); strings.Contains(strings.ReplaceAll(string(data), "\x00", " "), text) {
			return true
		}
	}
	return false
}

// running tells whether any process of the world has the text in its command line.
func (w *world) running(text string) bool {
	for _, p := range w.processes() {
		if strings.Contains(p.cmdline, text) {
			return true
		}
	}
	return false
}
