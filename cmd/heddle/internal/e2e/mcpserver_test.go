package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpClient speaks to one `heddle mcp-server` in raw messages, so that it can
// say what the protocol's library would not.
type mcpClient struct {
	w   *world
	cmd *exec.Cmd
	in  io.WriteCloser
	// answer makes the result of an elicitation; nil refuses it as unknown.
	answer func(params map[string]any) any

	mu       sync.Mutex
	messages []map[string]any
	grew     chan struct{}
	next     int
}

func (w *world) mcpServer(capabilities string, answer func(map[string]any) any, args ...string) *mcpClient {
	return w.mcpServerIn(w.env(), capabilities, answer, args...)
}

func (w *world) mcpServerIn(env []string, capabilities string, answer func(map[string]any) any, args ...string) *mcpClient {
	w.t.Helper()
	c := &mcpClient{w: w, answer: answer, grew: make(chan struct{})}
	c.cmd = w.command(context.WithoutCancel(w.t.Context()), append([]string{"mcp-server"}, args...)...)
	c.cmd.Env, c.cmd.Stderr = env, os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.close() })
	go c.read(out)
	c.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":` + capabilities + `,"clientInfo":{"name":"e2e","version":"1"}}}`)
	c.await("initialize", func(m map[string]any) bool { return m["id"] == "i" })
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func (c *mcpClient) send(line string) {
	c.w.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.w.t.Errorf("write to mcp-server: %v", err)
	}
}

func (c *mcpClient) read(out io.Reader) {
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 1<<20) // no line is longer
	for sc.Scan() {
		var m map[string]any
		if err := json.Unmarshal(sc.Bytes(), &m); err != nil || m["jsonrpc"] != "2.0" {
			c.w.t.Errorf("not a message: %.200q", sc.Text())
			continue
		}
		if m["method"] == "elicitation/create" {
			params, _ := m["params"].(map[string]any)
			if c.answer != nil {
				if result := c.answer(params); result != nil {
					data, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m["id"], "result": result})
					c.send(string(data))
				}
			}
		}
		c.mu.Lock()
		c.messages = append(c.messages, m)
		close(c.grew)
		c.grew = make(chan struct{})
		c.mu.Unlock()
	}
	if err := sc.Err(); err != nil && !strings.Contains(err.Error(), "closed") {
		c.w.t.Errorf("read from mcp-server: %v", err)
	}
}

func (c *mcpClient) await(what string, match func(map[string]any) bool) map[string]any {
	c.w.t.Helper()
	timeout := time.After(60 * time.Second)
	for seen := 0; ; {
		c.mu.Lock()
		batch, grew := c.messages[seen:], c.grew
		seen = len(c.messages)
		c.mu.Unlock()
		for _, m := range batch {
			if match(m) {
				return m
			}
		}
		select {
		case <-grew:
		case <-timeout:
			c.w.t.Fatalf("not in time: %s; messages: %v", what, c.all())
		}
	}
}

func (c *mcpClient) all() []map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.messages)
}

// start calls a tool and returns the request's id.
func (c *mcpClient) start(tool string, args map[string]any) int {
	c.w.t.Helper()
	c.mu.Lock()
	c.next++
	id := c.next
	c.mu.Unlock()
	data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args}})
	if err != nil {
		c.w.t.Fatal(err)
	}
	c.send(string(data))
	return id
}

// result waits for the answer to a call: the text, the thread and whether it
// failed.
func (c *mcpClient) result(id int) (text, thread string, failed bool) {
	c.w.t.Helper()
	m := c.await(fmt.Sprintf("result of call %d", id), func(m map[string]any) bool { return m["id"] == float64(id) && m["method"] == nil })
	r, ok := m["result"].(map[string]any)
	if !ok {
		c.w.t.Fatalf("call %d: %v", id, m)
	}
	content, _ := r["content"].([]any)
	first, _ := content[0].(map[string]any)
	text, _ = first["text"].(string)
	if s, ok := r["structuredContent"].(map[string]any); ok {
		thread = fmt.Sprint(s["threadId"])
		if s["content"] != text {
			c.w.t.Errorf("structured content %q, text %q", s["content"], text)
		}
	}
	failed, _ = r["isError"].(bool)
	return text, thread, failed
}

