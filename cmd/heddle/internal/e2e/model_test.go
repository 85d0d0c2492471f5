package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// step is one reply of the model: a message, or a call of a tool.
type step struct {
	say  string
	call string // tool name
	of   string // its namespace
	args any    // its arguments
	// The message comes in so many parts, with a pause after each.
	parts int
	pause time.Duration
}

func run(cmd string) step { return step{call: "exec_command", args: map[string]any{"cmd": cmd}} }

// runFor waits for the command up to ms milliseconds.
func runFor(cmd string, ms int) step {
	return step{call: "exec_command", args: map[string]any{"cmd": cmd, "yield_time_ms": ms}}
}

// model answers requests of the Responses API. What it answers depends on the
// request alone (the last user message and the tool outputs after it), so any
// number of clients can use it, also across restarts.
type model struct {
	*httptest.Server
	scripts map[string][]step // by a word of the prompt; the longest that is in it counts

	thinks time.Duration // before each answer

	mu       sync.Mutex
	requests []string
}

func newModel(t *testing.T, scripts map[string][]step) *model {
	t.Helper()
	m := &model{scripts: scripts}
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(m.Close)
	return m
}

type modelRequest struct {
	Input []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"input"`
}

func (m *model) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/responses") {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	var req modelRequest
	if err == nil {
		err = json.Unmarshal(body, &req)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	m.requests = append(m.requests, string(body))
	m.mu.Unlock()
	prompt, outputs := "", 0
	for _, in := range req.Input {
		switch {
		case in.Type == "function_call_output" || in.Type == "custom_tool_call_output":
			outputs++
		case in.Role == "user":
			prompt, outputs = string(in.Content), 0
		}
	}
	select {
	case <-time.After(m.thinks):
	case <-r.Context().Done():
		return
	}
	word := ""
	for candidate, steps := range m.scripts {
		if strings.Contains(prompt, candidate) && outputs < len(steps) && len(candidate) > len(word) {
			word = candidate
		}
	}
	if word != "" {
		reply(w, m.scripts[word][outputs], len(req.Input))
		return
	}
	http.Error(w, `{"error":{"message":"no reply is scripted for this"}}`, http.StatusBadRequest)
}

func reply(w http.ResponseWriter, s step, n int) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(ev map[string]any) {
		data, _ := json.Marshal(ev)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", ev["type"], data)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	id := fmt.Sprintf("resp_%d", n)
	send(map[string]any{"type": "response.created", "response": map[string]any{"id": id}})
	var item map[string]any
	if s.call != "" {
		args, _ := json.Marshal(s.args)
		item = map[string]any{"type": "function_call", "id": fmt.Sprintf("fc_%d", n), "call_id": fmt.Sprintf("call_%d", n), "name": s.call, "arguments": string(args)}
		if s.of != "" {
			item["namespace"] = s.of
		}
		send(map[string]any{"type": "response.output_item.added", "output_index": 0, "item": map[string]any{
			"type": "function_call", "id": item["id"], "call_id": item["call_id"], "name": s.call, "arguments": ""}})
	} else {
		msg := fmt.Sprintf("msg_%d", n)
		item = map[string]any{"type": "message", "id": msg, "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": s.say}}}
		send(map[string]any{"type": "response.output_item.added", "output_index": 0, "item": map[string]any{
			"type": "message", "id": msg, "role": "assistant", "content": []any{}}})
		for part := range slices.Chunk([]byte(s.say), max(1, len(s.say)/max(1, s.parts))) {
			send(map[string]any{"type": "response.output_text.delta", "item_id": msg, "output_index": 0, "content_index": 0, "delta": string(part)})
			time.Sleep(s.pause)
		}
	}
	send(map[string]any{"type": "response.output_item.done", "output_index": 0, "item": item})
	send(map[string]any{"type": "response.completed", "response": map[string]any{"id": id, "usage": map[string]any{
		"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
		"input_tokens_details": map[string]any{"cached_tokens": 0}, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
	}}})
}
