package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The executors are the environments; their state is as it is.
func TestEnvironments(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.experimental()
	defer app.close()
	id := func(name string) map[string]any { return map[string]any{"environmentId": name} }
	w.eventually("the local environment is ready", 20*time.Second, func() bool {
		return app.call("environment/status", id("local"))["status"] == "ready"
	})
	if got := app.call("environment/status", id("none")); got["status"] != "unknown" || got["error"] != "unknown environment id `none`" {
		t.Errorf("status of one that is not there: %v", got)
	}
	shell, _ := app.call("environment/info", id("local"))["shell"].(map[string]any)
	if path, _ := shell["path"].(string); !filepath.IsAbs(path) || shell["name"] != filepath.Base(path) {
		t.Errorf("shell: %v", shell)
	}
	if got := app.refused("environment/info", id("none")); got != "-32600 unknown environment id `none`" {
		t.Error(got)
	}
	if got := app.refused("environment/add", map[string]any{"environmentId": "e", "execServerUrl": "ws://127.0.0.1:1"}); !strings.HasSuffix(got, "not supported by this server") {
		t.Error(got)
	}

	place := filepath.Join(w.workspace, "sub")
	in := func(envs ...any) map[string]any { return map[string]any{"environments": append([]any{}, envs...)} }
	local := map[string]any{"environmentId": "local", "cwd": place}
	if got := app.call("thread/start", in(local)); got["cwd"] != place {
		t.Errorf("the thread is in %v", got["cwd"])
	}
	for _, row := range []struct {
		params map[string]any
		want   string
	}{
		{in(map[string]any{"environmentId": "none", "cwd": place}), "-32600 unknown turn environment id `none`"},
		{in(local, local), "-32600 duplicate turn environment id `local`"},
		{in(map[string]any{"environmentId": "local", "cwd": "sub"}), "-32600 invalid cwd for environment `local`: `sub` is not an absolute path"},
	} {
		if got := app.refused("thread/start", row.params); got != row.want {
			t.Errorf("%v:\n got %s\nwant %s", row.params, got, row.want)
		}
	}
}

// A thread without an environment: its model is offered nothing that acts in the
// folder, and cannot call it all the same. Clients ask for titles so.
func TestThreadWithoutEnvironment(t *testing.T) {
	m := newModel(t, map[string][]step{"TITLE": {run("echo hi > made.txt"), {say: "a title"}}})
	w := newWorld(t, m)
	app := w.experimental()
	defer app.close()
	thread, _ := app.call("thread/start", map[string]any{
		"cwd": w.workspace, "ephemeral": true, "environments": []any{}, "sandbox": "danger-full-access", "approvalPolicy": "never",
		"config": map[string]any{"features.shell_tool": true, "features": map[string]any{"goals": false}},
	})["thread"].(map[string]any)
	turn := app.startTurn(thread["id"].(string), "say TITLE")
	if got := app.awaitTurn(turn, 30*time.Second); got != "completed" {
		t.Errorf("the turn is %s", got)
	}
	if _, err := os.Stat(filepath.Join(w.workspace, "made.txt")); err == nil || len(app.completed("commandExecution")) != 0 {
		t.Error("a command ran")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, request := range m.requests {
		var body struct {
			Tools []struct {
				Name string `json:"name"`
			} `json:"tools"`
		}
		if err := json.Unmarshal([]byte(request), &body); err != nil {
			t.Fatal(err)
		}
		for _, tool := range body.Tools {
			if tool.Name != "update_plan" && tool.Name != "request_user_input" && tool.Name != "" { // a web search has no name
				t.Errorf("%s was offered", tool.Name)
			}
		}
	}
	if last := m.requests[len(m.requests)-1]; !strings.Contains(last, "unsupported call: exec_command") {
		t.Errorf("the model was not told: %s", last)
	}
}
