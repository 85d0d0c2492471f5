package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// at follows member names and indexes through an answer.
func at(v any, path ...any) any {
	for _, step := range path {
		switch key := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[key]
		case int:
			l, _ := v.([]any)
			if key >= len(l) {
				return nil
			}
			v = l[key]
		}
	}
	return v
}

// asJSON is a value in one line, so that null and absent members are told apart.
func asJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// What the reference says of a new thread beyond its settings: the profile that
// its policy is, its environment, and the folders it may work in.
func TestNewThreadsAreDescribedAsByTheReference(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.experimental()
	defer app.close()
	local := asJSON([]any{map[string]any{"environmentId": "local", "cwd": w.workspace, "runtimeWorkspaceRoots": []any{w.workspace}}})
	for name, row := range map[string]struct {
		params                            map[string]any
		profile, environments, tier, asks string
	}{
		"plain":     {map[string]any{}, `{"extends":null,"id":":workspace"}`, local, "null", "user"},
		"profile":   {map[string]any{"permissions": ":read-only"}, `{"extends":null,"id":":read-only"}`, local, "null", "user"},
		"fast":      {map[string]any{"serviceTier": "fast"}, `{"extends":null,"id":":workspace"}`, local, `"priority"`, "user"},
		"no tier":   {map[string]any{"serviceTier": nil}, `{"extends":null,"id":":workspace"}`, local, `"default"`, "user"},
		"reviewer":  {map[string]any{"approvalsReviewer": "guardian_subagent"}, `{"extends":null,"id":":workspace"}`, local, "null", "auto_review"},
		"no place":  {map[string]any{"environments": []any{}}, `{"extends":null,"id":":workspace"}`, "[]", "null", "user"},
		"more room": {map[string]any{"config": map[string]any{"sandbox_mode": "workspace-write", "sandbox_workspace_write": map[string]any{"network_access": true}}}, "null", local, "null", "user"},
	} {
		row.params["cwd"] = w.workspace
		got := app.call("thread/start", row.params)
		if p, e := asJSON(got["activePermissionProfile"]), asJSON(at(got, "thread", "environments")); p != row.profile || e != row.environments {
			t.Errorf("%s: profile %s, environments %s; want %s, %s", name, p, e, row.profile, row.environments)
		}
		if tier := asJSON(got["serviceTier"]); tier != row.tier || got["approvalsReviewer"] != row.asks {
			t.Errorf("%s: tier %s, reviewer %v; want %s, %s", name, tier, got["approvalsReviewer"], row.tier, row.asks)
		}
		if at(got, "thread", "canAcceptDirectInput") != true || got["multiAgentMode"] != "explicitRequestOnly" {
			t.Errorf("%s: %v", name, got)
		}
	}
	both := app.refused("thread/start", map[string]any{"permissions": ":workspace", "sandbox": "read-only"})
	if !strings.Contains(both, "`permissions` cannot be combined with `sandbox`") {
		t.Errorf("two policies: %s", both)
	}
}

// The tier that clients call fast is asked for by its name, null takes it back,
// and a mode without an effort takes the effort back.
func TestWhatClientsTakeBack(t *testing.T) {
	m := newModel(t, map[string][]step{"HELLO": {{say: "hello there"}, {say: "again"}, {say: "and again"}, {say: "at last"}}})
	w := newWorld(t, m)
	name := filepath.Join(w.home, "config.toml")
	w.write(name, strings.Replace(string(readFile(t, name)), "mock-model", "gpt-5.4", 1))
	app := w.experimental()
	defer app.close()
	thread := app.startThread()
	mode := func(effort any) map[string]any {
		return map[string]any{"mode": "default", "settings": map[string]any{"model": "gpt-5.4", "reasoning_effort": effort, "developer_instructions": nil}}
	}
	for _, row := range []struct {
		more         map[string]any
		tier, effort any
	}{
		{map[string]any{"serviceTier": "fast", "collaborationMode": mode("low")}, "priority", "low"},
		{map[string]any{}, "priority", "low"},
		{map[string]any{"serviceTier": nil, "collaborationMode": mode(nil)}, nil, nil},
		{map[string]any{}, nil, nil},
	} {
		row.more["threadId"], row.more["input"] = thread, []any{map[string]any{"type": "text", "text": "HELLO"}}
		turn := fmt.Sprint(at(app.call("turn/start", row.more), "turn", "id"))
		if status := app.awaitTurn(turn, 30*time.Second); status != "completed" {
			t.Fatalf("%v: %s", row.more, status)
		}
		m.mu.Lock()
		var body map[string]any
		err := json.Unmarshal([]byte(m.requests[len(m.requests)-1]), &body)
		m.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if body["service_tier"] != row.tier || at(body, "reasoning", "effort") != row.effort {
			t.Errorf("%v: asked with tier %v and effort %v", row.more, body["service_tier"], at(body, "reasoning", "effort"))
		}
	}
}

