package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// shownText is what a client that resumed a thread in the middle of a message
// has of it in the end: the text of the answer and the deltas after it.
func shownText(a *appServer, resumed map[string]any, turn string) (text string, final string) {
	thread, _ := resumed["thread"].(map[string]any)
	turns, _ := thread["turns"].([]any)
	for _, v := range turns {
		row, _ := v.(map[string]any)
		if row["id"] != turn {
			continue
		}
		items, _ := row["items"].([]any)
		for _, it := range items {
			if m, _ := it.(map[string]any); m["type"] == "agentMessage" {
				text += fmt.Sprint(m["text"])
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.messages {
		switch m.Method {
		case "item/agentMessage/delta":
			text += fmt.Sprint(m.Params["delta"])
		case "item/completed":
			if it, _ := m.Params["item"].(map[string]any); it["type"] == "agentMessage" {
				final = fmt.Sprint(it["text"])
			}
		}
	}
	return text, final
}

// P4: clients that join a turn at any moment of a streamed message have all of
// it, and no part twice: the answer ends where the notifications begin.
func TestResumeInMidMessageHasNoGap(t *testing.T) {
	var whole strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&whole, "%d,", i)
	}
	w := newWorld(t, newModel(t, map[string][]step{"STREAM": {{say: whole.String(), parts: 1200, pause: 2 * time.Millisecond}}}))
	first := w.client("app-server", "--on-disconnect", "continue")
	thread := first.startThread()
	turn := first.startTurn(thread, "STREAM")
	var joined []*appServer
	for range 6 {
		joined = append(joined, w.client("app-server", "--on-disconnect", "continue"))
	}
	first.await("the first delta", 30*time.Second, func(m message) bool { return m.Method == "item/agentMessage/delta" })
	var wg sync.WaitGroup
	for i, a := range joined {
		wg.Go(func() {
			time.Sleep(time.Duration(i*170) * time.Millisecond)
			resumed := a.call("thread/resume", map[string]any{"threadId": thread})
			a.awaitTurn(turn, 60*time.Second)
			text, final := shownText(a, resumed, turn)
			if text != whole.String() || final != whole.String() && final != "" {
				t.Errorf("client %d has %d bytes of %d (completed %d): %.80q ... %.80q", i, len(text), whole.Len(), len(final), text, text[max(0, len(text)-80):])
			}
		})
	}
	wg.Wait()
	for _, a := range append(joined, first) {
		a.close()
	}
}

// A client that comes back after everything was restarted reads the log on from
// the last number that it saw, also of what was compacted, and fetches artifacts.
func TestReplayAfterRestart(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"GO": {run("echo hello"), {say: strings.Repeat("word ", 400), parts: 400}}}))
	caps := map[string]any{"experimentalApi": true, "heddle": map[string]any{"eventSeq": true}}
	a := w.connect(caps, "app-server")
	thread := a.startThread()
	a.awaitTurn(a.startTurn(thread, "GO"), 60*time.Second)
	var seqs []uint64
	a.mu.Lock()
	for _, m := range a.messages {
		if m.Seq > 0 {
			seqs = append(seqs, m.Seq)
		}
	}
	a.mu.Unlock()
	a.close()
	w.stopped()
	if len(seqs) < 50 {
		t.Fatalf("%d numbered notifications", len(seqs))
	}
	jumps := 0
	for _, after := range []uint64{0, seqs[3], seqs[len(seqs)/2], seqs[len(seqs)-2], seqs[len(seqs)-1]} {
		b := w.connect(caps, "app-server")
		r := b.call("thread/events/subscribe", map[string]any{"threadId": thread, "after": after})
		if uint64(r["head"].(float64)) < seqs[len(seqs)-1] {
			t.Errorf("subscribe: %v", r)
		}
		b.call("thread/name/set", map[string]any{"threadId": thread, "name": fmt.Sprint("after ", after)})
		b.await("the name", 30*time.Second, func(m message) bool {
			return m.Method == "thread/name/updated" && m.Params["threadName"] == fmt.Sprint("after ", after)
		})
		last := after
		b.mu.Lock()
		for _, m := range b.messages {
			if m.Seq == 0 {
				continue
			}
			if m.Prev != last || m.Seq <= last {
				t.Errorf("after %d: %s %d has prev %d after %d", after, m.Method, m.Seq, m.Prev, last)
			}
			last = m.Seq
			if m.Method == "thread/events/compacted" {
				jumps++
			}
		}
		b.mu.Unlock()
		list := b.call("thread/artifacts/list", map[string]any{"threadId": thread, "kind": "output"})
		data, _ := list["data"].([]any)
		if len(data) != 1 {
			t.Fatalf("artifacts: %v", list)
		}
		id := data[0].(map[string]any)["id"]
		if got := b.call("thread/artifacts/read", map[string]any{"threadId": thread, "artifactId": id, "offset": 1, "length": 3}); got["dataBase64"] != "ZWxs" || got["total"] != float64(6) {
			t.Errorf("artifact: %v", got)
		}
		b.close()
	}
	if jumps == 0 {
		t.Error("no range was compacted: the test shows nothing about jumps")
	}
}

// With on_disconnect = "continue" in the home's config, a turn outlives the client
// that it was started by on standard streams.
func TestTurnGoesOnAsTheConfigSays(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"STREAM": {{say: strings.Repeat("word ", 400), parts: 200, pause: 10 * time.Millisecond}}}))
	name := filepath.Join(w.home, "config.toml")
	w.write(name, "on_disconnect = \"continue\"\n"+string(readFile(t, name)))
	first := w.client("app-server")
	thread := first.startThread()
	turn := first.startTurn(thread, "STREAM")
	first.await("the first delta", 30*time.Second, func(m message) bool { return m.Method == "item/agentMessage/delta" })
	first.close()
	next := w.client("app-server")
	defer next.close()
	status := func() any {
		read, _ := next.call("thread/read", map[string]any{"threadId": thread, "includeTurns": true})["thread"].(map[string]any)
		turns, _ := read["turns"].([]any)
		if len(turns) != 1 {
			t.Fatalf("turns: %v", turns)
		}
		last, _ := turns[0].(map[string]any)
		if last["id"] != turn {
			t.Fatalf("turn %v, want %s", last["id"], turn)
		}
		return last["status"]
	}
	w.eventually("the turn's end", 30*time.Second, func() bool { return status() != "inProgress" })
	if got := status(); got != "completed" {
		t.Errorf("the turn is %v, want completed", got)
	}
}
