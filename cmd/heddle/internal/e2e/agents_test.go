package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// C10: an answer 500 and a 400 with a body reach the user as different, readable
// errors, whatever wire format the provider speaks; exec ends with 1.
func TestModelErrorsOverEachWire(t *testing.T) {
	for _, wire := range []string{"responses", "chat", "anthropic"} {
		for status, want := range map[int]string{500: "high demand", 400: "the schema is bad"} {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"error":{"message":"the schema is bad"}}`)
			}))
			w := newWorld(t, newModel(t, nil))
			w.write(filepath.Join(w.home, "config.toml"), fmt.Sprintf("model = \"m\"\nmodel_provider = \"p\"\n[model_providers.p]\nbase_url = %q\nwire_api = %q\nrequest_max_retries = 0\nstream_max_retries = 0\n", srv.URL+"/v1", wire))
			got := w.exec("--json", "HELLO")
			if got.code != 1 || !strings.Contains(got.stdout, "turn.failed") || !strings.Contains(got.stdout, want) {
				t.Errorf("%s %d: exit %d, %s", wire, status, got.code, got.stdout)
			}
			srv.Close()
		}
	}
}

// A client that follows a thread sees what its sub-agents do, and is asked for
// their approvals.
func TestSubAgentOverTheWire(t *testing.T) {
	m := newModel(t, nil)
	m.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		in := string(body)
		outputs := strings.Count(in, `"function_call_output"`)
		call := func(id, name, space, args string) string {
			return fmt.Sprintf(`{"type":"function_call","id":"fc_%s","call_id":%q,"name":%q,"namespace":%q,"arguments":%q}`, id, id, name, space, args)
		}
		item := `{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"done"}]}`
		switch {
		case strings.Contains(in, "PARENT") && outputs == 0:
			item = call("p1", "spawn_agent", "multi_agent_v1", `{"message":"CHILD"}`)
		case strings.Contains(in, "PARENT") && outputs == 1:
			_, rest, _ := strings.Cut(in, `{\"agent_id\":\"`)
			id, _, _ := strings.Cut(rest, `\"`)
			item = call("p2", "wait_agent", "multi_agent_v1", fmt.Sprintf(`{"targets":[%q],"timeout_ms":60000}`, id))
		case !strings.Contains(in, "PARENT") && outputs == 0:
			item = call("k1", "exec_command", "", `{"cmd":"echo from-the-child"}`)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range []string{`{"type":"response.output_item.done","item":` + item + `}`, `{"type":"response.completed","response":{"id":"r"}}`} {
			var kind struct{ Type string }
			_ = json.Unmarshal([]byte(e), &kind)
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind.Type, e)
		}
	})
	w := newWorld(t, m)
	a := w.appServer()
	th := a.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "untrusted", "config": map[string]any{"features.multi_agent": true}})
	id := th["thread"].(map[string]any)["id"].(string)
	turn := a.startTurn(id, "PARENT")
	q := a.await("the child's question", 30*time.Second, func(m message) bool { return m.Method == "item/commandExecution/requestApproval" })
	child := fmt.Sprint(q.Params["threadId"])
	if child == id {
		t.Fatalf("question %v", q.Params)
	}
	a.send(map[string]any{"id": q.ID, "result": map[string]any{"decision": "accept"}})
	if got := a.awaitTurn(turn, 60*time.Second); got != "completed" {
		t.Errorf("turn %s", got)
	}
	calls := a.completed("collabAgentToolCall")
	if len(calls) != 2 || calls[0]["tool"] != "spawnAgent" || calls[1]["tool"] != "wait" || !strings.Contains(fmt.Sprint(calls[1]["agentsStates"]), "completed") {
		t.Errorf("calls %v", calls)
	}
	// The events of two threads have no order among them.
	a.await("the child's command", 10*time.Second, func(m message) bool {
		item, _ := m.Params["item"].(map[string]any)
		return m.Method == "item/completed" && item["type"] == "commandExecution"
	})
	if cmds := a.completed("commandExecution"); len(cmds) != 1 || !strings.Contains(fmt.Sprint(cmds[0]["aggregatedOutput"]), "from-the-child") {
		t.Errorf("commands %v", cmds)
	}
	list := a.call("thread/list", map[string]any{"sourceKinds": []string{"subAgent"}})
	data, _ := list["data"].([]any)
	if len(data) != 1 || data[0].(map[string]any)["parentThreadId"] != id || !strings.Contains(fmt.Sprint(data[0].(map[string]any)["source"]), "thread_spawn") {
		t.Errorf("list %v", data)
	}
}