// How closely an image is to be looked at is shown again and told to the model.
func TestDetailOfImages(t *testing.T) {
	m := newModel(t, map[string][]step{"HELLO": {{say: "hello there"}}})
	w := newWorld(t, m)
	app := w.experimental()
	defer app.close()
	thread := app.startThread()
	const url = "data:image/png;base64,iVBORw0KGgo="
	turn := fmt.Sprint(at(app.call("turn/start", map[string]any{"threadId": thread, "input": []any{
		map[string]any{"type": "text", "text": "HELLO"},
		map[string]any{"type": "image", "url": url, "detail": "high"}, map[string]any{"type": "image", "url": url},
	}}), "turn", "id"))
	app.awaitTurn(turn, 30*time.Second)
	content := at(app.completed("userMessage")[0], "content")
	if got := asJSON([]any{at(content, 1, "detail"), at(content, 2)}); got != `["high",{"detail":null,"type":"image","url":"`+url+`"}]` {
		t.Errorf("shown: %s", got)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if asked := m.requests[len(m.requests)-1]; strings.Count(asked, `"detail":"high"`) != 1 || strings.Count(asked, `"detail"`) != 1 {
		t.Errorf("asked: %s", asked)
	}
}

// Answers and refusals that clients of the reference know.
func TestAnswersThatClientsKnow(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"HELLO": {{say: "hello there"}}}))
	app := w.experimental()
	defer app.close()
	thread := app.startThread()
	of := func(more map[string]any) map[string]any { more["threadId"] = thread; return more }
	app.awaitTurn(app.startTurn(thread, "HELLO"), 30*time.Second)

	first := at(app.call("thread/timeline/list", of(map[string]any{})), "data", 0)
	for camel, snake := range map[string]string{"turnId": "turn_id", "startedAt": "started_at"} {
		if at(first, camel) == nil || at(first, camel) != at(first, snake) {
			t.Errorf("timeline: %v", first)
		}
	}
	if got := asJSON(app.call("turn/interrupt", of(map[string]any{"turnId": ""}))); got != "{}" {
		t.Errorf("interrupt of whatever is starting: %s", got)
	}
	if got := at(app.call("review/start", of(map[string]any{"target": map[string]any{"type": "custom", "instructions": "HELLO"}})), "turn", "items", 0, "content", 0, "text"); got != "HELLO" {
		t.Errorf("review: %v", got)
	}
	app.call("thread/goal/set", of(map[string]any{"objective": "do it", "status": "paused"}))
	page := app.call("permissionProfile/list", map[string]any{"limit": 2})
	rest := app.call("permissionProfile/list", map[string]any{"cursor": page["nextCursor"]})
	if at(page, "data", 1, "id") != ":workspace" || at(page, "data", 2) != nil || at(rest, "data", 0, "id") != ":danger-full-access" || rest["nextCursor"] != nil {
		t.Errorf("profiles: %v %v", page, rest)
	}
	outside := fmt.Sprint(at(app.call("thread/start", map[string]any{"cwd": t.TempDir()}), "thread", "id"))
	git := at(app.call("thread/metadata/update", map[string]any{"threadId": outside, "gitInfo": map[string]any{"branch": "b"}}), "thread", "gitInfo")
	if asJSON(git) != `{"branch":"b","originUrl":null,"sha":null}` {
		t.Errorf("git of a folder without: %s", asJSON(git))
	}
	if data, _ := app.call("thread/list", map[string]any{"cwd": []any{}})["data"].([]any); len(data) != 0 {
		t.Errorf("threads of no folder: %v", data)
	}
	for method, want := range map[string]string{
		"plugin/list":              `{"featuredPluginIds":[],"marketplaceLoadErrors":[],"marketplaces":[]}`,
		"accountSession/list":      `{"activeSessionId":null,"sessions":[]}`,
		"windowsSandbox/readiness": `{"status":"notConfigured"}`,
	} {
		params := map[string]any{}
		if method == "windowsSandbox/readiness" {
			params = nil
		}
		if got := asJSON(app.call(method, params)); got != want {
			t.Errorf("%s: %s", method, got)
		}
	}
	if got := app.call("remoteControl/status/read", nil); got["status"] != "disabled" {
		t.Errorf("remote control: %v", got)
	}
	edit := func(key string, value any) map[string]any {
		return map[string]any{"keyPath": key, "value": value, "mergeStrategy": "replace"}
	}
	for _, row := range []struct {
		method, text string
		params       map[string]any
	}{
		{"thread/goal/set", "goal objective must not be empty", of(map[string]any{"objective": " "})},
		{"thread/goal/set", "goal objective must be at most 4000 characters", of(map[string]any{"objective": strings.Repeat("x", 4001)})},
		{"thread/goal/set", "goal budgets must be positive when provided", of(map[string]any{"tokenBudget": 0})},
		{"thread/metadata/update", "gitInfo.branch must not be empty", of(map[string]any{"gitInfo": map[string]any{"branch": " "}})},
		{"turn/start", "`permissions` cannot be combined with `sandboxPolicy`", of(map[string]any{"input": []any{}, "permissions": ":workspace", "sandboxPolicy": map[string]any{"type": "readOnly"}})},
		{"turn/start", "unknown variant `huge`, expected one of `auto`, `low`, `high`, `original`", of(map[string]any{"input": []any{map[string]any{"type": "image", "url": "x", "detail": "huge"}}})},
		// A config that chooses a profile it does not have stops every thread.
		{"config/value/write", "there is no [profiles.none] table", edit("profile", "none")},
	} {
		if got := app.refused(row.method, row.params); !strings.Contains(got, row.text) {
			t.Errorf("%s: %s; want %s", row.method, got, row.text)
		}
	}
}

