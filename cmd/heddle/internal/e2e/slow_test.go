package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
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

// P2: a client reads nothing while 10,000 deltas flow and for some seconds more.
// Its server's memory and the control plane's stay flat, the other client is
// served at once, and the slow one gets everything when it reads again.
func TestSlowReaderOfARealServer(t *testing.T) {
	const parts = 10_000
	const growth = 64 << 10 // KiB: what one collection may leave, far below what buffered events would take
	text := strings.Repeat("0123456789", parts)
	w := newWorld(t, newModel(t, map[string][]step{"FLOW": {{say: text, parts: parts}}}))
	fast := w.client("app-server", "--on-disconnect", "continue")
	thread := fast.startThread()
	fast.awaitTurn(fast.startTurn(thread, "FLOW"), 120*time.Second)

	cmd := w.command(context.WithoutCancel(t.Context()), "app-server", "--on-disconnect", "continue")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	lines := bufio.NewReader(out)
	read := func(what string, fits func(message) bool) message {
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			var m message
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatal(err)
			}
			if fits(m) {
				return m
			}
		}
	}
	send := func(id int, method string, params map[string]any) {
		data, _ := json.Marshal(map[string]any{"id": id, "method": method, "params": params})
		if _, err := in.Write(append(data, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(id string) func(message) bool {
		return func(m message) bool { return m.Method == "" && string(m.ID) == id }
	}
	send(1, "initialize", map[string]any{"clientInfo": map[string]any{"name": "slow", "version": "1"}, "capabilities": map[string]any{"heddle": map[string]any{"eventSeq": true}}})
	read("initialize", answered("1"))
	send(2, "thread/resume", map[string]any{"threadId": thread, "excludeTurns": true})
	read("resume", answered("2"))

	plane := w.controlPlane()
	before, planeBefore := residentKB(t, cmd.Process.Pid), residentKB(t, plane)
	began := time.Now()
	turn := fast.startTurn(thread, "FLOW")
	if status := fast.awaitTurn(turn, 120*time.Second); status != "completed" {
		t.Fatalf("the turn is %s", status)
	}
	flowed := time.Since(began)
	time.Sleep(5 * time.Second) // the client goes on not to read
	after, planeAfter := residentKB(t, cmd.Process.Pid), residentKB(t, plane)
	t.Logf("%d deltas in %v; app-server %d to %d KiB, control plane %d to %d KiB", parts, flowed, before, after, planeBefore, planeAfter)
	if after-before > growth || planeAfter-planeBefore > growth {
		t.Errorf("memory grew: app-server by %d KiB, control plane by %d KiB", after-before, planeAfter-planeBefore)
	}

	var got strings.Builder
	var last uint64
	read("the end of the turn", func(m message) bool {
		if m.Seq > 0 {
			if last > 0 && m.Prev != last {
				t.Errorf("%s %d has prev %d after %d", m.Method, m.Seq, m.Prev, last)
			}
			last = m.Seq
		}
		if m.Method == "item/agentMessage/delta" {
			got.WriteString(fmt.Sprint(m.Params["delta"]))
		}
		return m.Method == "turn/completed" && turnOf(m)["id"] == turn
	})
	if got.String() != text {
		t.Errorf("the slow client has %d bytes of %d", got.Len(), len(text))
	}
	fast.close()
}
