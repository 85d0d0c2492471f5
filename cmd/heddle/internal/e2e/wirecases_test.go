package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// askScripts ask for one escalation and then go on.
var askScripts = map[string][]step{
	"ASK": {
		{call: "exec_command", args: map[string]any{"cmd": "touch asked", "sandbox_permissions": "require_escalated", "justification": "may it?"}},
		{say: "went on"},
	},
	"HELLO": {{say: "hello there"}},
}

// asking starts a thread whose model may ask.
func (a *appServer) asking() string {
	a.w.t.Helper()
	thread, _ := a.call("thread/start", map[string]any{"cwd": a.w.workspace, "approvalPolicy": "on-request"})["thread"].(map[string]any)
	return fmt.Sprint(thread["id"])
}

func (a *appServer) awaitQuestion() message {
	a.w.t.Helper()
	return a.await("the question", 30*time.Second, func(m message) bool { return m.Method == "item/commandExecution/requestApproval" })
}

// C2: the texts of errors that clients look for.
func TestC2ErrorTexts(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	app := w.appServer()
	defer app.close()
	const none = "01900000-0000-7000-8000-000000000000"
	input := []any{map[string]any{"type": "text", "text": "HELLO"}}
	thread := app.startThread()
	ask := func(method string, params map[string]any, want string) {
		t.Helper()
		if got := app.refused(method, params); got != want {
			t.Errorf("%s: got %q, want %q", method, got, want)
		}
	}
	ask("turn/start", map[string]any{"threadId": none, "input": input}, "-32600 thread not found: "+none)
	ask("turn/steer", map[string]any{"threadId": none, "input": input, "expectedTurnId": "x"}, "-32600 thread not found: "+none)
	ask("turn/interrupt", map[string]any{"threadId": none, "turnId": "x"}, "-32600 thread not found: "+none)
	ask("thread/resume", map[string]any{"threadId": none}, "-32600 no rollout found for thread id "+none)
	ask("thread/archive", map[string]any{"threadId": none}, "-32600 no rollout found for thread id "+none)
	ask("turn/steer", map[string]any{"threadId": thread, "input": input, "expectedTurnId": "x"}, "-32600 no active turn to steer")
	ask("turn/interrupt", map[string]any{"threadId": thread, "turnId": "x"}, "-32600 no active turn to interrupt")
	turn := app.startTurn(thread, "SLOW")
	app.awaitCommand()
	ask("turn/steer", map[string]any{"threadId": thread, "input": input, "expectedTurnId": "x"}, "-32600 expected active turn id `x` but found `"+turn+"`")
	ask("turn/interrupt", map[string]any{"threadId": thread, "turnId": "x"}, "-32600 expected active turn id x but found "+turn)
	refusal := app.ask("feedback/upload", map[string]any{"classification": "bug", "includeLogs": false})
	if data, _ := refusal.Error["data"].(map[string]any); data["reason"] != "NOT_SUPPORTED" {
		t.Errorf("refusal without a reason: %v", refusal.Error)
	}
	app.call("turn/interrupt", map[string]any{"threadId": thread, "turnId": turn})
	app.awaitTurn(turn, 30*time.Second)
}

// C3 and C6: nothing of a turn comes before the answer that names it, and its end
// holds the answer of the model.
func TestC3C6AnswerFirstAndTheLastMessage(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"HELLO": {run("true"), {say: "hello there"}}}))
	app := w.appServer()
	defer app.close()
	thread := app.startThread()
	for range 5 {
		turn := app.startTurn(thread, "HELLO")
		app.awaitTurn(turn, 30*time.Second)
		app.mu.Lock()
		answered := false
		for _, m := range app.messages {
			if turnOf(message{Params: m.Result})["id"] == turn {
				answered = true
			}
			if of := m.Params["turnId"]; !answered && (of == turn || turnOf(m)["id"] == turn) {
				t.Errorf("%s came before the answer", m.Method)
			}
			if m.Method == "turn/completed" && turnOf(m)["id"] == turn {
				items, _ := turnOf(m)["items"].([]any)
				var last map[string]any
				if len(items) == 1 {
					last, _ = items[0].(map[string]any)
				}
				if last["type"] != "agentMessage" || last["text"] != "hello there" || turnOf(m)["itemsView"] != "summary" {
					t.Errorf("the end holds %v", turnOf(m))
				}
			}
		}
		app.mu.Unlock()
		if !answered {
			t.Error("no answer")
		}
	}
}