// A config file that does not parse stops no client, but no thread starts on
// defaults that speak to another provider. What is there is read as before, and a
// corrected file is enough.
func TestNoThreadStartsOnAFileThatDoesNotParse(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"HELLO": {{say: "hello there"}, {say: "again"}}}))
	app := w.experimental()
	defer app.close()
	thread := app.startThread()
	app.awaitTurn(app.startTurn(thread, "HELLO"), 30*time.Second)
	name := filepath.Join(w.home, "config.toml")
	good := string(readFile(t, name))
	w.write(name, good+"\nthis is = = not toml\n")
	got := app.refused("thread/start", map[string]any{"cwd": w.workspace})
	if !strings.HasPrefix(got, "-32600 failed to load configuration: "+name+":") {
		t.Errorf("thread/start: %s", got)
	}
	if r := w.exec("HELLO"); r.code == 0 || !strings.Contains(r.stderr, "Invalid configuration") {
		t.Errorf("exec: %d %s", r.code, r.stderr)
	}
	if data, _ := app.call("thread/list", map[string]any{})["data"].([]any); len(data) != 1 {
		t.Errorf("listed: %v", data)
	}
	w.write(name, good)
	app.awaitTurn(app.startTurn(app.startThread(), "HELLO"), 30*time.Second)
}

// What a project is trusted with decides where nothing is set.
func TestTrustChoosesTheDefaults(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"HELLO": {{say: "hello"}}}))
	name := filepath.Join(w.home, "config.toml")
	var lines []string
	for _, l := range strings.Split(string(readFile(t, name)), "\n") {
		if !strings.HasPrefix(l, "sandbox_mode") && !strings.HasPrefix(l, "approval_policy") {
			lines = append(lines, l)
		}
	}
	app := w.experimental()
	defer app.close()
	for trust, want := range map[string]string{"trusted": `workspaceWrite on-request`, "untrusted": `workspaceWrite untrusted`, "": `readOnly on-request`} {
		text := strings.Join(lines, "\n")
		if trust != "" {
			text += "\n[projects.\"" + w.workspace + "\"]\ntrust_level = \"" + trust + "\"\n"
		}
		w.write(name, text)
		got := app.call("thread/start", map[string]any{"cwd": w.workspace})
		if is := fmt.Sprint(at(got, "sandbox", "type"), " ", got["approvalPolicy"]); is != want {
			t.Errorf("trust %q: %s, want %s", trust, is, want)
		}
	}
}

