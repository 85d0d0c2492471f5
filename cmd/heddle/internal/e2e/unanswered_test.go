package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// askingServer is an MCP server whose tool asks the person and gives back what it
// was answered.
const askingServer = `while read -r line; do
id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
case "$line" in
*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"asks","version":"1"}}}' ;;
*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"ask","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}}' ;;
*'"tools/call"'*)
	echo '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"which?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}}'
	read -r answer
	action=$(printf %s "$answer" | sed -n 's/.*"action":"\([a-z]*\)".*/\1/p')
	echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"the action was '$action'"}]}}' ;;
*) [ -z "$id" ] || echo '{"jsonrpc":"2.0","id":'$id',"result":{}}' ;;
esac
done
`

// P9, C17: every kind of question that a server puts to its client, to one that
// answers that it knows no such method, and to one that never answers. The stated
// default holds by the deadline: nothing is done, the model is told, and the turn
// goes on to its end.
func TestP9EveryKindOfQuestion(t *testing.T) {
	t.Parallel() // it waits
	w := newWorld(t, newModel(t, map[string][]step{}))
	outside := nextTo(w, "outside.txt")
	if err := os.Mkdir(nextTo(w, "out"), 0o700); err != nil {
		t.Fatal(err)
	}
	patch := "*** Begin Patch\n*** Add File: " + outside + "\n+one\n*** End Patch"
	kinds := map[string]struct {
		method, mode  string
		call          step
		refused, late string // what the model is told
	}{
		"COMMAND":     {"item/commandExecution/requestApproval", "default", step{call: "exec_command", args: map[string]any{"cmd": "touch " + outside, "sandbox_permissions": "require_escalated", "justification": "may it?"}}, "approval request failed", "rejected by user"},
		"FILE":        {"item/fileChange/requestApproval", "default", step{call: "apply_patch", args: map[string]any{"input": patch}}, "apply_patch failed: approval request failed", "patch rejected by user"},
		"PERMISSIONS": {"item/permissions/requestApproval", "default", step{call: "request_permissions", args: map[string]any{"reason": "r", "permissions": writeTo(nextTo(w, "out"))}}, "nothing was granted", "not answered in time; nothing was granted"},
		"INPUT":       {"item/tool/requestUserInput", "plan", step{call: "request_user_input", args: map[string]any{"questions": []any{map[string]any{"id": "q", "header": "H", "question": "which?", "options": []any{map[string]any{"label": "a", "description": "b"}, map[string]any{"label": "c", "description": "d"}}}}}}, "cancelled before receiving a response", "not answered in time"},
		"TOOL":        {"item/tool/call", "default", step{call: "lookup", args: map[string]any{"key": "k"}}, "dynamic tool request failed", "the client did not answer in time"},
		"ELICIT":      {"mcpServer/elicitation/request", "default", step{call: "ask", of: "mcp__asks", args: map[string]any{}}, "the action was ", "the action was "},
	}
	for word, kind := range kinds {
		plays(w, word, kind.call, step{say: "went on"})
	}
	script := filepath.Join(w.home, "server.sh")
	w.write(script, askingServer)
	config := filepath.Join(w.home, "config.toml")
	w.write(config, "approval_timeout_secs = 3\n"+strings.Replace(string(readFile(t, config)), `"never"`, `"on-request"`, 1)+
		fmt.Sprintf("\n[features]\nrequest_permissions_tool = true\n[mcp_servers.asks]\ncommand = \"/bin/bash\"\nargs = [%q]\n", script))
	app := w.experimental()
	for word, kind := range kinds {
		for _, answers := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s answered %v", word, answers), func(t *testing.T) {
				result := app.call("thread/start", map[string]any{"cwd": w.workspace, "dynamicTools": []any{map[string]any{
					"type": "function", "name": "lookup", "description": "looks up", "inputSchema": map[string]any{"type": "object"}}}})
				thread, _ := result["thread"].(map[string]any)
				id := fmt.Sprint(thread["id"])
				began := time.Now()
				started, _ := app.call("turn/start", map[string]any{"threadId": id, "input": []any{map[string]any{"type": "text", "text": word}},
					"collaborationMode": map[string]any{"mode": kind.mode, "settings": map[string]any{"model": "mock-model"}}})["turn"].(map[string]any)
				turn := fmt.Sprint(started["id"])
				asked := app.await("the question", 20*time.Second, func(m message) bool { return m.Method == kind.method && m.Params["threadId"] == id })
				if answers {
					app.send(map[string]any{"id": asked.ID, "error": map[string]any{"code": -32601, "message": "Method not found"}})
				}
				if status := app.awaitTurn(turn, 15*time.Second); status != "completed" {
					t.Errorf("the turn is %s", status)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("the turn took %v", took)
				}
				app.await("the question is closed", 5*time.Second, func(m message) bool {
					return m.Method == "serverRequest/resolved" && m.Params["threadId"] == id
				})
				if _, err := os.Stat(outside); err == nil {
					t.Error("it was done")
				}
				w.model.mu.Lock()
				told := w.model.requests[len(w.model.requests)-1]
				w.model.mu.Unlock()
				want := kind.late
				if answers {
					want = kind.refused
				}
				if _, output, _ := strings.Cut(told, `"function_call_output"`); !strings.Contains(output, want) {
					t.Errorf("the model was told %.300q, want %q", output, want)
				}
			})
		}
	}
	app.close()
}
