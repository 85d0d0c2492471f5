package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// residentKB is a process's resident memory in KiB.
func residentKB(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	kb := 0
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}

// quiet is a client that reads a message only when it is told to.
type quiet struct {
	t     *testing.T
	name  string
	next  func() ([]byte, error) // reads one message
	write func([]byte) error
}

// read reads up to a message that fits.
func (q *quiet) read(what string, fits func(message) bool) message {
	q.t.Helper()
	for {
		line, err := q.next()
		if err != nil {
			q.t.Fatalf("%s: %s: %v", q.name, what, err)
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			q.t.Fatal(err)
		}
		if fits(m) {
			return m
		}
	}
}

func (q *quiet) send(id int, method string, params map[string]any) {
	q.t.Helper()
	data, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	if err == nil {
		err = q.write(data)
	}
	if err != nil {
		q.t.Fatalf("%s: %s: %v", q.name, method, err)
	}
}

// follow subscribes to a thread and then reads nothing any more.
func (q *quiet) follow(thread string) *quiet {
	q.t.Helper()
	q.send(1, "initialize", map[string]any{"clientInfo": map[string]any{"name": "slow", "version": "1"}, "capabilities": map[string]any{"heddle": map[string]any{"eventSeq": true}}})
	q.read("initialize", answered("1"))
	q.send(2, "thread/resume", map[string]any{"threadId": thread, "excludeTurns": true})
	q.read("resume", answered("2"))
	return q
}

func answered(id string) func(message) bool {
	return func(m message) bool { return m.Method == "" && string(m.ID) == id }
}

// quietStdio starts an app-server whose output nobody reads.
func (w *world) quietStdio() (q *quiet, pid int) {
	w.t.Helper()
	cmd := w.command(context.WithoutCancel(w.t.Context()), "app-server", "--on-disconnect", "continue")
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	return &quiet{t: w.t, name: "stdio", next: func() ([]byte, error) { return lines.ReadBytes('\n') },
		write: func(data []byte) error { _, err := in.Write(append(data, '\n')); return err }}, cmd.Process.Pid
}

// quietSocket is a WebSocket of a listener from which nobody reads.
func (w *world) quietSocket(socket string) *quiet {
	w.t.Helper()
	conn := w.dialSocket(socket)
	w.t.Cleanup(func() { _ = conn.CloseNow() })
	return &quiet{t: w.t, name: "websocket",
		next:  func() ([]byte, error) { _, data, err := conn.Read(context.Background()); return data, err },
		write: func(data []byte) error { return conn.Write(context.Background(), websocket.MessageText, data) }}
}

// P2, P3: two clients read nothing for a minute in which 10,000 deltas flow: one of
// an app-server of its own, one that shares its server with a client that reads.
// The memory of every server stays flat all the time, who reads is served at once,
// and the slow ones, which send a large request before they read again, are
// answered and get everything.
func TestP2AMinuteWithoutReading(t *testing.T) {
	t.Parallel() // it waits
	const parts, silence = 10_000, time.Minute
	const growth = 64 << 10 // KiB: what one collection may leave, far below what buffered events would take
	text := strings.Repeat("0123456789", parts)
	w := newWorld(t, newModel(t, map[string][]step{
		"WARM": {{say: text, parts: parts}},
		"FLOW": {{say: text, parts: parts, pause: 5 * time.Millisecond}},
	}))
	socket := filepath.Join(w.home, "app.sock") // in the home: so its server is found
	w.awaitLog(w.role("app-server", "--listen", "unix://"+socket), socket)
	fast, leave := w.wsClient(socket)
	defer leave()
	thread := fast.startThread()
	fast.awaitTurn(fast.startTurn(thread, "WARM"), 120*time.Second)

	alone, pid := w.quietStdio()
	slow := []*quiet{alone.follow(thread), w.quietSocket(socket).follow(thread)}
	servers := map[string]int{"app-server": pid, "listener": w.find("--listen"), "control plane": w.controlPlane()}
	before, most := map[string]int{}, map[string]int{}
	for name, pid := range servers {
		before[name] = residentKB(t, pid)
	}
	began := time.Now()
	turn := fast.startTurn(thread, "FLOW")
	var longest time.Duration // that the fast client waited for an answer
	for time.Since(began) < silence {
		asked := time.Now()
		fast.call("thread/loaded/list", map[string]any{})
		longest = max(longest, time.Since(asked))
		for name, pid := range servers {
			most[name] = max(most[name], residentKB(t, pid))
		}
		time.Sleep(500 * time.Millisecond)
	}
	if status := fast.awaitTurn(turn, 120*time.Second); status != "completed" {
		t.Fatalf("the turn is %s", status)
	}
	t.Logf("KiB before %v, at most %v; an answer took at most %v", before, most, longest)
	for name := range servers {
		if most[name]-before[name] > growth {
			t.Errorf("the memory of the %s grew by %d KiB", name, most[name]-before[name])
		}
	}
	if longest > 5*time.Second {
		t.Errorf("the client that reads waited %v for an answer", longest)
	}
	for _, q := range slow {
		q.catchUp(turn, text)
	}
}

// catchUp sends a request that no pipe holds and reads up to the end of the turn
// and the answer: everything, each number once.
func (q *quiet) catchUp(turn, text string) {
	q.t.Helper()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		q.send(3, "thread/loaded/list", map[string]any{"pad": strings.Repeat("x", 900<<10)})
	}()
	select {
	case <-sent:
	case <-time.After(30 * time.Second):
		q.t.Errorf("%s: a request of a client that does not read is not taken", q.name)
	}
	var got bytes.Buffer
	var last uint64
	ended, told := false, false
	q.read("the end of the turn and the answer", func(m message) bool {
		if m.Seq > 0 {
			if last > 0 && m.Prev != last {
				q.t.Errorf("%s: %s %d has prev %d after %d", q.name, m.Method, m.Seq, m.Prev, last)
			}
			last = m.Seq
		}
		if m.Method == "item/agentMessage/delta" {
			got.WriteString(fmt.Sprint(m.Params["delta"]))
		}
		told = told || answered("3")(m)
		ended = ended || m.Method == "turn/completed" && turnOf(m)["id"] == turn
		return told && ended
	})
	if got.String() != text {
		q.t.Errorf("%s has %d bytes of %d", q.name, got.Len(), len(text))
	}
}