// event waits for an event of a call by its type.
func (c *mcpClient) event(id int, kind string) map[string]any {
	c.w.t.Helper()
	m := c.await("event "+kind, func(m map[string]any) bool { return isEvent(m, id, kind) })
	params, _ := m["params"].(map[string]any)
	body, _ := params["msg"].(map[string]any)
	return body
}

func isEvent(m map[string]any, id int, kind string) bool {
	params, _ := m["params"].(map[string]any)
	meta, _ := params["_meta"].(map[string]any)
	body, _ := params["msg"].(map[string]any)
	return m["method"] == "codex/event" && meta["requestId"] == float64(id) && body["type"] == kind
}

// close ends the server as a client does, and returns its exit code.
func (c *mcpClient) close() int {
	if c.cmd.ProcessState != nil {
		return c.cmd.ProcessState.ExitCode()
	}
	_ = c.in.Close()
	done := make(chan struct{})
	go func() { _ = c.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		c.w.t.Error("mcp-server did not end when its input was closed")
		_ = c.cmd.Process.Kill()
		<-done
	}
	return c.cmd.ProcessState.ExitCode()
}

var mcpScripts = map[string][]step{
	"HELLO": {{say: "hello there"}},
	"RUN":   {run("echo out"), {say: "ran"}},
	"SLOW":  {runFor("echo started; sleep 600", 60000), {say: "never"}},
	"ESCAPE": {{call: "exec_command", args: map[string]any{
		"cmd": "echo escaped > $HOME/escaped", "sandbox_permissions": "require_escalated", "justification": "to see",
	}}, {say: "tried"}},
}

func TestMCPServer(t *testing.T) {
	w := newWorld(t, newModel(t, mcpScripts))
	c := w.mcpServer(`{}`, nil)
	c.send(`{"jsonrpc":"2.0","id":"t","method":"tools/list"}`)
	listed, _ := json.Marshal(c.await("tools", func(m map[string]any) bool { return m["id"] == "t" }))
	for _, name := range []string{
		`"name":"codex"`, `"name":"codex-reply"`, `"prompt"`, `"cwd"`, `"sandbox"`, `"approval-policy"`, `"model"`, `"profile"`, `"base-instructions"`,
		`"developer-instructions"`, `"compact-prompt"`, `"config"`, `"threadId"`, `"conversationId"`, `"outputSchema"`,
	} {
		if !strings.Contains(string(listed), name) {
			t.Errorf("tools/list has no %s: %s", name, listed)
		}
	}

	first := c.start("codex", map[string]any{"prompt": "please RUN", "cwd": ".", "sandbox": "workspace-write", "config": map[string]any{"model_reasoning_effort": "low"}})
	text, thread, failed := c.result(first)
	if text != "ran" || failed || len(thread) != 36 {
		t.Fatalf("codex: %q, thread %q, failed %v", text, thread, failed)
	}
	configured := c.event(first, "session_configured")
	if configured["session_id"] != thread || configured["cwd"] != w.workspace || configured["model"] != "mock-model" {
		t.Errorf("session_configured: %v", configured)
	}
	begin, end := c.event(first, "exec_command_begin"), c.event(first, "exec_command_end")
	if begin["call_id"] != end["call_id"] || end["aggregated_output"] != "out\n" || end["exit_code"] != 0.0 || end["status"] != "completed" {
		t.Errorf("command: %v %v", begin, end)
	}
	if done := c.event(first, "task_complete"); done["last_agent_message"] != "ran" {
		t.Errorf("task_complete: %v", done)
	}
	second := c.start("codex-reply", map[string]any{"threadId": thread, "prompt": "say HELLO"})
	if text, again, failed := c.result(second); text != "hello there" || again != thread || failed {
		t.Errorf("codex-reply: %q, thread %q, failed %v", text, again, failed)
	}

	for _, bad := range []struct {
		tool string
		args map[string]any
		text string
	}{
		{"codex", map[string]any{}, "Failed to parse configuration for Codex tool: missing field `prompt`"},
		{"codex", map[string]any{"prompt": "x", "sandbox": "none"}, "unknown variant `none`, expected one of `read-only`, `workspace-write`, `danger-full-access`"},
		{"codex", map[string]any{"prompt": 7}, "invalid type of `prompt`"},
		{"codex", map[string]any{"prompt": "x", "config": 7}, "`config` is not an object"},
		{"codex", map[string]any{"prompt": "x", "profile": "nope"}, "nope"},
		{"codex-reply", map[string]any{"prompt": "x"}, "Failed to parse thread_id: either threadId or conversationId must be provided"},
		{"codex-reply", map[string]any{"prompt": "x", "threadId": "01900000-0000-7000-8000-000000000000"}, "Session not found for thread_id: 01900000-0000-7000-8000-000000000000"},
		{"codex-reply", map[string]any{"prompt": "x", "threadId": "../x"}, ""},
	} {
		if text, _, failed := c.result(c.start(bad.tool, bad.args)); !failed || !strings.Contains(text, bad.text) {
			t.Errorf("%s %v: %q, failed %v; want %q", bad.tool, bad.args, text, failed, bad.text)
		}
	}
	if code := c.close(); code != 0 {
		t.Errorf("exit %d after the input was closed", code)
	}
	// Threads are durable: another server goes on with them.
	c = w.mcpServer(`{}`, nil)
	if text, _, failed := c.result(c.start("codex-reply", map[string]any{"conversationId": thread, "prompt": "HELLO again"})); text != "hello there" || failed {
		t.Errorf("reply after a restart: %q, %v", text, failed)
	}
}

