package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// The cases P of public reports that concern the wire, the processes or the store
// of the whole program. docs/testing.md lists where each case is tested.

// P1: one end of a turn, and soon after its last item.
func TestP1OneEnd(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"FIVE": {run("echo 1"), run("echo 2"), run("echo 3"), run("echo 4"), run("echo 5"), {say: "five"}}}))
	app := w.appServer()
	turn := app.startTurn(app.startThread(), "FIVE")
	app.await("the last item", 60*time.Second, func(m message) bool {
		item, _ := m.Params["item"].(map[string]any)
		return m.Method == "item/completed" && item["type"] == "agentMessage"
	})
	if status := app.awaitTurn(turn, time.Second); status != "completed" {
		t.Errorf("the turn is %s", status)
	}
	app.close() // reads to the end
	if n := app.count("turn/completed"); n != 1 || len(app.completed("commandExecution")) != 5 {
		t.Errorf("%d ends of the turn, %d commands", n, len(app.completed("commandExecution")))
	}
}

// sendTurn sends turn/start and does not wait for its answer.
func (a *appServer) sendTurn(id int, thread, text string) {
	a.send(map[string]any{"id": id, "method": "turn/start", "params": map[string]any{
		"threadId": thread, "input": []any{map[string]any{"type": "text", "text": text}}}})
}

// P4: of two turns that are asked for at once, the second steers the first or is
// one of its own; no id is given out that never starts.
func TestP4TwoStarts(t *testing.T) {
	m := newModel(t, map[string][]step{"ONE": {{say: "one"}}, "TWO": {{say: "two"}}})
	m.thinks = 300 * time.Millisecond
	w := newWorld(t, m)
	app := w.appServer()
	thread := app.startThread()
	app.sendTurn(901, thread, "ONE")
	time.Sleep(10 * time.Millisecond)
	app.sendTurn(902, thread, "TWO")
	for _, id := range []string{"901", "902"} {
		answer := app.await("answer "+id, 20*time.Second, func(m message) bool { return m.Method == "" && string(m.ID) == id })
		if answer.Error != nil {
			continue
		}
		turn, _ := answer.Result["turn"].(map[string]any)
		name := fmt.Sprint(turn["id"])
		app.await("start of turn "+name, 20*time.Second, func(m message) bool { return m.Method == "turn/started" && turnOf(m)["id"] == name })
		if status := app.awaitTurn(name, 20*time.Second); status != "completed" {
			t.Errorf("turn %s is %s", name, status)
		}
	}
	if n := len(app.completed("userMessage")); n != 2 {
		t.Errorf("%d inputs are items, want 2", n)
	}
	app.close()
}

func steer(thread, turn, text string) map[string]any {
	return map[string]any{"threadId": thread, "expectedTurnId": turn, "input": []any{map[string]any{"type": "text", "text": text}}}
}

// P5: a steer for another turn, for none, and for one that has just ended is
// refused; an accepted one is an item, also when the control plane is killed.
func TestP5Steer(t *testing.T) {
	scripts := map[string][]step{"LONG": killScripts["LONG"], "MORE": {{say: "more"}}}
	w := newWorld(t, newModel(t, scripts))
	app := w.appServer()
	thread := app.startThread()
	turn := app.startTurn(thread, "LONG")
	app.awaitCommand()
	w.awaitPid()
	for _, wrong := range []string{"", "01900000-0000-7000-8000-000000000000"} {
		if got := app.refused("turn/steer", steer(thread, wrong, "never")); !strings.HasPrefix(got, "-326") {
			t.Errorf("expectedTurnId %q: %s", wrong, got)
		}
	}
	app.call("turn/steer", steer(thread, turn, "and MORE"))
	w.kill(w.controlPlane())
	if status := app.awaitTurn(turn, 60*time.Second); status != "completed" {
		t.Errorf("the turn is %s", status)
	}
	var texts []string
	for _, item := range app.completed("userMessage") {
		data, _ := json.Marshal(item["content"])
		texts = append(texts, string(data))
	}
	if all := strings.Join(texts, "\n"); !strings.Contains(all, "and MORE") || strings.Contains(all, "never") {
		t.Errorf("inputs that are items: %s", all)
	}
	if got := app.refused("turn/steer", steer(thread, turn, "late")); !strings.Contains(got, "no active turn to steer") {
		t.Errorf("a steer after the end: %s", got)
	}
	app.close()
}

