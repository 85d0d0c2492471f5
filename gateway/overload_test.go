package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/gateway"
	"github.com/heddle-dev/heddle/gateway/appserver"
)

func heapMB() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc >> 20)
}

// I9: a client that sends 10,000 requests for large answers and reads nothing
// is not waited for, is refused what there is no room for, grows no memory, and
// holds up nobody. When it reads, it finds one answer to each.
func TestRequestsWithoutReading(t *testing.T) {
	const n = 10_000
	f := newFake(t)
	g := newGateway(t, f, nil)
	p, out := rawPeer(t, g)
	lines := bufio.NewReaderSize(out, 64<<10)
	p.send(`{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}`)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	other := stdioPeer(t, g)
	other.initialize()
	thread := startThread(other)
	f.mu.Lock()
	f.threads[thread].row.Preview = strings.Repeat("x", 500<<10)
	f.mu.Unlock()

	before := heapMB()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range n {
			p.send(fmt.Sprintf(`{"id":%d,"method":"thread/list","params":{}}`, i+1))
		}
	}()
	select {
	case <-sent:
	case <-time.After(patience):
		t.Fatal("the server does not take the requests")
	}
	// What is in work when the last request was sent comes and goes; what waits
	// for the client stays.
	grown := heapMB() - before
	for deadline := time.Now().Add(patience); grown > 64 && time.Now().Before(deadline); grown = heapMB() - before {
		time.Sleep(50 * time.Millisecond)
	}
	if grown > 64 {
		t.Errorf("the heap grew by %d MB", grown)
	}
	if r := other.result("thread/loaded/list", message{}); len(r["data"].([]any)) != 1 {
		t.Errorf("the other client: %v", r)
	}

	seen := map[float64]bool{}
	served, refused := 0, 0
	for len(seen) < n {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		id, ok := m["id"].(float64)
		if !ok || m["method"] != nil {
			continue
		}
		if seen[id] {
			t.Fatalf("%v is answered twice", id)
		}
		seen[id] = true
		switch e, _ := m["error"].(message); {
		case m["result"] != nil:
			served++
		case e["code"] == float64(-32001) && e["message"] == "Server overloaded; retry later.":
			refused++
		default:
			t.Fatalf("answer %.300v", m)
		}
	}
	if served == 0 || refused == 0 {
		t.Errorf("%d served, %d refused", served, refused)
	}
	go func() { // what else comes, until the connection ends
		for {
			if _, err := lines.ReadBytes('\n'); err != nil {
				return
			}
		}
	}()
	p.send(`{"id":1000000,"method":"thread/loaded/list","params":{}}`)
}

// A client that only ever writes is read no further at some point, instead of
// filling the memory with refusals, and served again once it reads.
func TestEndlessWriterIsHeldBack(t *testing.T) {
	g := newGateway(t, newFake(t), nil)
	p, out := rawPeer(t, g)
	stopped := make(chan int)
	go func() {
		for i := range 200_000 {
			wrote := make(chan struct{})
			go func() {
				_ = p.write(`{"id":7,"method":"initialize","params":{}}`)
				close(wrote)
			}()
			select {
			case <-wrote:
			case <-time.After(2 * time.Second):
				stopped <- i
				<-wrote
				return
			}
		}
		stopped <- -1
	}()
	if at := <-stopped; at < 10_000 {
		t.Fatalf("held back after %d", at)
	}
	answers := bufio.NewReader(out)
	for range 15_000 {
		if _, err := answers.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLimits(t *testing.T) {
	f := newFake(t)
	g := newGateway(t, f, func(c *gateway.Config) { c.Limits = appserver.Limits{Threads: 2, MessageBytes: 64 << 10} })
	p := stdioPeer(t, g)
	p.initialize()
	first := startThread(p)
	startThread(p)
	if code, text := p.refused("thread/start", message{"cwd": "/work"}); code != -32001 || text != "Server overloaded; retry later." {
		t.Errorf("third thread: %d %s", code, text)
	}
	p.result("thread/unsubscribe", message{"threadId": first})
	if code, text := p.refused("thread/name/set", message{"threadId": first, "name": strings.Repeat("n", 64<<10)}); code != -32600 || !strings.Contains(text, "65536 bytes") {
		t.Errorf("large message: %d %s", code, text)
	}
	if _, err := gateway.New(gateway.Config{Dial: f.dial, Home: "/home", Version: "1", Cwd: "/work", Limits: appserver.Limits{MessageBytes: 10}}); err == nil || !strings.Contains(err.Error(), "message size: 10 is less than") {
		t.Errorf("a limit that serves nobody: %v", err)
	}
}