// C4: request ids come back as they were, and params may be absent.
func TestC4RequestIDs(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.appServer()
	defer app.close()
	if _, err := io.WriteString(app.in, `{"method":"initialized"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{`0`, `-7`, `9007199254740993`, `"0"`, `""`, `"2b202e24-2ef4-4f26-90b4-7006e193cf77"`, `"ü\""`} {
		app.send(map[string]any{"id": json.RawMessage(id), "method": "thread/loaded/list", "params": map[string]any{}})
		app.await("answer to "+id, 20*time.Second, func(m message) bool { return string(m.ID) == id && m.Result != nil })
	}
}

// C9: a declined command lets the turn go on, a cancelled one ends it.
func TestC9DeclineAndCancel(t *testing.T) {
	w := newWorld(t, newModel(t, askScripts))
	for decision, want := range map[string]string{"decline": "completed", "cancel": "interrupted"} {
		app := w.appServer()
		turn := app.startTurn(app.asking(), "ASK")
		app.send(map[string]any{"id": app.awaitQuestion().ID, "result": map[string]any{"decision": decision}})
		if status := app.awaitTurn(turn, 30*time.Second); status != want {
			t.Errorf("%s: the turn is %s, want %s", decision, status, want)
		}
		if said := len(app.completed("agentMessage")); (said == 1) != (decision == "decline") {
			t.Errorf("%s: %d messages", decision, said)
		}
		if cmds := app.completed("commandExecution"); len(cmds) != 1 || cmds[0]["status"] != "declined" {
			t.Errorf("%s: commands %v", decision, cmds)
		}
		app.close()
	}
	if _, err := os.Stat(filepath.Join(w.workspace, "asked")); err == nil {
		t.Error("the command ran")
	}
}

// C13: the output of a command is what it printed: both streams in order, and
// nothing of a profile or a prompt.
func TestC13ExactOutput(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"PRINT": {
		run("echo one; echo two >&2; printf three"),
		{call: "exec_command", args: map[string]any{"cmd": "echo one; echo two >&2; printf three", "login": true}},
		{say: "done"},
	}}))
	for _, name := range []string{".bash_profile", ".profile", ".bashrc"} {
		file := filepath.Join(filepath.Dir(w.home), name)
		w.write(file, "echo NOISE; echo NOISE >&2; PS1='prompt> '\n")
	}
	app := w.appServer()
	defer app.close()
	if status := app.awaitTurn(app.startTurn(app.startThread(), "PRINT"), 30*time.Second); status != "completed" {
		t.Errorf("the turn is %s", status)
	}
	cmds := app.completed("commandExecution")
	for _, c := range cmds {
		if c["aggregatedOutput"] != "one\ntwo\nthree" || c["exitCode"] != float64(0) {
			t.Errorf("exit %v, output %q", c["exitCode"], c["aggregatedOutput"])
		}
	}
	if len(cmds) != 2 {
		t.Errorf("%d commands", len(cmds))
	}
}

// C17: a client that states no capabilities, names its requests by UUID and
// answers no question: the declared default holds.
func TestC17PlainClient(t *testing.T) {
	w := newWorld(t, newModel(t, askScripts))
	app := w.client("app-server", "-c", "approval_timeout_secs=1")
	defer app.close()
	request := func(id, method string, params map[string]any) map[string]any {
		app.send(map[string]any{"id": id, "method": method, "params": params})
		m := app.await("answer to "+method, 30*time.Second, func(m message) bool { return m.Method == "" && string(m.ID) == `"`+id+`"` })
		return m.Result
	}
	thread, _ := request("7f1b6c5e-0000-4000-8000-000000000001", "thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "on-request"})["thread"].(map[string]any)
	turn, _ := request("7f1b6c5e-0000-4000-8000-000000000002", "turn/start", map[string]any{
		"threadId": thread["id"], "input": []any{map[string]any{"type": "text", "text": "ASK"}}})["turn"].(map[string]any)
	if status := app.awaitTurn(fmt.Sprint(turn["id"]), 30*time.Second); status != "completed" {
		t.Errorf("the turn is %s", status)
	}
	if cmds := app.completed("commandExecution"); len(cmds) != 1 || cmds[0]["status"] != "declined" {
		t.Errorf("commands %v", cmds)
	}
}

// C18: what the terminal UI asks for beside the conversation: the trust of its
// folder, what a model can be upgraded to, an ephemeral thread for the title, and
// older turns five at a time.
func TestC18TerminalRequests(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"HELLO": {{say: "hello there"}}, "TITLE": {{say: "a title"}}}))
	name := filepath.Join(w.home, "config.toml")
	w.write(name, string(readFile(t, name))+fmt.Sprintf("\n[projects.%q]\ntrust_level = \"trusted\"\n", w.workspace))
	app := w.experimental()
	defer app.close()
	config, _ := app.call("config/read", map[string]any{"cwd": w.workspace, "includeLayers": false})["config"].(map[string]any)
	projects, _ := config["projects"].(map[string]any)
	if p, _ := projects[w.workspace].(map[string]any); p["trust_level"] != "trusted" {
		t.Errorf("projects: %v", projects)
	}
	models, _ := app.call("model/list", map[string]any{})["data"].([]any)
	if len(models) == 0 {
		t.Error("no models")
	}
	for _, m := range models {
		if entry, _ := m.(map[string]any); entry["id"] == "" || entry["displayName"] == nil {
			t.Errorf("model %v", m)
		} else if _, known := entry["upgrade"]; !known {
			t.Errorf("model without upgrade: %v", m)
		} else if entry["supportsPersonality"] != true {
			t.Errorf("model without a tone: %v", m)
		}
	}
	thread := app.startThread()
	var turns []string
	for range 7 {
		turn := app.startTurn(thread, "HELLO")
		app.awaitTurn(turn, 30*time.Second)
		turns = append(turns, turn)
	}
	title, _ := app.call("thread/start", map[string]any{"cwd": w.workspace, "ephemeral": true})["thread"].(map[string]any)
	if status := app.awaitTurn(app.startTurn(fmt.Sprint(title["id"]), "TITLE"), 30*time.Second); status != "completed" || title["ephemeral"] != true {
		t.Errorf("title: %s %v", status, title["ephemeral"])
	}
	if listed, _ := app.call("thread/list", map[string]any{})["data"].([]any); len(listed) != 1 {
		t.Errorf("%d threads are listed", len(listed))
	}
	var got []string
	sizes, cursor := []int{}, any(nil)
	for {
		page := app.call("thread/turns/list", map[string]any{"threadId": thread, "limit": 5, "cursor": cursor, "sortDirection": "desc"})
		data, _ := page["data"].([]any)
		sizes = append(sizes, len(data))
		for _, entry := range data {
			turn, _ := entry.(map[string]any)
			got = append([]string{fmt.Sprint(turn["id"])}, got...)
		}
		if cursor = page["nextCursor"]; cursor == nil {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(turns) || fmt.Sprint(sizes) != "[5 2]" {
		t.Errorf("pages of %v: %v, want %v", sizes, got, turns)
	}
}

// C19: what codex-acp calls beyond the core.
func TestC19BeyondTheCore(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{
		"HELLO": {{say: "hello there"}}, "BACKGROUND": {runFor("sleep 300", 250), {say: "it runs"}},
	}))
	app := w.experimental()
	defer app.close()
	thread := app.startThread()
	of := map[string]any{"threadId": thread}
	app.awaitTurn(app.startTurn(thread, "HELLO"), 30*time.Second)
	for _, row := range []struct {
		method string
		params map[string]any
		has    string
	}{
		{"permissionProfile/list", map[string]any{"cwd": w.workspace}, "data"},
		{"account/read", map[string]any{"refreshToken": false}, "requiresOpenaiAuth"},
		{"account/rateLimits/read", nil, "rateLimits"},
		{"config/read", map[string]any{"includeLayers": true}, "config"},
		{"skills/list", map[string]any{"cwds": []any{w.workspace}}, "data"},
		{"thread/goal/get", of, "goal"},
		{"thread/name/set", map[string]any{"threadId": thread, "name": "named"}, ""},
		{"thread/backgroundTerminals/list", of, "data"},
	} {
		got := app.call(row.method, row.params)
		if _, ok := got[row.has]; row.has != "" && !ok {
			t.Errorf("%s: %v", row.method, got)
		}
	}
	app.awaitTurn(app.startTurn(thread, "BACKGROUND"), 30*time.Second)
	terminals, _ := app.call("thread/backgroundTerminals/list", of)["data"].([]any)
	if len(terminals) != 1 {
		t.Fatalf("terminals: %v", terminals)
	}
	first, _ := terminals[0].(map[string]any)
	if got := app.call("thread/backgroundTerminals/terminate", map[string]any{"threadId": thread, "processId": first["processId"]}); got["terminated"] != true {
		t.Errorf("terminate: %v", got)
	}
	app.await("end of the terminal", 30*time.Second, func(m message) bool {
		item, _ := m.Params["item"].(map[string]any)
		return m.Method == "item/completed" && item["type"] == "commandExecution"
	})
	if left, _ := app.call("thread/backgroundTerminals/list", of)["data"].([]any); len(left) != 0 {
		t.Errorf("terminals: %v", left)
	}
	if got := app.call("thread/unsubscribe", of); got["status"] != "unsubscribed" {
		t.Errorf("unsubscribe: %v", got)
	}
}

// Two clients of one thread: both see everything in the same order, both are
// asked, the first answer counts, and both are told.
func TestTwoClientsOfOneThread(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"ASK": append([]step{run("echo first")}, askScripts["ASK"]...)}))
	socket := filepath.Join(filepath.Dir(w.home), "app.sock")
	w.awaitLog(w.role("app-server", "--listen", "unix://"+socket), socket)
	a, closeA := w.wsClient(socket)
	defer closeA()
	b, closeB := w.wsClient(socket)
	defer closeB()
	thread := a.asking()
	b.call("thread/resume", map[string]any{"threadId": thread})
	turn := a.startTurn(thread, "ASK")
	first, second := a.awaitQuestion(), b.awaitQuestion()
	if string(first.ID) != string(second.ID) || fmt.Sprint(first.Params) != fmt.Sprint(second.Params) {
		t.Errorf("asked differently:\n%s %v\n%s %v", first.ID, first.Params, second.ID, second.Params)
	}
	b.send(map[string]any{"id": second.ID, "result": map[string]any{"decision": "decline"}})
	var wg sync.WaitGroup
	for _, c := range []*appServer{a, b} {
		wg.Go(func() {
			m := c.await("the answer's notice", 30*time.Second, func(m message) bool { return m.Method == "serverRequest/resolved" })
			if id, _ := json.Marshal(m.Params["requestId"]); string(id) != string(first.ID) || m.Params["threadId"] != thread {
				t.Errorf("resolved: %v", m.Params)
			}
		})
	}
	wg.Wait()
	a.send(map[string]any{"id": first.ID, "result": map[string]any{"decision": "accept"}}) // too late
	for _, c := range []*appServer{a, b} {
		if status := c.awaitTurn(turn, 30*time.Second); status != "completed" {
			t.Errorf("the turn is %s", status)
		}
		if cmds := c.completed("commandExecution"); len(cmds) != 2 || cmds[1]["status"] != "declined" {
			t.Errorf("commands: %v", cmds)
		}
	}
	if _, err := os.Stat(filepath.Join(w.workspace, "asked")); err == nil {
		t.Error("the second answer counted")
	}
	seen := func(c *appServer) string {
		c.mu.Lock()
		defer c.mu.Unlock()
		var lines []string
		for _, m := range c.messages {
			params, _ := json.Marshal(m.Params)
			if m.Method != "" && strings.Contains(string(params), turn) {
				lines = append(lines, m.Method+" "+string(params))
			}
		}
		return strings.Join(lines, "\n")
	}
	if one, other := seen(a), seen(b); one != other || strings.Count(one, "\n") < 8 {
		t.Errorf("seen by one:\n%s\nby the other:\n%s", one, other)
	}
}
