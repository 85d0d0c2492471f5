//go:build robust

package robust

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// model is a Responses API server that answers with random steps: text, one or
// several commands, patches; and that fails at random until it is calmed.
type model struct {
	*httptest.Server
	h      func() *home
	faults *tally

	mu     sync.Mutex
	rng    *rand.Rand
	seed   uint64
	tokens int
	serial int
	calm   bool
	asked  int
}

func newModel(seed uint64, faults *tally, h func() *home) *model {
	m := &model{rng: rand.New(rand.NewPCG(seed, 1)), seed: seed, faults: faults, h: h}
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	return m
}

func (m *model) setCalm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calm = true
}

func (m *model) requests() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// token makes what one tool call appends.
func (m *model) token() string {
	m.tokens++
	return fmt.Sprintf("TKN-%d-%d", m.seed, m.tokens)
}

// call is one tool call of a reply.
type call struct{ args map[string]any }

// reply is one answer of the model, and how it fails.
type reply struct {
	text  []string
	pause time.Duration // between the parts of the text
	calls []call
	// cut ends the connection after so many events; -1 never.
	cut    int
	status int           // HTTP status to fail with
	hang   time.Duration // before the first byte
	base   int           // first number of the reply's ids
}

func (m *model) plan() reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	r := reply{cut: -1, base: m.serial}
	m.serial += 8
	if m.calm {
		r.text = []string{"done"}
		return r
	}
	append1 := func(before, after string) string {
		return before + "echo " + m.token() + " >> " + m.h().effects() + after
	}
	run := func(cmd string, more ...any) {
		args := map[string]any{"cmd": cmd, "yield_time_ms": 20000}
		for i := 0; i+1 < len(more); i += 2 {
			args[more[i].(string)] = more[i+1]
		}
		r.calls = append(r.calls, call{args})
	}
	switch n := m.rng.IntN(100); {
	case n < 26:
		for range 3 + m.rng.IntN(60) {
			r.text = append(r.text, fmt.Sprintf("word%d ", m.rng.IntN(1000)))
		}
		r.pause = time.Duration(m.rng.IntN(12)) * time.Millisecond
	case n < 30:
		for i := range 400 {
			r.text = append(r.text, fmt.Sprintf("w%d ", i))
		}
	case n < 50:
		run(append1("", ""))
	case n < 62:
		run(append1(fmt.Sprintf("sleep 0.%d; ", 1+m.rng.IntN(9)), fmt.Sprintf("; sleep 0.%d", 1+m.rng.IntN(9))))
	case n < 70:
		for range 2 + m.rng.IntN(3) {
			run(append1(fmt.Sprintf("sleep 0.0%d; ", m.rng.IntN(9)), ""))
		}
	case n < 77:
		run(fmt.Sprintf("apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: patch-%d.txt\n+one\n+two\n*** End Patch\nEOF", r.base))
	case n < 84:
		run(append1("", ""), "sandbox_permissions", "require_escalated", "justification", "May this run outside?")
	case n < 89: // still running when the turn ends
		run(append1("sleep 1.5; ", ""), "yield_time_ms", 250)
	case n < 93: // leaves a process behind
		run(append1("(setsid sleep 600 >/dev/null 2>&1 &); ", ""))
	case n < 96: // does not want to end
		run(append1("trap '' TERM INT HUP; ", "; sleep 3"), "yield_time_ms", 1500)
	default:
		run(append1("seq 1 20000; ", ""))
	}
	switch n := m.rng.IntN(100); {
	case n < 4:
		r.status = http.StatusInternalServerError
	case n < 6:
		r.status = http.StatusTooManyRequests
	case n < 15:
		r.cut = 1 + m.rng.IntN(6)
	case n < 17:
		r.hang = 2500 * time.Millisecond // more than the idle limit
	case n < 25:
		r.hang = time.Duration(m.rng.IntN(400)) * time.Millisecond
	}
	return r
}

func (m *model) serve(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/responses") {
		http.NotFound(w, req)
		return
	}
	_, _ = io.Copy(io.Discard, req.Body)
	r := m.plan()
	if r.status != 0 {
		m.faults.add(fmt.Sprintf("model answers %d", r.status))
		http.Error(w, `{"error":{"message":"injected"}}`, r.status)
		return
	}
	if r.hang > 0 {
		if r.hang > 2*time.Second {
			m.faults.add("model hangs")
		}
		select {
		case <-time.After(r.hang):
		case <-req.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	left := r.cut
	send := func(kind string, fields map[string]any) {
		if left == 0 {
			m.faults.add("model stream cut")
			// Half an event, then the end of the connection.
			_, _ = io.WriteString(w, "event: "+kind+"\ndata: {\"type\":")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		left--
		fields["type"] = kind
		data, _ := json.Marshal(fields)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
		_ = http.NewResponseController(w).Flush()
	}
	r.write(send, req)
}

func (r reply) write(send func(string, map[string]any), req *http.Request) {
	resp := map[string]any{"id": fmt.Sprintf("resp_%d", r.base)}
	send("response.created", map[string]any{"response": resp})
	index := 0
	if len(r.text) > 0 {
		id := fmt.Sprintf("msg_%d", r.base)
		item := func(content []any) map[string]any {
			return map[string]any{"type": "message", "id": id, "role": "assistant", "content": content}
		}
		send("response.output_item.added", map[string]any{"output_index": index, "item": item([]any{})})
		for _, part := range r.text {
			send("response.output_text.delta", map[string]any{"item_id": id, "output_index": index, "content_index": 0, "delta": part})
			if r.pause > 0 {
				select {
				case <-time.After(r.pause):
				case <-req.Context().Done():
					return
				}
			}
		}
		send("response.output_item.done", map[string]any{"output_index": index, "item": item([]any{map[string]any{"type": "output_text", "text": strings.Join(r.text, "")}})})
		index++
	}
	for i, c := range r.calls {
		args, _ := json.Marshal(c.args)
		item := map[string]any{"type": "function_call", "id": fmt.Sprintf("fc_%d", r.base+i), "call_id": fmt.Sprintf("call_%d", r.base+i), "name": "exec_command", "arguments": ""}
		send("response.output_item.added", map[string]any{"output_index": index, "item": item})
		item["arguments"] = string(args)
		send("response.output_item.done", map[string]any{"output_index": index, "item": item})
		index++
	}
	resp["usage"] = map[string]any{
		"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
		"input_tokens_details": map[string]any{"cached_tokens": 0}, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
	}
	send("response.completed", map[string]any{"response": resp})
}