// P6: a thread without turns outlives everything.
func TestP6ThreadWithoutTurns(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"HI": {{say: "hi"}}}))
	app := w.appServer()
	thread := app.startThread()
	w.kill(w.controlPlane())
	w.kill(app.cmd.Process.Pid)
	next := w.appServer()
	row, _ := next.call("thread/resume", map[string]any{"threadId": thread})["thread"].(map[string]any)
	if row["id"] != thread {
		t.Fatalf("resumed %v", row)
	}
	if status := next.awaitTurn(next.startTurn(thread, "HI"), 30*time.Second); status != "completed" {
		t.Errorf("its first turn is %s", status)
	}
	next.close()
}

// dialSocket opens a WebSocket to a listener on a unix socket.
func (w *world) dialSocket(socket string) *websocket.Conn {
	w.t.Helper()
	dial := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	conn, resp, err := websocket.Dial(w.t.Context(), "ws://localhost/", &websocket.DialOptions{HTTPClient: dial})
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	conn.SetReadLimit(4 << 20)
	return conn
}

// wsClient is a client of a listener on a unix socket.
func (w *world) wsClient(socket string) (*appServer, func()) {
	w.t.Helper()
	conn := w.dialSocket(socket)
	out, lines := io.Pipe()
	go func() {
		for {
			_, data, err := conn.Read(context.Background())
			if err != nil {
				_ = lines.Close()
				return
			}
			_, _ = lines.Write(append(data, '\n'))
		}
	}()
	a := &appServer{w: w, in: wsWriter{conn}, wire: newWireCheck(w.t), grew: make(chan struct{}), closed: true}
	go a.read(out)
	a.call("initialize", map[string]any{"clientInfo": map[string]any{"name": "e2e", "version": "1"}})
	a.send(map[string]any{"method": "initialized"})
	return a, func() { _ = conn.CloseNow() }
}

type wsWriter struct{ conn *websocket.Conn }

func (w wsWriter) Write(p []byte) (int, error) {
	return len(p), w.conn.Write(context.Background(), websocket.MessageText, bytes.TrimSuffix(p, []byte("\n")))
}

func (w wsWriter) Close() error { return w.conn.CloseNow() }

// P7: a client leaves in the middle of a command; another one sees its end and
// the whole output.
func TestP7AnotherClientSeesTheEnd(t *testing.T) {
	w := newWorld(t, newModel(t, killScripts))
	socket := filepath.Join(filepath.Dir(w.home), "app.sock")
	server := w.role("app-server", "--listen", "unix://"+socket)
	w.awaitLog(server, socket)
	first, leave := w.wsClient(socket)
	thread := first.startThread()
	turn := first.startTurn(thread, "LONG")
	w.awaitPid()
	leave()
	second, done := w.wsClient(socket)
	defer done()
	second.call("thread/resume", map[string]any{"threadId": thread})
	if status := second.awaitTurn(turn, 60*time.Second); status != "completed" {
		t.Errorf("the turn is %s", status)
	}
	if cmds := second.completed("commandExecution"); len(cmds) != 1 || cmds[0]["aggregatedOutput"] != "begin\nend\n" {
		t.Errorf("commands: %v", cmds)
	}
}

// P9: a client that does not know the question, never answers it, or answers with
// something else: the declared default holds and the turn goes on.
func TestP9ClientsThatDoNotAnswer(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"ASK": {
		{call: "exec_command", args: map[string]any{"cmd": "touch asked", "sandbox_permissions": "require_escalated", "justification": "may it?"}},
		{say: "went on"},
	}}))
	app := w.client("app-server", "-c", "approval_timeout_secs=2")
	app.wire.wrong = true
	for name, answer := range map[string]map[string]any{
		"not known":      {"error": map[string]any{"code": -32601, "message": "Method not found"}},
		"never":          nil,
		"no decision":    {"result": map[string]any{}},
		"another type":   {"result": map[string]any{"decision": 42}},
		"unknown word":   {"result": map[string]any{"decision": "perhaps"}},
		"not an object":  {"result": "accept"},
		"wrong spelling": {"result": map[string]any{"Decision": "accept"}},
	} {
		t.Run(name, func(t *testing.T) {
			result := app.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "on-request"})
			thread, _ := result["thread"].(map[string]any)
			id := fmt.Sprint(thread["id"])
			began := time.Now()
			turn := app.startTurn(id, "ASK")
			asked := app.await("the question", 20*time.Second, func(m message) bool {
				return m.Method == "item/commandExecution/requestApproval" && m.Params["threadId"] == id
			})
			if answer != nil {
				reply := map[string]any{"id": asked.ID}
				for k, v := range answer {
					reply[k] = v
				}
				app.send(reply)
			}
			if status := app.awaitTurn(turn, 15*time.Second); status != "completed" {
				t.Errorf("the turn is %s", status)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the turn took %v", took)
			}
			if _, err := os.Stat(filepath.Join(w.workspace, "asked")); err == nil {
				t.Error("the command ran")
			}
		})
	}
	app.close()
}

