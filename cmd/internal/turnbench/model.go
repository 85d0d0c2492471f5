package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// model is a Responses API server that asks for n commands, one a request, and
// then answers with a message. It decides from the request alone, so every turn
// of a thread is served alike.
type model struct {
	url      string
	server   *http.Server
	commands int

	mu   sync.Mutex
	last []byte
}

func startModel(commands int) (*model, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the model server: %w", err)
	}
	m := &model{url: "http://" + ln.Addr().String() + "/v1", commands: commands}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", m.respond)
	m.server = &http.Server{Handler: mux}
	go func() { _ = m.server.Serve(ln) }()
	return m, nil
}

func (m *model) close() { _ = m.server.Close() }

// lastBody is the body of the newest request of a turn.
func (m *model) lastBody() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

func (m *model) respond(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.URL.Query().Get("bare") == "" {
		m.mu.Lock()
		m.last = body
		m.mu.Unlock()
	}
	var req struct {
		Input []struct {
			Type string `json:"type"`
			Role string `json:"role"`
		} `json:"input"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	done := 0
	for i := len(req.Input) - 1; i >= 0 && req.Input[i].Role != "user"; i-- {
		if req.Input[i].Type == "function_call_output" {
			done++
		}
	}
	item := map[string]any{"type": "message", "id": "msg_" + strconv.Itoa(len(req.Input)), "role": "assistant", "status": "completed",
		"content": []any{map[string]any{"type": "output_text", "text": "done", "annotations": []any{}}}}
	if done < m.commands {
		id := strconv.Itoa(len(req.Input)) + "_" + strconv.Itoa(done)
		item = map[string]any{"type": "function_call", "id": "fc_" + id, "call_id": "call_" + id, "name": "exec_command",
			"arguments": `{"cmd":"true"}`, "status": "completed"}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	var out bytes.Buffer
	send := func(kind string, fields map[string]any) {
		fields["type"] = kind
		fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", kind, mustJSON(fields))
	}
	send("response.created", map[string]any{"response": map[string]any{"id": "resp_1"}})
	send("response.output_item.added", map[string]any{"output_index": 0, "item": item})
	send("response.output_item.done", map[string]any{"output_index": 0, "item": item})
	send("response.completed", map[string]any{"response": map[string]any{"id": "resp_1", "output": []any{item}, "usage": map[string]any{
		"input_tokens": 100, "input_tokens_details": map[string]any{"cached_tokens": 0}, "output_tokens": 10,
		"output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": 110}}})
	_, _ = w.Write(out.Bytes())
}