// A key of a thread's config that means nothing is said, and holds nothing up.
func TestUnknownKeysOfAThreadsConfigAreSaid(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.experimental()
	defer app.close()
	app.call("thread/start", map[string]any{"cwd": w.workspace, "config": map[string]any{"model_reasoning_efort": "high", "model_verbosity": "low"}})
	m := app.await("the warning", 20*time.Second, func(m message) bool { return m.Method == "warning" })
	if text := fmt.Sprint(m.Params["message"]); !strings.Contains(text, "model_reasoning_efort") || !strings.Contains(text, "model_reasoning_effort") {
		t.Errorf("warning: %s", text)
	}
	app.startThread()
	if n := app.count("warning"); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

// The path that a thread is shown with can be given beside its id; no other can.
func TestResumeWithTheThreadsPath(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"HELLO": {{say: "hello there"}}}))
	app := w.experimental()
	defer app.close()
	thread := app.startThread()
	app.awaitTurn(app.startTurn(thread, "HELLO"), 30*time.Second)
	path := at(app.call("thread/read", map[string]any{"threadId": thread}), "thread", "path")
	for _, method := range []string{"thread/resume", "thread/fork"} {
		if got := at(app.call(method, map[string]any{"threadId": thread, "path": path, "excludeTurns": true}), "thread", "preview"); got != "HELLO" {
			t.Errorf("%s: %v", method, got)
		}
		if got := app.refused(method, map[string]any{"threadId": thread, "path": "/elsewhere"}); !strings.Contains(got, "is not supported by this server") {
			t.Errorf("%s: %s", method, got)
		}
	}
}

// mcpScript is an MCP server with one tool that works and one that fails with an
// error of its own.
const mcpScript = `while read -r line; do
  [[ $line =~ \"id\":([0-9]+) ]] || continue
  id=${BASH_REMATCH[1]}
  say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
  case $line in
  *'"initialize"'*) say '"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"demo","version":"1"}}' ;;
  *'"tools/list"'*) say '"result":{"tools":[{"name":"good","inputSchema":{"type":"object"}},{"name":"bad","inputSchema":{"type":"object"}}]}' ;;
  *'"resources/'*) say '"error":{"code":-32002,"message":"no such resource"}' ;;
  *'"good"'*) say '"result":{"content":[{"type":"text","text":"fine"}]}' ;;
  *'"bad"'*) say '"error":{"code":-32042,"message":"not today"}' ;;
  *) say '"result":{}' ;;
  esac
done
`

// What an MCP server answers a client's call with reaches the client as it is.
func TestErrorsOfMCPServersKeepTheirCode(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	script := filepath.Join(w.workspace, "server.sh")
	w.write(script, mcpScript)
	name := filepath.Join(w.home, "config.toml")
	w.write(name, string(readFile(t, name))+fmt.Sprintf("\n[mcp_servers.demo]\ncommand = \"bash\"\nargs = [%q]\n", script))
	app := w.experimental()
	defer app.close()
	thread := app.startThread()
	call := func(tool string) map[string]any {
		return map[string]any{"threadId": thread, "server": "demo", "tool": tool, "arguments": map[string]any{}}
	}
	if got := app.call("mcpServer/tool/call", call("good")); got["isError"] != false || at(got, "content", 0, "text") != "fine" {
		t.Errorf("good: %v", got)
	}
	if got := app.refused("mcpServer/tool/call", call("bad")); got != "-32042 not today" {
		t.Errorf("bad: %s", got)
	}
	if got := app.refused("mcpServer/resource/read", map[string]any{"threadId": thread, "server": "demo", "uri": "demo://x"}); got != "-32002 no such resource" {
		t.Errorf("resource: %s", got)
	}
}
