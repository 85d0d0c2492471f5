package e2e

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// P8 through the real processes: a question is put to a client whose connection
// drops, then the control plane is killed. Who resumes is asked under the same
// id; of two answers the first one counts, the second harms nothing, and both
// clients are told that the question is resolved, once.
func TestP8QuestionSurvivesEverything(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{}))
	effect := nextTo(w, "effect")
	plays(w, "ASK", step{call: "exec_command", args: map[string]any{"cmd": "echo ran >> " + effect, "sandbox_permissions": "require_escalated", "justification": "may it?"}}, step{say: "went on"})
	socket := filepath.Join(filepath.Dir(w.home), "app.sock")
	w.awaitLog(w.role("app-server", "--listen", "unix://"+socket), socket)
	first, leave := w.wsClient(socket)
	row, _ := first.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "on-request"})["thread"].(map[string]any)
	thread := fmt.Sprint(row["id"])
	turn := first.startTurn(thread, "ASK")
	asked := func(m message) bool { return m.Method == "item/commandExecution/requestApproval" }
	question := first.await("the question", 30*time.Second, asked)
	leave()
	w.kill(w.controlPlane())
	var clients []*appServer
	for range 2 {
		c, done := w.wsClient(socket)
		defer done()
		c.call("thread/resume", map[string]any{"threadId": thread})
		again := c.await("the question again", 30*time.Second, asked)
		if string(again.ID) != string(question.ID) || fmt.Sprint(again.Params["command"]) != fmt.Sprint(question.Params["command"]) {
			t.Errorf("asked %s %v, before it was %s", again.ID, again.Params["command"], question.ID)
		}
		clients = append(clients, c)
	}
	if there(effect) {
		t.Error("it ran before the answer")
	}
	clients[0].send(map[string]any{"id": question.ID, "result": map[string]any{"decision": "accept"}})
	for _, c := range clients {
		c.await("the question is resolved", 30*time.Second, func(m message) bool {
			return m.Method == "serverRequest/resolved" && fmt.Sprint(m.Params["requestId"]) == string(question.ID)
		})
	}
	clients[1].send(map[string]any{"id": question.ID, "result": map[string]any{"decision": "cancel"}})
	for _, c := range clients {
		if status := c.awaitTurn(turn, 30*time.Second); status != "completed" {
			t.Errorf("the turn is %s", status)
		}
		c.call("thread/loaded/list", map[string]any{}) // what the second answer caused is here by now
		if n := c.count("serverRequest/resolved"); n != 1 {
			t.Errorf("told %d times that the question is resolved", n)
		}
		c.checkOrder()
	}
	if got := string(readable(effect)); got != "ran\n" {
		t.Errorf("the command left %q", got)
	}
}

// P5: what a steer meets while an answer is streamed: the id of the turn before, of
// none and the right one. The accepted input reaches the model in this turn.
func TestP5SteerWhileTheModelSpeaks(t *testing.T) {
	t.Parallel() // it waits
	m := newModel(t, map[string][]step{
		"FIRST": {{say: "first"}},
		"SPEAK": {{say: strings.Repeat("word ", 3000), parts: 3000, pause: 2 * time.Millisecond}},
		"MORE":  {{say: "steered"}},
	})
	w := newWorld(t, m)
	app := w.appServer()
	thread := app.startThread()
	old := app.startTurn(thread, "FIRST")
	app.awaitTurn(old, 30*time.Second)
	turn := app.startTurn(thread, "SPEAK")
	app.await("the first delta", 30*time.Second, func(m message) bool {
		return m.Method == "item/agentMessage/delta" && m.Params["turnId"] == turn
	})
	for _, wrong := range []string{old, "", "01900000-0000-7000-8000-000000000000"} {
		if got := app.refused("turn/steer", steer(thread, wrong, "never")); !strings.HasPrefix(got, "-32600") {
			t.Errorf("expectedTurnId %q: %s", wrong, got)
		}
	}
	if got := app.call("turn/steer", steer(thread, turn, "and MORE")); got["turnId"] != turn {
		t.Errorf("steer: %v", got)
	}
	if status := app.awaitTurn(turn, 30*time.Second); status != "completed" {
		t.Errorf("the turn is %s", status)
	}
	var said []string
	for _, item := range app.completed("agentMessage") {
		said = append(said, fmt.Sprint(item["text"]))
	}
	if len(said) != 3 || said[2] != "steered" || !strings.HasPrefix(said[1], "word ") || len(app.completed("userMessage")) != 3 {
		t.Errorf("%d messages, %d inputs; the last is %q", len(said), len(app.completed("userMessage")), said[len(said)-1])
	}
	// Steers that race with the end: each is refused or an item, and never lost.
	accepted := 0
	for i := range 12 {
		turn := app.startTurn(thread, "FIRST")
		time.Sleep(time.Duration(i) * time.Millisecond)
		before := len(app.completed("userMessage"))
		if m := app.ask("turn/steer", steer(thread, turn, fmt.Sprintf("FIRST %d", i))); m.Error == nil {
			accepted++
			app.await("the steer is an item", 30*time.Second, func(m message) bool {
				item, _ := m.Params["item"].(map[string]any)
				return m.Method == "item/completed" && item["type"] == "userMessage" && strings.Contains(fmt.Sprint(item["content"]), fmt.Sprintf("FIRST %d", i))
			})
		} else if len(app.completed("userMessage")) > before+1 {
			t.Errorf("a refused steer is an item")
		}
		app.awaitTurn(turn, 30*time.Second)
	}
	t.Logf("%d of 12 steers were accepted", accepted)
	app.close()
}

// P11: a model that fails the same way each time is asked a bounded number of
// times; then the turn fails, in words, and no tool has run.
func TestP11RetriesAreBounded(t *testing.T) {
	t.Parallel() // it waits
	for name, fail := range map[string]http.HandlerFunc{
		"closes after the call": func(w http.ResponseWriter, _ *http.Request) {
			reply(&cutWriter{ResponseWriter: w, until: "response.output_item.done"}, run("echo ran >> effects"), 1)
		},
		"no header": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"half an event": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: response.created\ndata: {\"type\":")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, nil)
			var asked atomic.Int32
			m.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				asked.Add(1)
				fail(w, r)
			})
			w := newWorld(t, m)
			config := filepath.Join(w.home, "config.toml")
			w.write(config, string(readFile(t, config))+"stream_idle_timeout_ms = 300\nrequest_max_retries = 1\nstream_max_retries = 2\n")
			got := w.exec("--json", "go")
			evs := events(t, got.stdout)
			if got.code != 1 || len(evs) == 0 || evs[len(evs)-1]["type"] != "turn.failed" {
				t.Errorf("exit %d\n%s", got.code, got.stdout)
			}
			// Each of the three tries of a stream may be two requests.
			if n := asked.Load(); n < 2 || n > 6 {
				t.Errorf("the model was asked %d times", n)
			}
			if there(filepath.Join(w.workspace, "effects")) {
				t.Error("the tool ran")
			}
		})
	}
}