// P11: a stream that ends after the call, within an event, or never begins: asked
// for again within bounds, and the tool runs once.
func TestP11BrokenModelStreams(t *testing.T) {
	m := newModel(t, nil)
	var mu sync.Mutex
	asked := 0
	call := step{call: "exec_command", args: map[string]any{"cmd": "echo once >> effects"}}
	m.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		asked++
		n := asked
		mu.Unlock()
		switch n {
		case 1: // the call, then the end of the connection
			rec := &cutWriter{ResponseWriter: rw, until: "response.output_item.done"}
			reply(rec, call, 1)
		case 2:
			reply(rw, call, 1)
		case 3: // half an event
			rw.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(rw, "event: response.created\ndata: {\"type\":")
			_ = http.NewResponseController(rw).Flush()
			panic(http.ErrAbortHandler)
		case 4: // no header
			<-r.Context().Done()
		default:
			reply(rw, step{say: "at last"}, 5)
		}
	})
	w := newWorld(t, m)
	config, err := os.ReadFile(filepath.Join(w.home, "config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write(filepath.Join(w.home, "config.toml"), string(config)+"stream_idle_timeout_ms = 1000\nrequest_max_retries = 2\nstream_max_retries = 4\n")
	if got := w.exec("go"); got.code != 0 || got.stdout != "at last\n" {
		t.Fatalf("%+v", got)
	}
	if data, _ := os.ReadFile(filepath.Join(w.workspace, "effects")); string(data) != "once\n" {
		t.Errorf("the tool left %q", data)
	}
}

// cutWriter ends the connection after the event with a type was written.
type cutWriter struct {
	http.ResponseWriter
	until string
}

func (c *cutWriter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	if bytes.Contains(p, []byte(c.until)) {
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

func (c *cutWriter) Flush() { _ = http.NewResponseController(c.ResponseWriter).Flush() }

// cpuTime is the processor time of a process, in ticks of 10 ms.
func cpuTime(p process) int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) <= 12 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return user + system
}

// P15: nothing is burnt while nothing happens, over a minute, by any process of a
// home: as a client of its own starts them, and with a listener.
func TestP15Idle(t *testing.T) {
	t.Parallel() // it waits
	const window = time.Minute
	w := newWorld(t, newModel(t, killScripts))
	app := w.appServer()
	if status := app.awaitTurn(app.startTurn(app.startThread(), "HI"), 30*time.Second); status != "completed" {
		t.Fatal(status)
	}
	socket := filepath.Join(w.home, "app.sock") // in the home: so its server is found
	w.awaitLog(w.role("app-server", "--listen", "unix://"+socket), socket)
	other, leave := w.wsClient(socket)
	defer leave()
	other.startThread()
	time.Sleep(time.Second) // what is done after a turn, as the collection of garbage
	list := w.processes()
	if !slices.ContainsFunc(list, func(p process) bool { return p.pid == app.cmd.Process.Pid }) {
		list = append(list, process{app.cmd.Process.Pid, "app-server"}) // only root may look into it
	}
	if len(list) < 4 { // two gateways, control plane, executor
		t.Fatalf("processes: %v", list)
	}
	before := map[int]int{}
	for _, p := range list {
		before[p.pid] = cpuTime(p)
	}
	time.Sleep(window)
	sum := 0
	for _, p := range list {
		used := cpuTime(p) - before[p.pid]
		sum += used
		t.Logf("%d ms: %s", used*10, p.cmdline)
	}
	if sum > int(window/time.Second) {
		t.Errorf("%d processes used %d ms of processor time in %v, want at most 1 %% in all", len(list), sum*10, window)
	}
	app.close()
}

// P15: SIGTERM to what is idle: gone within 2 s, with status 0.
func TestP15TerminatedWhenIdle(t *testing.T) {
	for name, args := range map[string][]string{
		"app-server": {"app-server", "--listen", "unix://"}, "serve": {"serve", "--listen", "unix://"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newModel(t, killScripts))
			socket := filepath.Join(filepath.Dir(w.home), "app.sock")
			args[len(args)-1] += socket
			cmd := w.command(context.WithoutCancel(t.Context()), args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { _ = cmd.Wait(); close(ended) }()
			w.eventually("it listens", 20*time.Second, func() bool { _, err := os.Stat(socket); return err == nil })
			client, leave := w.wsClient(socket)
			defer leave()
			client.awaitTurn(client.startTurn(client.startThread(), "HI"), 30*time.Second)
			began := time.Now()
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-ended
			if took := time.Since(began); took > 2*time.Second || cmd.ProcessState.ExitCode() != 0 {
				t.Errorf("ended after %v: %v", took, cmd.ProcessState)
			}
		})
	}
}

