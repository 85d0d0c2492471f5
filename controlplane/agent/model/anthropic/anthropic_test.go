package anthropic

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/httpstream"
	. "github.com/heddle-dev/heddle/controlplane/agent/model/modeltest" //nolint:revive // the history reads as a list
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// sse joins events to a body; the event name is taken from the type.
func sse(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		var t struct{ Type string }
		_ = json.Unmarshal([]byte(e), &t)
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", t.Type, e)
	}
	return b.String()
}

const (
	began  = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":25,"cache_creation_input_tokens":10,"cache_read_input_tokens":65,"output_tokens":1}}}`
	ended  = `{"type":"message_stop"}`
	counts = "completed in=100 cached=65 written=10 out=20 reasoning=0 total=120"
)

func stop(reason string) string {
	return fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":20}}`, reason)
}

func open(i int, block string) string {
	return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, block)
}

func delta(i int, d string) string {
	return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, i, d)
}

func shut(i int) string { return fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i) }

func textDelta(i int, text string) string {
	b, _ := json.Marshal(text)
	return delta(i, `{"type":"text_delta","text":`+string(b)+`}`)
}

func client(t *testing.T, h http.HandlerFunc, change func(*Config)) *Client {
	t.Helper()
	cfg := Config{ProviderName: "mock", BaseURL: Service(t, h)}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSuite(t *testing.T) {
	Run(t, func(t *testing.T, a Answer) model.Client {
		t.Helper()
		return client(t, func(w http.ResponseWriter, r *http.Request) {
			events := []string{began, open(0, `{"type":"text","text":""}`), `{"type":"ping"}`}
			for _, d := range a.Text {
				events = append(events, textDelta(0, d))
			}
			if !a.Hang && !a.Fails {
				events = append(events, shut(0))
				if a.Call != "" {
					events = append(events, open(1, fmt.Sprintf(`{"type":"tool_use","id":"call_1","name":%q,"input":{}}`, a.Call)), delta(1, `{"type":"input_json_delta","partial_json":"{\"a\":1}"}`), shut(1))
				}
				events = append(events, stop("end_turn"), ended)
			}
			Body(sse(events...))(w, r)
			_ = http.NewResponseController(w).Flush()
			if a.Hang {
				<-r.Context().Done()
			}
		}, nil)
	})
}

func TestStream(t *testing.T) {
	tests := []struct {
		name   string
		events []string
		want   []string
	}{
		{"thinking, text and parallel calls", []string{began,
			open(0, `{"type":"thinking","thinking":"","signature":""}`), delta(0, `{"type":"thinking_delta","thinking":"h"}`), delta(0, `{"type":"thinking_delta","thinking":"m"}`), delta(0, `{"type":"signature_delta","signature":"SIG"}`), shut(0),
			open(1, `{"type":"text","text":""}`), textDelta(1, "I look"), shut(1),
			open(2, `{"type":"tool_use","id":"t1","name":"exec_command","input":{}}`), delta(2, `{"type":"input_json_delta","partial_json":""}`), delta(2, `{"type":"input_json_delta","partial_json":"{\"cmd\":"}`), delta(2, `{"type":"input_json_delta","partial_json":"\"ls\"}"}`), shut(2),
			open(3, `{"type":"tool_use","id":"t2","name":"mcp__srv__look","input":{}}`), shut(3), stop("tool_use"), ended,
		}, []string{"start rs0", "part rs0", `summary rs0 "h"`, `summary rs0 "m"`, `reasoning rs0 ["hm"] [] anthropic/thinking "SIG"`, "start msg1", `text msg1 "I look"`, `done msg1 "I look"`, `call t1 /exec_command {"cmd":"ls"}`, "call t2 mcp__srv/look {}", counts}},
		{"redacted and omitted thinking", []string{began,
			open(0, `{"type":"redacted_thinking","data":"SECRET"}`), shut(0), open(1, `{"type":"thinking","thinking":"","signature":""}`), delta(1, `{"type":"signature_delta","signature":"SIG"}`), shut(1), stop("end_turn"), ended,
		}, []string{"start rs0", `reasoning rs0 [] [] anthropic/redacted_thinking "SECRET"`, "start rs1", `reasoning rs1 [] [] anthropic/thinking "SIG"`, counts}},
		{"arguments in one piece at the start, and no id", []string{began, open(0, `{"type":"tool_use","id":"","name":"x","input":{"a":1}}`), shut(0), stop("end_turn"), ended},
			[]string{`call made-up /x {"a":1}`, counts}},
		{"P10: a repeated call id is one call", []string{began, open(0, `{"type":"tool_use","id":"a","name":"x","input":{}}`), shut(0), open(1, `{"type":"tool_use","id":"a","name":"x","input":{"k":2}}`), shut(1), stop("tool_use"), ended},
			[]string{"call a /x {}", counts}},
		{"a call that is not done is no call, a text is", []string{began, open(0, `{"type":"text","text":"x"}`), open(1, `{"type":"tool_use","id":"a","name":"x","input":{}}`), stop("end_turn"), ended},
			[]string{"start msg0", `text msg0 "x"`, `done msg0 "x"`, counts}},
		{"unknown blocks and events, an empty text", []string{began, open(0, `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`), shut(0), open(1, `{"type":"text","text":""}`), shut(1), `{"type":"brand_new"}`, `{"type":"content_block_delta","index":9,"delta":{"type":"text_delta","text":"lost"}}`, "rubbish", stop("stop_sequence"), ended},
			[]string{counts}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			events, err := Collect(t.Context(), client(t, Body(sse(tt.events...)), nil), model.Request{Tools: []model.Tool{{Namespace: "mcp__srv", Name: "look"}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := Check(events); err != nil {
				t.Error(err)
			}
			if got := Describe(events); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	fault := func(kind, message string) string {
		return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q}}`, kind, message)
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		kind    string
		text    string
		retry   model.Retry
	}{
		{"C10: 400 keeps its text", Status(400, fault("invalid_request_error", "max_tokens: too high")), "other", "max_tokens: too high", model.RetryNone},
		{"C10: 500", Status(500, fault("api_error", "boom")), "internalServerError", "high demand", model.RetryStream},
		{"401", Status(401, fault("authentication_error", "invalid x-api-key")), "httpConnectionFailed", "invalid x-api-key", model.RetryNone},
		{"404", Status(404, fault("not_found_error", "model: claude-x")), "httpConnectionFailed", "model: claude-x", model.RetryNone},
		{"429", Status(429, fault("rate_limit_error", "slow")), "responseTooManyFailedAttempts", "429", model.RetryNone},
		{"529", Status(529, fault("overloaded_error", "Overloaded")), "serverOverloaded", "overloaded: Overloaded", model.RetryStream},
		{"too long", Status(400, fault("invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum")), "contextWindowExceeded", "context window", model.RetryNone},
		{"too long with the answer", Status(400, fault("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000")), "contextWindowExceeded", "context window", model.RetryNone},
		{"overload in a stream", Body(sse(began, fault("overloaded_error", "Overloaded"))), "serverOverloaded", "Overloaded", model.RetryStream},
		{"error in a stream", Body(sse(began, fault("api_error", "Internal"))), "other", "stream disconnected before completion: Internal", model.RetryStream},
		{"rate limit in a stream", Body(sse(began, fault("rate_limit_error", "slow"))), "rateLimitExceeded", "slow", model.RetryStream},
		{"max_tokens", Body(sse(began, open(0, `{"type":"text","text":"x"}`), shut(0), stop("max_tokens"), ended)), "other", "reason: max_output_tokens", model.RetryNone},
		{"refusal", Body(sse(began, stop("refusal"), ended)), "other", "content_filter", model.RetryNone},
		{"window full", Body(sse(began, stop("model_context_window_exceeded"), ended)), "contextWindowExceeded", "context window", model.RetryNone},
		{"P11: cut after a call", Body(sse(began, open(0, `{"type":"tool_use","id":"a","name":"x","input":{}}`), shut(0), stop("tool_use"))), "other", "stream closed before message_stop", model.RetryStream},
		{"P11: half an event", Body(sse(began) + "event: message_stop\ndata: " + ended), "other", "stream disconnected", model.RetryStream},
		{"no stream", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		}, "other", `content type "application/json"`, model.RetryStream},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Collect(t.Context(), client(t, tt.handler, nil), model.Request{Model: "m"})
			if got := ErrorOf(t, err); got.Kind != tt.kind || !strings.Contains(got.Message, tt.text) || got.Retry != tt.retry {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestIdleTimeout(t *testing.T) {
	h, left := Open(sse(began))
	_, err := Collect(t.Context(), client(t, h, func(c *Config) { c.StreamIdleTimeout = 100 * time.Millisecond }), model.Request{})
	if got := ErrorOf(t, err); !strings.Contains(got.Message, "idle timeout") || got.Retry != model.RetryStream {
		t.Errorf("got %+v", got)
	}
	<-left
}

func encoded(t *testing.T, r model.Request) map[string]any {
	t.Helper()
	b, err := encodeRequest(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMessages(t *testing.T) {
	m := encoded(t, model.Request{Model: "claude-opus-4-8", Input: []*heddlev1.HistoryEntry{
		Message("developer", "rules"), Message("user", "see", "data:image/png;base64,AA"), Reasoning(formThinking, "hm", "", "SIG"), Reasoning(formRedacted, "", "", "RED"), Reasoning("", "foreign", "", "ENC"),
		Message("assistant", "I look"), Call("call.1", "", "view_image", `{"path":"x"}`), Freeform("b", "apply_patch", "*** B"), Output("b", "done"), Output("call.1", "data:image/jpeg;base64,BB"), Message("assistant", " "), Message("user", "https")}})
	b, _ := json.Marshal(m["messages"])
	want := `[{"content":[{"text":"see","type":"text"},{"source":{"data":"AA","media_type":"image/png","type":"base64"},"type":"image"}],"role":"user"},` +
		`{"content":[{"signature":"SIG","thinking":"hm","type":"thinking"},{"data":"RED","type":"redacted_thinking"},{"text":"I look","type":"text"},{"id":"call_1","input":{"path":"x"},"name":"view_image","type":"tool_use"},{"id":"b","input":{"input":"*** B"},"name":"apply_patch","type":"tool_use"}],"role":"assistant"},` +
		`{"content":[{"content":[{"source":{"data":"BB","media_type":"image/jpeg","type":"base64"},"type":"image"}],"tool_use_id":"call_1","type":"tool_result"},{"content":[{"text":"done","type":"text"}],"tool_use_id":"b","type":"tool_result"},{"cache_control":{"type":"ephemeral"},"text":"https","type":"text"}],"role":"user"}]`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
	if s, _ := json.Marshal(m["system"]); string(s) != `[{"cache_control":{"type":"ephemeral"},"text":"rules","type":"text"}]` {
		t.Errorf("system %s", s)
	}
}

func TestThinking(t *testing.T) {
	calling := []*heddlev1.HistoryEntry{Message("user", "x"), Call("a", "", "x", "{}"), Output("a", "A")}
	thoughtful := []*heddlev1.HistoryEntry{Message("user", "x"), Reasoning(formThinking, "t", "", "S"), Call("a", "", "x", "{}"), Output("a", "A")}
	schema := map[string]any{"type": "object"}
	for _, tt := range []struct {
		model, effort    string
		input            []*heddlev1.HistoryEntry
		schema           map[string]any
		thinking, config string
		max              float64
	}{
		{"claude-opus-5-5", "", nil, nil, `{"display":"summarized","type":"adaptive"}`, "null", 32000},
		{"claude-sonnet-4-6", "max", calling, schema, `{"display":"summarized","type":"adaptive"}`, `{"effort":"max","format":{"schema":{"type":"object"},"type":"json_schema"}}`, 32000},
		{"claude-opus-5-5", "minimal", nil, nil, `{"display":"summarized","type":"adaptive"}`, `{"effort":"low"}`, 32000},
		{"claude-opus-5-5", "none", nil, nil, "null", "null", 32000},
		{"claude-sonnet-4-5-20250929", "high", nil, nil, `{"budget_tokens":20000,"type":"enabled"}`, "null", 32000},
		{"claude-sonnet-4-5", "high", calling, nil, "null", "null", 32000},
		{"claude-sonnet-4-5", "high", thoughtful, nil, `{"budget_tokens":20000,"type":"enabled"}`, "null", 32000},
		{"claude-opus-4-1", "", nil, nil, "null", "null", 32000},
		{"claude-3-5-sonnet-latest", "high", nil, nil, "null", "null", 8192},
		{"claude-3-opus-20240229", "high", nil, nil, "null", "null", 4096},
		{"deepseek-chat", "low", nil, nil, `{"budget_tokens":4096,"type":"enabled"}`, "null", 32000},
		{"deepseek-chat", "", nil, nil, "null", "null", 32000},
	} {
		m := encoded(t, model.Request{Model: tt.model, Effort: tt.effort, Input: tt.input, OutputSchema: tt.schema})
		thinking, _ := json.Marshal(m["thinking"])
		config, _ := json.Marshal(m["output_config"])
		if string(thinking) != tt.thinking || string(config) != tt.config || m["max_tokens"] != tt.max {
			t.Errorf("%s %q: thinking %s, config %s, max %v", tt.model, tt.effort, thinking, config, m["max_tokens"])
		}
	}
}

func TestToolsAndHeaders(t *testing.T) {
	m := encoded(t, model.Request{Model: "m", ServiceTier: "standard_only", Tools: []model.Tool{{Namespace: "mcp__s", Name: "x", Description: "d"}, {Kind: model.ToolWebSearch}, {Kind: model.ToolFreeform, Name: "apply_patch"}}})
	tools, _ := m["tools"].([]any)
	if len(tools) != 2 || tools[0].(map[string]any)["name"] != "mcp__s__x" || m["service_tier"] != "standard_only" || !reflect.DeepEqual(m["tool_choice"], map[string]any{"type": "auto", "disable_parallel_tool_use": true}) {
		t.Errorf("got %v", m)
	}
	if m := encoded(t, model.Request{Model: "m", ServiceTier: "flex", ParallelToolCalls: true, Tools: []model.Tool{{Name: "x"}}}); m["tool_choice"] != nil || m["service_tier"] != nil {
		t.Errorf("got %v", m)
	}
	t.Setenv("ANTHROPIC_API_KEY", "process-key")
	for base, path := range map[string]string{"": "/v1/messages", "/v1": "/v1/messages", "/anthropic/": "/anthropic/v1/messages"} {
		var got *http.Request
		h := func(w http.ResponseWriter, r *http.Request) { got = r; Body(sse(began, stop("end_turn"), ended))(w, r) }
		c := client(t, h, func(c *Config) { c.BaseURL += base; c.APIKey = "key" })
		if _, err := Collect(t.Context(), c, model.Request{}); err != nil {
			t.Fatal(err)
		}
		if got.URL.Path != path || got.Header.Get("X-Api-Key") != "key" || got.Header.Get("Anthropic-Version") == "" || got.Header.Get("Authorization") != "" {
			t.Errorf("%s: %s %v", base, got.URL, got.Header)
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(sse(began, open(0, `{"type":"text","text":"x"}`), textDelta(0, "y"), shut(0), stop("end_turn"), ended)))
	f.Add([]byte(sse(open(-1, `{"type":"tool_use","name":"x","input":[]}`), shut(-1), open(5000, `{"type":"thinking"}`), ended)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		res := &http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(string(raw)))}
		var events []model.Event
		err := httpstream.NewAnswer(res).Events(newDecoder(func(e model.Event) error { events = append(events, e); return nil }, nil).event, errNoStop)
		if cerr := Check(events); cerr != nil {
			t.Error(cerr)
		}
		if err == nil {
			if _, ok := events[len(events)-1].(model.Completed); !ok {
				t.Errorf("no completion at the end of %q", Describe(events))
			}
		}
	})
}