// C15: approvals as elicitations, with the answers that clients give.
func TestC15Elicitations(t *testing.T) {
	w := newWorld(t, newModel(t, mcpScripts))
	escaped := filepath.Join(filepath.Dir(w.home), "escaped")
	cases := map[string]struct {
		capabilities string
		answer       any
		ran          bool
	}{
		"standard accept":            {`{"elicitation":{}}`, map[string]any{"action": "accept", "content": map[string]any{}}, true},
		"accept without content":     {`{"elicitation":{"form":{}}}`, map[string]any{"action": "accept"}, true},
		"decision beside the action": {`{"elicitation":{}}`, map[string]any{"action": "accept", "content": map[string]any{}, "decision": "approved"}, true},
		"decision alone":             {`{"elicitation":{}}`, map[string]any{"decision": "approved"}, true},
		"decision in the content":    {`{"elicitation":{}}`, map[string]any{"action": "accept", "content": map[string]any{"decision": "approved_for_session"}}, true},
		"decline":                    {`{"elicitation":{}}`, map[string]any{"action": "decline"}, false},
		"denied":                     {`{"elicitation":{}}`, map[string]any{"action": "accept", "decision": "denied"}, false},
		"contradiction":              {`{"elicitation":{}}`, map[string]any{"action": "decline", "decision": "approved"}, false},
		"nonsense":                   {`{"elicitation":{}}`, map[string]any{"action": "perhaps"}, false},
		"no elicitation":             {`{}`, nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(escaped)
			var asked map[string]any
			c := w.mcpServer(tc.capabilities, func(params map[string]any) any { asked = params; return tc.answer })
			text, thread, failed := c.result(c.start("codex", map[string]any{"prompt": "ESCAPE", "approval-policy": "on-request", "sandbox": "workspace-write"}))
			if failed || text != "tried" {
				t.Errorf("%q, failed %v", text, failed)
			}
			c.close()
			if _, err := os.Stat(escaped); (err == nil) != tc.ran {
				t.Errorf("the command ran: %v, want %v", err == nil, tc.ran)
			}
			if tc.answer == nil {
				if asked != nil {
					t.Errorf("a client without elicitations was asked: %v", asked)
				}
				return
			}
			if asked["codex_elicitation"] != "exec-approval" || asked["threadId"] != thread || asked["codex_cwd"] != w.workspace || asked["codex_command"] == nil ||
				asked["_meta"] != nil || !strings.Contains(fmt.Sprint(asked["message"]), "echo escaped") {
				t.Errorf("asked: %v", asked)
			}
		})
	}
}

