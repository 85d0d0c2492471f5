package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func (a *appServer) awaitExit(handle string) map[string]any {
	a.w.t.Helper()
	return a.await("exit of "+handle, 30*time.Second, func(m message) bool {
		return m.Method == "process/exited" && m.Params["processHandle"] == handle
	}).Params
}

// awaitOutput waits until the output of a process that was sent so far ends so.
func (a *appServer) awaitOutput(handle, suffix string) {
	a.w.t.Helper()
	got := ""
	a.await(fmt.Sprintf("output %q of %s", suffix, handle), 30*time.Second, func(m message) bool {
		if m.Method != "process/outputDelta" || m.Params["processHandle"] != handle {
			return false
		}
		data, err := base64.StdEncoding.DecodeString(fmt.Sprint(m.Params["deltaBase64"]))
		if err != nil {
			a.w.t.Errorf("delta: %v", err)
		}
		got += string(data)
		return strings.HasSuffix(got, suffix)
	})
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// A process of a client is answered when it runs, told when it ends, and takes
// input and a size in between.
func TestProcessesOfAClient(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.experimental()
	defer app.close()
	spawn := func(handle string, more map[string]any, argv ...string) {
		t.Helper()
		params := map[string]any{"processHandle": handle, "cwd": w.workspace, "command": argv}
		for k, v := range more {
			params[k] = v
		}
		app.call("process/spawn", params)
	}

	// Kept output, changes of the environment, no sandbox.
	out := filepath.Join(filepath.Dir(w.home), "made-outside")
	spawn("kept", map[string]any{"env": map[string]any{"A": "b", "HOME": nil}}, "sh", "-c", `touch "$0"; echo "$A$HOME"; echo err >&2; exit 3`, out)
	exited := app.awaitExit("kept")
	if exited["stdout"] != "b\n" || exited["stderr"] != "err\n" || exited["exitCode"] != 3.0 || exited["stdoutCapReached"] != false {
		t.Errorf("kept output: %v", exited)
	}
	if _, err := os.Stat(out); err != nil {
		t.Error("the process could not write outside of the workspace")
	}

	// A cap cuts, and says so.
	spawn("cap", map[string]any{"outputBytesCap": 4}, "sh", "-c", "echo 123456")
	if exited := app.awaitExit("cap"); exited["stdout"] != "1234" || exited["stdoutCapReached"] != true || exited["stderrCapReached"] != false {
		t.Errorf("capped output: %v", exited)
	}

	// Pipes: output as it comes, input until it is closed.
	spawn("cat", map[string]any{"streamStdin": true, "streamStdoutStderr": true}, "cat")
	if got := app.refused("process/spawn", map[string]any{"processHandle": "cat", "cwd": w.workspace, "command": []string{"true"}}); got != `-32600 duplicate active process handle: "cat"` {
		t.Error(got)
	}
	app.call("process/writeStdin", map[string]any{"processHandle": "cat", "deltaBase64": b64("hello\n")})
	app.awaitOutput("cat", "hello\n")
	app.call("process/writeStdin", map[string]any{"processHandle": "cat", "closeStdin": true})
	if exited := app.awaitExit("cat"); exited["exitCode"] != 0.0 || exited["stdout"] != "" {
		t.Errorf("end of cat: %v", exited)
	}

	// A terminal of a size that changes. The handle of an ended process is free.
	spawn("cat", map[string]any{"tty": true, "size": map[string]any{"rows": 10, "cols": 20}}, "sh", "-c", "stty size; read x; stty size; sleep 600")
	app.awaitOutput("cat", "10 20\r\n")
	app.call("process/resizePty", map[string]any{"processHandle": "cat", "size": map[string]any{"rows": 11, "cols": 22}})
	app.call("process/writeStdin", map[string]any{"processHandle": "cat", "deltaBase64": b64("go\n")})
	app.awaitOutput("cat", "11 22\r\n")
	app.call("process/kill", map[string]any{"processHandle": "cat"})
	app.await("end of the terminal", 30*time.Second, func(m message) bool {
		return m.Method == "process/exited" && m.Params["processHandle"] == "cat" && m.Params["exitCode"] == 1.0
	})

	spawn("late", map[string]any{"timeoutMs": 100}, "sleep", "600")
	if exited := app.awaitExit("late"); exited["exitCode"] != 124.0 {
		t.Errorf("end by the time limit: %v", exited)
	}
}

func TestProcessRefusals(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.experimental()
	defer app.close()
	app.call("process/spawn", map[string]any{"processHandle": "p", "cwd": w.workspace, "command": []string{"sleep", "600"}, "timeoutMs": nil})
	for _, row := range []struct {
		method string
		params map[string]any
		want   string
	}{
		{"process/spawn", map[string]any{"processHandle": "", "command": []string{"true"}}, "-32600 processHandle must not be empty"},
		{"process/spawn", map[string]any{"processHandle": "n", "command": []string{}}, "-32600 command must not be empty"},
		{"process/spawn", map[string]any{"processHandle": "n", "command": []string{"true"}, "timeoutMs": -1}, "-32602 process/spawn timeoutMs must be non-negative, got -1"},
		{"process/spawn", map[string]any{"processHandle": "n", "command": []string{"true"}, "size": map[string]any{"rows": 1, "cols": 1}}, "-32602 process/spawn size requires tty: true"},
		{"process/spawn", map[string]any{"processHandle": "n", "command": []string{"no-such-program"}}, "-32603 failed to spawn process: no-such-program: No such file or directory (os error 2)"},
		{"process/spawn", map[string]any{"processHandle": "n", "command": []string{"true"}, "cwd": filepath.Join(w.workspace, "nowhere")}, "-32603 failed to spawn process: "},
		{"process/writeStdin", map[string]any{"processHandle": "p"}, "-32602 process/writeStdin requires deltaBase64 or closeStdin"},
		{"process/writeStdin", map[string]any{"processHandle": "p", "deltaBase64": "!"}, "-32602 invalid deltaBase64: "},
		{"process/writeStdin", map[string]any{"processHandle": "p", "deltaBase64": "aGk="}, "-32600 stdin streaming is not enabled for this process"},
		{"process/writeStdin", map[string]any{"processHandle": "n", "deltaBase64": ""}, `-32600 no active process for process handle "n"`},
		{"process/resizePty", map[string]any{"processHandle": "p", "size": map[string]any{"rows": 0, "cols": 1}}, "-32602 process size rows and cols must be greater than 0"},
		{"process/resizePty", map[string]any{"processHandle": "p", "size": map[string]any{"rows": 1, "cols": 1}}, "-32600 failed to resize PTY: process is not attached to a PTY"},
		{"process/kill", map[string]any{"processHandle": "n"}, `-32600 no active process for process handle "n"`},
		// The two families have names of their own.
		{"command/exec/terminate", map[string]any{"processId": "p"}, `-32600 no active command/exec for process id "p"`},
	} {
		if _, ok := row.params["cwd"]; !ok {
			row.params["cwd"] = w.workspace
		}
		if got := app.refused(row.method, row.params); !strings.HasPrefix(got, row.want) {
			t.Errorf("%s %v:\n got %s\nwant %s", row.method, row.params, got, row.want)
		}
	}
}

// What a client started ends when its connection does.
func TestProcessesEndWithTheirConnection(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.experimental()
	app.call("process/spawn", map[string]any{"processHandle": "p", "cwd": w.workspace, "command": []string{"sh", "-c", "sleep 31415.9 & exec sleep 27182.8"}})
	w.eventually("both processes run", 10*time.Second, func() bool { return w.running("31415.9") && w.running("27182.8") })
	app.close()
	w.eventually("both processes are gone", 10*time.Second, func() bool { return !w.running("31415.9") && !w.running("27182.8") })
}
