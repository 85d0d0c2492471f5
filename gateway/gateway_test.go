package gateway_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/gateway"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

var update = flag.Bool("update", false, "write the golden transcripts")

// playMessage answers a turn with one command and one message.
func playMessage(f *fake, thread, turn string) {
	cmd := &heddlev1.Item{Id: "call_1", TurnId: turn, StartedAtMs: 5500, Status: heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS, Content: &heddlev1.Item_CommandExecution{
		CommandExecution: &heddlev1.CommandExecution{
			Command: "/bin/bash -lc 'cat a.txt'", Cwd: "/work", ProcessId: "7", Source: "unifiedExecStartup",
			Actions: []*heddlev1.CommandAction{{Kind: "read", Command: "cat a.txt", Name: "a.txt", Path: "/work/a.txt"}},
		},
	}}
	f.mu.Lock()
	f.threads[thread].output["call_1"] = []byte("h\u00e9llo\n")
	f.mu.Unlock()
	f.append(thread, turn, itemStarted(cmd))
	// The first range ends inside of a character.
	f.append(thread, turn, outputAdvanced("call_1", 0, 2), outputAdvanced("call_1", 2, 5))
	code := int32(0)
	done := &heddlev1.Item{Id: "call_1", TurnId: turn, StartedAtMs: 5500, CompletedAtMs: 5900, Status: heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, Content: &heddlev1.Item_CommandExecution{
		CommandExecution: &heddlev1.CommandExecution{
			Command: "/bin/bash -lc 'cat a.txt'", Cwd: "/work", ProcessId: "7", Source: "unifiedExecStartup", ExitCode: &code,
			AggregatedOutput: []byte("h\u00e9llo\n"), DurationMs: 400,
		},
	}}
	f.append(thread, turn, itemCompleted(done), &heddlev1.Event{Payload: &heddlev1.Event_DiffUpdated{DiffUpdated: &heddlev1.DiffUpdated{Diff: "diff --git a/x b/x\n"}}})
	f.append(thread, turn, itemStarted(agentItem("msg_1", "", false)), agentDelta("msg_1", "Hel"), agentDelta("msg_1", "lo \"<&>\"\u2028\n"))
	last := agentItem("msg_1", "Hello \"<&>\"\u2028\n", true)
	f.append(thread, turn, itemCompleted(last),
		&heddlev1.Event{Payload: &heddlev1.Event_PlanUpdated{PlanUpdated: &heddlev1.PlanUpdated{Steps: []*heddlev1.PlanStep{{Step: "look", Status: "completed"}}}}},
		&heddlev1.Event{Payload: &heddlev1.Event_TokenUsageUpdated{TokenUsageUpdated: &heddlev1.TokenUsageUpdated{Usage: &heddlev1.ThreadTokenUsage{Total: &heddlev1.TokenUsage{TotalTokens: 12}, Last: &heddlev1.TokenUsage{TotalTokens: 12}}}}},
		turnCompleted(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED, last))
}

func outputAdvanced(item string, offset, length int64) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_OutputAdvanced{OutputAdvanced: &heddlev1.OutputAdvanced{ItemId: item, Offset: offset, Length: length}}}
}

func startThread(p *peer) string {
	p.t.Helper()
	r := p.result("thread/start", message{"cwd": "/work"})
	return r["thread"].(message)["id"].(string)
}

func startTurn(p *peer, thread, text string) string {
	p.t.Helper()
	r := p.result("turn/start", message{"threadId": thread, "input": []any{message{"type": "text", "text": text}}})
	return r["turn"].(message)["id"].(string)
}

var (
	uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times = regexp.MustCompile(`"(emittedAtMs|createdAt|updatedAt|recencyAt|startedAt)":\d+`)
	osID  = regexp.MustCompile(`\(.*; (x86_64|aarch64)\)`)
)

// transcript is what a client was sent, with what differs between runs replaced.
func transcript(p *peer) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[string]string{}
	var b strings.Builder
	for _, line := range p.raw {
		line = uuids.ReplaceAllStringFunc(line, func(id string) string {
			if seen[id] == "" {
				seen[id] = fmt.Sprintf("id-%d", len(seen)+1)
			}
			return seen[id]
		})
		line = osID.ReplaceAllString(times.ReplaceAllString(line, `"$1":0`), "(OS)")
		b.WriteString(line + "\n")
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			t.Fatalf("%s line %d\n got: %s\nwant: %s", name, i+1, a, b)
		}
	}
}

func runPlainTurn(p *peer) {
	p.t.Helper()
	p.initialize()
	p.event("remoteControl/status/changed")
	thread := startThread(p)
	p.event("thread/started")
	startTurn(p, thread, "hi there")
	p.event("turn/completed")
}