// C14: started with nothing but HOME in its environment, it finds the config.
func TestC14StrippedEnvironment(t *testing.T) {
	w := newWorld(t, newModel(t, mcpScripts))
	home := filepath.Dir(w.home)
	if err := os.Rename(w.home, filepath.Join(home, ".heddle")); err != nil {
		t.Fatal(err)
	}
	w.home = filepath.Join(home, ".heddle")
	c := w.mcpServerIn([]string{"HOME=" + home, "LC_HEDDLE_E2E=" + w.mark, "HEDDLE_IDLE_EXIT=500ms"}, `{}`, nil)
	if text, _, failed := c.result(c.start("codex", map[string]any{"prompt": "please RUN"})); text != "ran" || failed {
		t.Errorf("%q, failed %v", text, failed)
	}
}

func TestMCPServerCancel(t *testing.T) {
	w := newWorld(t, newModel(t, mcpScripts))
	c := w.mcpServer(`{}`, nil)
	slow := c.start("codex", map[string]any{"prompt": "SLOW"})
	c.event(slow, "exec_command_begin")
	w.find(" sleep 600 ")
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"enough"}}`, slow))
	c.event(slow, "turn_aborted")
	w.eventually("end of the command", 10*time.Second, func() bool {
		return !slices.ContainsFunc(w.processes(), func(p process) bool { return strings.Contains(p.cmdline, "sleep 600") })
	})
	// The thread is idle and can be used.
	thread := fmt.Sprint(c.event(slow, "session_configured")["session_id"])
	if text, _, failed := c.result(c.start("codex-reply", map[string]any{"threadId": thread, "prompt": "HELLO"})); text != "hello there" || failed {
		t.Errorf("after the cancellation: %q, failed %v", text, failed)
	}
}

// The end of the input ends the turns that run, and the process with exit 0.
func TestMCPServerInputEnds(t *testing.T) {
	w := newWorld(t, newModel(t, mcpScripts))
	c := w.mcpServer(`{}`, nil)
	slow := c.start("codex", map[string]any{"prompt": "SLOW"})
	c.event(slow, "exec_command_begin")
	if code := c.close(); code != 0 {
		t.Errorf("exit %d", code)
	}
	w.eventually("end of the command", 10*time.Second, func() bool {
		return !slices.ContainsFunc(w.processes(), func(p process) bool { return strings.Contains(p.cmdline, "sleep 600") })
	})
}

// The protocol's own client drives several calls at once.
func TestMCPServerOfficialClient(t *testing.T) {
	w := newWorld(t, newModel(t, mcpScripts))
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: w.command(context.WithoutCancel(ctx), "mcp-server")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	threads := make([]string, 6)
	for i := range threads {
		wg.Go(func() {
			r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "codex", Arguments: map[string]any{"prompt": "please RUN"}})
			if err != nil || r.IsError {
				t.Errorf("call %d: %v %v", i, r, err)
				return
			}
			s, _ := r.StructuredContent.(map[string]any)
			threads[i] = fmt.Sprint(s["threadId"])
		})
	}
	wg.Wait()
	slices.Sort(threads)
	if len(slices.Compact(threads)) != 6 {
		t.Errorf("threads %v, want six", threads)
	}
	if err := session.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// What was asked is answered although the input ends right behind it.
func TestMCPServerPiped(t *testing.T) {
	w := newWorld(t, newModel(t, mcpScripts))
	cmd := w.command(t.Context(), "mcp-server")
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":"t","method":"tools/list"}
`)
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), `"id":0,`) || !strings.Contains(string(out), `"codex-reply"`) {
		t.Errorf("%v, %s", err, out)
	}
}