// P15: SIGTERM with a running turn: what serves is gone within 2 s, and the turn
// is either ended or goes on.
func TestP15Terminated(t *testing.T) {
	gone := func(w *world, pid int) {
		began := time.Now()
		_ = syscall.Kill(pid, syscall.SIGTERM)
		w.eventually("the process ends", 10*time.Second, func() bool { return !alive(pid) })
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%d ended after %v", pid, took)
		}
	}
	t.Run("control plane", func(t *testing.T) {
		w, app, _, turn := startLong(t, "LONG")
		gone(w, w.controlPlane())
		if status := app.awaitTurn(turn, 60*time.Second); status != "completed" {
			t.Errorf("the turn is %s", status)
		}
		if cmds := app.completed("commandExecution"); len(cmds) != 1 || cmds[0]["aggregatedOutput"] != "begin\nend\n" {
			t.Errorf("commands: %v", cmds)
		}
		app.close()
	})
	t.Run("app-server", func(t *testing.T) {
		w, app, thread, turn := startLong(t, "STAY")
		gone(w, app.cmd.Process.Pid)
		w.eventually("end of the command", 10*time.Second, func() bool { return !w.running("sleep 600") })
		next := w.appServer()
		row, _ := next.call("thread/resume", map[string]any{"threadId": thread})["thread"].(map[string]any)
		turns, _ := row["turns"].([]any)
		last, _ := turns[len(turns)-1].(map[string]any)
		if last["id"] != turn || last["status"] != "interrupted" {
			t.Errorf("the turn: %v", last)
		}
		next.close()
	})
}

// P16: a policy that comes with a turn is in force for its next command, and for
// later turns, in both directions.
func TestP16PolicyOfATurn(t *testing.T) {
	try := func(name string) []step {
		return []step{run("touch " + name + " && echo yes || echo no"), {say: "tried"}}
	}
	w := newWorld(t, newModel(t, map[string][]step{"FIRST": try("a"), "SECOND": try("b"), "THIRD": try("c"), "FOURTH": try("d")}))
	app := w.appServer()
	thread := app.startThread()
	for i, c := range []struct {
		word, file string
		policy     map[string]any
		writes     bool
	}{
		{"FIRST", "a", nil, true},
		{"SECOND", "b", map[string]any{"type": "readOnly"}, false},
		{"THIRD", "c", nil, false},
		{"FOURTH", "d", map[string]any{"type": "workspaceWrite"}, true},
	} {
		params := map[string]any{"threadId": thread, "input": []any{map[string]any{"type": "text", "text": c.word}}}
		if c.policy != nil {
			params["sandboxPolicy"] = c.policy
		}
		turn, _ := app.call("turn/start", params)["turn"].(map[string]any)
		if status := app.awaitTurn(fmt.Sprint(turn["id"]), 60*time.Second); status != "completed" {
			t.Fatalf("turn %d is %s", i+1, status)
		}
		if _, err := os.Stat(filepath.Join(w.workspace, c.file)); (err == nil) != c.writes {
			t.Errorf("turn %d under %v: written %v, want %v", i+1, c.policy, err == nil, c.writes)
		}
	}
	app.close()
}

// I4: one store has one control plane.
func TestSecondControlPlaneIsRefused(t *testing.T) {
	w := newWorld(t, newModel(t, killScripts))
	app := w.appServer()
	app.startThread()
	w.controlPlane()
	for _, args := range [][]string{{"controlplane", "--home", w.home, "--listen", freePort(t)}, {"exec", "--in-process", "HI"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		cmd := w.command(ctx, args...)
		out, err := cmd.CombinedOutput()
		cancel()
		if code := cmd.ProcessState.ExitCode(); err == nil || code <= 0 || !strings.Contains(string(out), "in use") {
			t.Errorf("%v beside a control plane: exit %d\n%s", args, code, out)
		}
	}
	app.close()
}