func TestPlainTurnTranscript(t *testing.T) {
	transports := map[string]func(*testing.T, *gateway.Gateway) *peer{
		"stdio": stdioPeer,
		"ws": func(t *testing.T, g *gateway.Gateway) *peer {
			t.Helper()
			p, err := wsPeer(t, listen(t, g, "ws://127.0.0.1:0"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		"unix": func(t *testing.T, g *gateway.Gateway) *peer {
			t.Helper()
			p, err := wsPeer(t, listen(t, g, socketPath(t)), nil)
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
	}
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.onTurn = playMessage
			p := connect(t, newGateway(t, f, nil))
			runPlainTurn(p)
			golden(t, "plain_turn.jsonl", transcript(p))
		})
	}
}

func TestRequestsBeforeAndAfterInitialize(t *testing.T) {
	f := newFake(t)
	p := stdioPeer(t, newGateway(t, f, nil))
	if code, text := p.refused("thread/list", message{}); code != -32600 || text != "Not initialized" {
		t.Errorf("before initialize: %d %q", code, text)
	}
	if code, text := p.refused("initialize", message{"clientInfo": message{"name": 7, "version": "1"}}); code != -32600 || text != "Invalid request: invalid type: integer `7`, expected a string" {
		t.Errorf("bad initialize: %d %q", code, text)
	}
	p.initialize()
	if code, text := p.refused("initialize", message{}); code != -32600 || text != "Already initialized" {
		t.Errorf("second initialize: %d %q", code, text)
	}
}

func TestRefusals(t *testing.T) {
	f := newFake(t)
	p := stdioPeer(t, newGateway(t, f, nil))
	p.result("initialize", message{"clientInfo": message{"name": "plain", "version": "1"}})
	unknown := newID()
	cases := []struct {
		method string
		params any
		code   int
		text   string
	}{
		{"thread/read", message{}, -32600, "Invalid request: missing field `threadId`"},
		{"thread/loaded/list", nil, -32600, "Invalid request: missing field `params`"},
		{"thread/read", message{"threadId": unknown}, -32600, "thread not loaded: " + unknown},
		{"thread/resume", message{"threadId": unknown}, -32600, "no rollout found for thread id " + unknown},
		{"turn/start", message{"threadId": unknown, "input": []any{}}, -32600, "thread not found: " + unknown},
		{"thread/start", message{"sandbox": "sometimes"}, -32600, "Invalid request: unknown variant `sometimes`, expected one of `read-only`, `workspace-write`, `danger-full-access`"},
		{"thread/start", message{"dynamicTools": []any{}}, -32600, "thread/start.dynamicTools requires experimentalApi capability"},
		{"thread/search", message{"searchTerm": "x"}, -32600, "thread/search requires experimentalApi capability"},
		{"plugin/read", message{}, -32600, "plugin/read is not supported by this server"},
		{"command/exec", message{"command": []any{}}, -32600, "command must not be empty"},
		{"command/exec", message{"command": []any{"x"}, "sandboxPolicy": message{"type": "workspaceWrite", "writableRoots": []any{"rel"}}}, -32600, "Invalid request: AbsolutePathBuf deserialized without a base path"},
		{"model/list", message{"cursor": "bogus"}, -32600, "invalid cursor: bogus"},
	}
	for _, c := range cases {
		if code, text := p.refused(c.method, c.params); code != c.code || text != c.text {
			t.Errorf("%s %v:\n got %d %q\nwant %d %q", c.method, c.params, code, text, c.code, c.text)
		}
	}
	if _, text := p.refused("no/such", message{}); !strings.HasPrefix(text, "Invalid request: unknown variant `no/such`, expected one of `account/bedrock") {
		t.Errorf("unknown method: %q", text)
	}
	if _, text := p.refused("thread/read", message{"threadId": "zzz"}); !strings.HasPrefix(text, "invalid thread id: ") {
		t.Errorf("malformed thread id: %q", text)
	}
}

func TestOptOutAndOriginator(t *testing.T) {
	f := newFake(t)
	f.onTurn = playMessage
	p := stdioPeer(t, newGateway(t, f, nil))
	r := p.result("initialize", message{"clientInfo": message{"name": "my client", "version": "9.8"}, "capabilities": message{"optOutNotificationMethods": []any{"item/agentMessage/delta", "no/such"}}})
	if ua := r["userAgent"].(string); !regexp.MustCompile(`^my client/1\.2\.3 \(.+; .+\) unknown \(my client; 9\.8\)$`).MatchString(ua) {
		t.Errorf("user agent %q", ua)
	}
	startTurn(p, startThread(p), "hi")
	p.event("turn/completed")
	for _, m := range p.messages() {
		switch m["method"] {
		case "item/agentMessage/delta":
			t.Error("a notification came in spite of the opt-out")
		case "thread/readState/changed":
			t.Error("an experimental notification came without the capability")
		}
	}
	for _, th := range f.threads {
		if th.row.GetOriginator() != "my client" {
			t.Errorf("originator %q", th.row.GetOriginator())
		}
	}
}

func TestWebSocketDoor(t *testing.T) {
	f := newFake(t)
	g := newGateway(t, f, func(c *gateway.Config) {
		c.Auth = mustToken(t, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b") // "secret"
	})
	dial := listen(t, g, "ws://127.0.0.1:0")
	client := &http.Client{Transport: &http.Transport{DialContext: dialHTTP(dial)}}
	get := func(path, origin string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://gateway"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode
	}
	for path, want := range map[string]int{"/readyz": 200, "/healthz": 200, "/": 400, "/other": 400} {
		if got := get(path, ""); got != want {
			t.Errorf("GET %s: %d, want %d", path, got, want)
		}
		if got := get(path, "http://evil.example"); got != 403 {
			t.Errorf("GET %s with an Origin: %d, want 403", path, got)
		}
	}
	for auth, want := range map[string]string{"": "HTTP 401", "Bearer wrong": "HTTP 401", "Basic secret": "HTTP 401"} {
		if _, err := wsPeer(t, dial, http.Header{"Authorization": {auth}}); err == nil || err.Error() != want {
			t.Errorf("upgrade with %q: %v, want %s", auth, err, want)
		}
	}
	if _, err := wsPeer(t, dial, http.Header{"Authorization": {"Bearer secret"}, "Origin": {"http://evil.example"}}); err == nil || err.Error() != "HTTP 403" {
		t.Errorf("upgrade with an Origin: %v, want HTTP 403", err)
	}
	p, err := wsPeer(t, dial, http.Header{"Authorization": {"Bearer secret"}})
	if err != nil {
		t.Fatal(err)
	}
	p.initialize()
}

func TestUnixSocketIsPrivateAndReplaced(t *testing.T) {
	f := newFake(t)
	g := newGateway(t, f, nil)
	address := socketPath(t)
	path := strings.TrimPrefix(address, "unix://")
	// A socket file whose owner was killed.
	stale(t, path)
	dial := listen(t, g, address)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v", info.Mode())
	}
	p, err := wsPeer(t, dial, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.initialize()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left in the socket's folder: %v %v", entries, err)
	}
}

func TestMalformedLinesAreIgnored(t *testing.T) {
	f := newFake(t)
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	for _, line := range []string{"nonsense", `{"id": 77`, "[1, 2]", `{"id": 7}`, "", "   ", `{"id":null,"method":"thread/list"}`, `{"id":1.5,"method":"thread/list"}`, "\xff\xfe", `{"method":7}`, "null", `{"id":4711,"result":{}}`, `{"method":"no/such"}`} {
		p.send(line)
	}
	p.send(`{"jsonrpc":"2.0","id":"abc","method":"thread/loaded/list","params":{}}`)
	p.response("abc")
	p.send(`{"id":-3,"method":"thread/loaded/list","params":{}}`)
	p.response(float64(-3))
	for _, m := range p.messages() {
		if m["error"] != nil || m["jsonrpc"] != nil {
			t.Errorf("unexpected %v", m)
		}
	}
}

func TestOversizedLineIsRefusedAndTheConnectionLives(t *testing.T) {
	f := newFake(t)
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	p.send(`{"id":"big","method":"turn/start","params":{"x":"` + strings.Repeat("y", 17<<20) + `"}}`)
	m := p.response("big")
	if e, ok := m["error"].(message); !ok || !strings.Contains(e["message"].(string), "16777216") {
		t.Errorf("answer %v", m)
	}
	p.result("thread/loaded/list", message{})
}

func TestLongestInputPasses(t *testing.T) {
	f := newFake(t)
	f.onTurn = playMessage
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	thread := startThread(p)
	startTurn(p, thread, strings.Repeat("\u00e9", 1<<20))
	m := p.request("turn/start", message{"threadId": thread, "input": []any{message{"type": "text", "text": strings.Repeat("x", 1<<20+1)}}})
	want := `{"code":-32602,"data":{"actual_chars":1048577,"input_error_code":"input_too_large","max_chars":1048576},"message":"Input exceeds the maximum length of 1048576 characters."}`
	if got, _ := json.Marshal(m["error"]); string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestDuplicateRequestIDsAreEachAnswered(t *testing.T) {
	f := newFake(t)
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	p.send(`{"id":"same","method":"thread/loaded/list","params":{}}`)
	p.send(`{"id":"same","method":"thread/loaded/list","params":{}}`)
	_, i := p.find(0, "first answer", func(m message) bool { return m["id"] == "same" })
	p.find(i+1, "second answer", func(m message) bool { return m["id"] == "same" })
}

func TestRESTBesideWebSocket(t *testing.T) {
	f := newFake(t)
	f.onTurn = playMessage
	dial := listen(t, newGateway(t, f, func(c *gateway.Config) { c.REST = true }), "ws://127.0.0.1:0")
	p, err := wsPeer(t, dial, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.initialize()
	thread := startThread(p)
	client := &http.Client{Transport: &http.Transport{DialContext: dialHTTP(dial)}}
	for host, want := range map[string]int{"127.0.0.1": 200, "localhost": 200, "rebound.example": 403} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/v1/threads/"+thread, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET as %s: %d, want %d", host, resp.StatusCode, want)
		}
	}
}
