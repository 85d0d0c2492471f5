package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// appServer is a client of one `heddle app-server` over stdio.
type appServer struct {
	w   *world
	cmd *exec.Cmd
	in  io.WriteCloser

	wire *wireCheck

	mu       sync.Mutex
	next     int
	messages []message
	grew     chan struct{}
	closed   bool
	longest  int // of the lines it wrote, in bytes
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params map[string]any  `json:"params"`
	Result map[string]any  `json:"result"`
	Error  map[string]any  `json:"error"`
	Seq    uint64          `json:"seq"`
	Prev   uint64          `json:"prev"`
}

func (w *world) appServer() *appServer { w.t.Helper(); return w.client("app-server") }

// experimental starts an app-server and asks for the experimental methods.
func (w *world) experimental() *appServer {
	w.t.Helper()
	return w.connect(map[string]any{"experimentalApi": true}, "app-server")
}

// client starts a role that speaks the v2 protocol on its standard streams.
func (w *world) client(args ...string) *appServer { w.t.Helper(); return w.connect(nil, args...) }

func (w *world) connect(capabilities map[string]any, args ...string) *appServer {
	w.t.Helper()
	a := &appServer{w: w, cmd: w.command(context.WithoutCancel(w.t.Context()), args...), wire: newWireCheck(w.t), grew: make(chan struct{})}
	var err error
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(a.close)
	go a.read(out)
	a.call("initialize", map[string]any{"clientInfo": map[string]any{"name": "e2e", "version": "1"}, "capabilities": capabilities})
	a.send(map[string]any{"method": "initialized"})
	return a
}

func (a *appServer) read(out io.Reader) {
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var m message
		if err := json.Unmarshal(sc.Bytes(), &m); err != nil {
			a.w.t.Errorf("app-server wrote a line that is not JSON: %.200q", sc.Text())
			continue
		}
		a.wire.received(sc.Bytes())
		a.mu.Lock()
		a.longest = max(a.longest, len(sc.Bytes()))
		a.messages = append(a.messages, m)
		close(a.grew)
		a.grew = make(chan struct{})
		a.mu.Unlock()
	}
}

func (a *appServer) send(v map[string]any) {
	data, err := json.Marshal(v)
	if err != nil {
		a.w.t.Fatal(err)
	}
	a.wire.sent(data)
	if _, err := a.in.Write(append(data, '\n')); err != nil {
		a.w.t.Errorf("write to app-server: %v", err)
	}
}

// await returns the first message from position `from` on that matches.
func (a *appServer) await(what string, within time.Duration, match func(message) bool) message {
	a.w.t.Helper()
	timeout := time.After(within)
	seen := 0
	for {
		a.mu.Lock()
		batch, grew := a.messages[seen:], a.grew
		seen = len(a.messages)
		a.mu.Unlock()
		for _, m := range batch {
			if match(m) {
				return m
			}
		}
		select {
		case <-grew:
		case <-timeout:
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, m := range a.messages {
				a.w.t.Logf("message: %s %s %v %v", m.ID, m.Method, m.Params, m.Error)
			}
			a.w.t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func (a *appServer) call(method string, params map[string]any) map[string]any {
	a.w.t.Helper()
	m := a.ask(method, params)
	if m.Error != nil {
		a.w.t.Fatalf("%s: %v", method, m.Error)
	}
	return m.Result
}

// refused returns the code and the text with which a request is refused.
func (a *appServer) refused(method string, params map[string]any) string {
	a.w.t.Helper()
	m := a.ask(method, params)
	if m.Error == nil {
		a.w.t.Fatalf("%s %v was not refused: %v", method, params, m.Result)
	}
	return fmt.Sprintf("%v %v", m.Error["code"], m.Error["message"])
}

// ask sends a request and returns its answer.
func (a *appServer) ask(method string, params map[string]any) message {
	a.w.t.Helper()
	a.mu.Lock()
	a.next++
	id := a.next
	a.mu.Unlock()
	a.send(map[string]any{"id": id, "method": method, "params": params})
	want := fmt.Sprint(id)
	return a.await("answer to "+method, 30*time.Second, func(m message) bool { return m.Method == "" && string(m.ID) == want })
}

func (a *appServer) startThread() string {
	a.w.t.Helper()
	thread, _ := a.call("thread/start", map[string]any{"cwd": a.w.workspace})["thread"].(map[string]any)
	return fmt.Sprint(thread["id"])
}

func (a *appServer) startTurn(thread, text string) string {
	a.w.t.Helper()
	turn, _ := a.call("turn/start", map[string]any{
		"threadId": thread, "input": []any{map[string]any{"type": "text", "text": text}},
	})["turn"].(map[string]any)
	return fmt.Sprint(turn["id"])
}

func turnOf(m message) map[string]any {
	turn, _ := m.Params["turn"].(map[string]any)
	return turn
}

// awaitTurn returns the status with which a turn completed.
func (a *appServer) awaitTurn(id string, within time.Duration) string {
	a.w.t.Helper()
	m := a.await("end of turn "+id, within, func(m message) bool {
		return m.Method == "turn/completed" && turnOf(m)["id"] == id
	})
	return fmt.Sprint(turnOf(m)["status"])
}

// awaitCommand waits until a command item of the thread runs.
func (a *appServer) awaitCommand() {
	a.w.t.Helper()
	a.await("start of a command", 30*time.Second, func(m message) bool {
		item, _ := m.Params["item"].(map[string]any)
		return m.Method == "item/started" && item["type"] == "commandExecution"
	})
}

// completed lists the items that completed so far, by type.
func (a *appServer) completed(kind string) []map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []map[string]any
	for _, m := range a.messages {
		item, _ := m.Params["item"].(map[string]any)
		if m.Method == "item/completed" && item["type"] == kind {
			out = append(out, item)
		}
	}
	return out
}

// count is the number of notifications of a method.
func (a *appServer) count(method string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, m := range a.messages {
		if m.Method == method {
			n++
		}
	}
	return n
}

// checkOrder checks what the client was shown of turns and items.
func (a *appServer) checkOrder() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, fault := range order(a.messages) {
		a.w.t.Errorf("what a client was shown: %s", fault)
	}
}

// close ends the server as a client does: by closing its input.
func (a *appServer) close() {
	if a.closed {
		return
	}
	a.closed = true
	defer a.wire.finish()
	defer a.checkOrder()
	_ = a.in.Close()
	done := make(chan struct{})
	go func() { _ = a.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		a.w.t.Error("app-server did not end when its input was closed")
		_ = a.cmd.Process.Kill()
		<-done
	}
}
