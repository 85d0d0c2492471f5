package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What is changed for a running turn holds from its next request on, also after
// the control plane was killed, and for no other turn.
func TestSettingsOfARunningTurn(t *testing.T) {
	wait := runFor("until [ -e go ]; do sleep 0.02; done", 60000)
	m := newModel(t, map[string][]step{"WAIT": {wait, wait, {say: "done"}}, "HELLO": {{say: "hello there"}}})
	w := newWorld(t, m)
	name := filepath.Join(w.home, "config.toml")
	w.write(name, "model_reasoning_effort = \"low\"\n"+strings.Replace(string(readFile(t, name)), "mock-model", "gpt-5.4", 1))
	app := w.experimental()
	defer app.close()
	asked := func() (model string, effort, tier any) {
		t.Helper()
		m.mu.Lock()
		defer m.mu.Unlock()
		var body struct {
			Model       string         `json:"model"`
			ServiceTier any            `json:"service_tier"`
			Reasoning   map[string]any `json:"reasoning"`
		}
		if err := json.Unmarshal([]byte(m.requests[len(m.requests)-1]), &body); err != nil {
			t.Fatal(err)
		}
		return body.Model, body.Reasoning["effort"], body.ServiceTier
	}
	commands := func(n int) {
		t.Helper()
		w.eventually(fmt.Sprint(n, " commands have begun"), 30*time.Second, func() bool {
			app.mu.Lock()
			defer app.mu.Unlock()
			begun := 0
			for _, m := range app.messages {
				if item, _ := m.Params["item"].(map[string]any); m.Method == "item/started" && item["type"] == "commandExecution" {
					begun++
				}
			}
			return begun >= n
		})
	}
	goOn := filepath.Join(w.workspace, "go")
	started := app.call("thread/start", map[string]any{"cwd": w.workspace, "serviceTier": "priority"})
	row, _ := started["thread"].(map[string]any)
	thread := fmt.Sprint(row["id"])
	turn := app.startTurn(thread, "WAIT")
	update := func(params map[string]any) any {
		t.Helper()
		params["threadId"], params["turnId"] = thread, turn
		return app.call("turn/settings/update", params)["status"]
	}
	commands(1)
	if model, effort, tier := asked(); model != "gpt-5.4" || effort != "low" || tier != "priority" {
		t.Errorf("the turn began with %v %v %v", model, effort, tier)
	}
	if got := update(map[string]any{"model": "gpt-5.5", "effort": "high"}); got != "applied" {
		t.Errorf("update: %v", got)
	}
	local := map[string]any{"environmentId": "local", "cwd": w.workspace}
	if got := update(map[string]any{"serviceTier": nil, "model": nil, "environments": []any{local}}); got != "applied" {
		t.Errorf("second update: %v", got)
	}
	elsewhere := map[string]any{"environmentId": "local", "cwd": "/usr"}
	if got := app.refused("turn/settings/update", map[string]any{"threadId": thread, "turnId": turn, "environments": []any{elsewhere}}); got != "-32600 a running turn stays in its folder, "+w.workspace {
		t.Error(got)
	}
	w.kill(w.controlPlane())
	w.write(goOn, "")
	app.await("end of the first command", 60*time.Second, func(m message) bool {
		item, _ := m.Params["item"].(map[string]any)
		return m.Method == "item/completed" && item["type"] == "commandExecution"
	})
	if status := app.awaitTurn(turn, 60*time.Second); status != "completed" {
		t.Errorf("the turn is %s", status)
	}
	if model, effort, tier := asked(); model != "gpt-5.5" || effort != "high" || tier != nil {
		t.Errorf("the turn went on with %v %v %v", model, effort, tier)
	}
	if got := update(map[string]any{"model": "late-model"}); got != "targetUnavailable" {
		t.Errorf("update of an ended turn: %v", got)
	}
	app.awaitTurn(app.startTurn(thread, "HELLO"), 60*time.Second)
	if model, effort, tier := asked(); model != "gpt-5.4" || effort != "low" || tier != "priority" {
		t.Errorf("the next turn has %v %v %v", model, effort, tier)
	}
	if got := app.count("thread/settings/updated"); got != 0 {
		t.Errorf("%d notices of settings", got)
	}
	if got := app.refused("turn/settings/update", map[string]any{"threadId": "01900000-0000-7000-8000-000000000000", "turnId": turn}); got != "-32600 thread not found: 01900000-0000-7000-8000-000000000000" {
		t.Error(got)
	}
	if err := os.Remove(goOn); err != nil {
		t.Error(err)
	}
}
