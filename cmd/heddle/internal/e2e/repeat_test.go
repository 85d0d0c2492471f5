package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// P10 with real effects: a model that says one call two hundred times in an
// answer, then with other arguments, then again in later answers, has it run
// once, is told so, and is stopped at some point.
func TestP10RepeatedCallHasOneEffect(t *testing.T) {
	m := newModel(t, nil)
	const repeats = 200
	asked := 0
	call := func(cmd string) string {
		args, _ := json.Marshal(map[string]any{"cmd": cmd})
		item, _ := json.Marshal(map[string]any{"type": "function_call", "id": "fc", "call_id": "one", "name": "exec_command", "arguments": string(args)})
		return fmt.Sprintf("data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":%s}\n\n", item)
	}
	m.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		m.mu.Lock()
		asked++
		n := asked
		m.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\n")
		same := 1
		if n == 1 {
			same = repeats
		}
		for range same {
			_, _ = io.WriteString(w, call("echo once >> effects"))
		}
		_, _ = io.WriteString(w, call("echo changed >> effects"))
		_, _ = io.WriteString(w, "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1,\"total_tokens\":2}}}\n\n")
	})
	w := newWorld(t, m)
	app := w.appServer()
	status := app.awaitTurn(app.startTurn(app.startThread(), "go"), 60*time.Second)
	if status != "failed" {
		t.Errorf("the turn is %s", status)
	}
	if got := string(readable(filepath.Join(w.workspace, "effects"))); got != "once\n" {
		t.Errorf("the calls left %q", got)
	}
	m.mu.Lock()
	n := asked
	m.mu.Unlock()
	if cmds := app.completed("commandExecution"); n > repeats || len(cmds) != 1 {
		t.Errorf("the model was asked %d times, %d commands", n, len(cmds))
	}
	oneEnd(t, app)
	app.close()
}

// P13: a fork at an earlier turn knows nothing of what came after it: not the
// later turn, its command, its steer or its answer, in what clients read and in
// what its model is sent.
func TestP13ForkBeforeASteer(t *testing.T) {
	m := newModel(t, map[string][]step{
		"FIRST":  {{say: "first-answer"}},
		"SECOND": {runFor("echo begin; echo $$ > pid; sleep 600", 60000), {say: "never"}},
		"STEER":  {{say: "steered-answer"}},
		"THIRD":  {{say: "third-answer"}},
	})
	w := newWorld(t, m)
	app := w.appServer()
	thread := app.startThread()
	first := app.startTurn(thread, "FIRST")
	app.awaitTurn(first, 30*time.Second)
	second := app.startTurn(thread, "SECOND")
	w.awaitPid()
	app.call("turn/steer", steer(thread, second, "later STEER"))
	fork := func(when string) {
		t.Helper()
		row, _ := app.call("thread/fork", map[string]any{"threadId": thread, "lastTurnId": first})["thread"].(map[string]any)
		data, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		if turns, _ := row["turns"].([]any); len(turns) != 1 || !strings.Contains(string(data), "first-answer") {
			t.Errorf("%s, the fork has turns %v", when, row["turns"])
		}
		id := fmt.Sprint(row["id"])
		items, err := json.Marshal(app.call("thread/read", map[string]any{"threadId": id, "includeTurns": true}))
		if err != nil {
			t.Fatal(err)
		}
		if status := app.awaitTurn(app.startTurn(id, "THIRD"), 30*time.Second); status != "completed" {
			t.Errorf("%s, a turn of the fork is %s", when, status)
		}
		m.mu.Lock()
		sent := m.requests[len(m.requests)-1]
		m.mu.Unlock()
		if !strings.Contains(sent, "first-answer") || !strings.Contains(sent, "THIRD") {
			t.Errorf("%s, the fork's model was not sent its own history", when)
		}
		for _, later := range []string{"SECOND", "STEER", "steered-answer", "sleep 600"} {
			for what, text := range map[string]string{"fork": string(data), "items": string(items), "request": sent} {
				if strings.Contains(text, later) {
					t.Errorf("%s, the fork's %s has %q", when, what, later)
				}
			}
		}
	}
	fork("while the later turn runs")
	app.call("turn/interrupt", map[string]any{"threadId": thread, "turnId": second})
	app.awaitTurn(second, 30*time.Second)
	fork("after the later turn")
	app.close()
}
