package e2e

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"
)

// write sends input to a process of the connection until it is taken.
func (a *appServer) write(id string, data []byte, within time.Duration) bool {
	a.w.t.Helper()
	return a.input(map[string]any{"processId": id, "deltaBase64": base64.StdEncoding.EncodeToString(data)}, within)
}

// input repeats a request while the process has too much unread.
func (a *appServer) input(params map[string]any, within time.Duration) bool {
	a.w.t.Helper()
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		m := a.ask("command/exec/write", params)
		if m.Error == nil {
			return true
		}
		if m.Error["code"] != -32001.0 {
			a.w.t.Fatalf("write: %v", m.Error)
		}
	}
	return false
}

// A process that reads late gets all of a large input; one that never reads holds
// its writer back and can be ended.
func TestLargeInput(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.appServer()
	run := func(request int, id, command string) {
		app.send(map[string]any{"id": request, "method": "command/exec", "params": map[string]any{
			"command": []string{"sh", "-c", command}, "processId": id, "streamStdin": true, "cwd": w.workspace, "timeoutMs": 120000}})
	}
	answer := func(request int) message {
		t.Helper()
		want := fmt.Sprint(request)
		return app.await("the end of process "+want, 90*time.Second, func(m message) bool { return m.Method == "" && string(m.ID) == want })
	}
	const pieces, size = 72, 256 << 10
	piece := []byte(strings.Repeat("x", size))
	run(901, "late", "sleep 1; wc -c")
	app.eventuallyWritable("late")
	for range pieces {
		if !app.write("late", piece, 60*time.Second) {
			t.Fatal("a process that reads takes no more input")
		}
	}
	if !app.input(map[string]any{"processId": "late", "closeStdin": true}, 60*time.Second) {
		t.Fatal("the end of the input is not taken")
	}
	if m := answer(901); m.Error != nil || strings.TrimSpace(fmt.Sprint(m.Result["stdout"])) != fmt.Sprint(pieces*size) {
		t.Errorf("of %d bytes: %v %v", pieces*size, m.Result, m.Error)
	}

	run(902, "never", "exec sleep 600")
	app.eventuallyWritable("never")
	full := false
	for range 400 {
		if full = !app.write("never", piece, 300*time.Millisecond); full {
			break
		}
	}
	if !full {
		t.Error("100 MiB were taken for a process that does not read")
	}
	began := time.Now()
	app.call("command/exec/terminate", map[string]any{"processId": "never"})
	answer(902)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("ended after %v", took)
	}
	w.eventually("the process is gone", 10*time.Second, func() bool { return !w.running("sleep 600") })
	app.close()
}

// eventuallyWritable waits until a process can be written to.
func (a *appServer) eventuallyWritable(id string) {
	a.w.t.Helper()
	a.w.eventually("process "+id, 20*time.Second, func() bool {
		return a.ask("command/exec/write", map[string]any{"processId": id, "deltaBase64": ""}).Error == nil
	})
}
