package chat

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	. "github.com/heddle-dev/heddle/controlplane/agent/model/modeltest" //nolint:revive // the history reads as a list
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

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

// lines writes the messages of a body in short.
func lines(t *testing.T, entries ...*heddlev1.HistoryEntry) []string {
	t.Helper()
	var out []string
	for _, v := range encoded(t, model.Request{Input: entries})["messages"].([]any) {
		m := v.(map[string]any)
		role, _ := m["role"].(string)
		delete(m, "role")
		b, _ := json.Marshal(m)
		out = append(out, role+" "+string(b))
	}
	return out
}

func TestMessages(t *testing.T) {
	tests := []struct {
		name    string
		entries []*heddlev1.HistoryEntry
		want    []string
	}{
		{"instructions are one message, later ones the user's", []*heddlev1.HistoryEntry{Message("developer", "a"), Message("developer", "b"), Message("user", "env"), Message("user", "hi"), Message("developer", "new rule"), Message("assistant", "yes"), Message("user", "go")},
			[]string{`system {"content":"a\n\nb"}`, `user {"content":"env\n\nhi\n\n\u003cdeveloper_instructions\u003e\nnew rule\n\u003c/developer_instructions\u003e"}`, `assistant {"content":"yes"}`, `user {"content":"go"}`}},
		{"parallel calls, results in call order, also lost and stray ones", []*heddlev1.HistoryEntry{Message("user", "hi"), Message("assistant", "I look"), Call("a", "", "x", `{"k":1}`), Call("b", "mcp__s", "y", ""), Call("c", "", "z", "{broken"), Output("c", "C"), Message("user", "steer"), Output("a", "A"), Output("stray", "?")},
			[]string{`user {"content":"hi"}`, `assistant {"content":"I look","tool_calls":[{"function":{"arguments":"{\"k\":1}","name":"x"},"id":"a","type":"function"},{"function":{"arguments":"{}","name":"mcp__s__y"},"id":"b","type":"function"},{"function":{"arguments":"{\"input\":\"{broken\"}","name":"z"},"id":"c","type":"function"}]}`,
				`tool {"content":"A","tool_call_id":"a"}`, `tool {"content":"aborted","tool_call_id":"b"}`, `tool {"content":"C","tool_call_id":"c"}`, `user {"content":"steer"}`}},
		{"a freeform call becomes a function", []*heddlev1.HistoryEntry{Message("user", "hi"), Freeform("a", "apply_patch", "*** Begin"), Output("a", "ok")},
			[]string{`user {"content":"hi"}`, `assistant {"tool_calls":[{"function":{"arguments":"{\"input\":\"*** Begin\"}","name":"apply_patch"},"id":"a","type":"function"}]}`, `tool {"content":"ok","tool_call_id":"a"}`}},
		{"images of a user and of a result", []*heddlev1.HistoryEntry{Message("user", "see", "data:image/png;base64,AA"), Call("a", "", "view_image", `{}`), Output("a", "data:image/png;base64,BB")},
			[]string{`user {"content":[{"text":"see","type":"text"},{"image_url":{"url":"data:image/png;base64,AA"},"type":"image_url"}]}`, `assistant {"tool_calls":[{"function":{"arguments":"{}","name":"view_image"},"id":"a","type":"function"}]}`,
				`tool {"content":"The image follows.","tool_call_id":"a"}`, `user {"content":[{"text":"Image from the result of call a:","type":"text"},{"image_url":{"url":"data:image/png;base64,BB"},"type":"image_url"}]}`}},
		{"reasoning goes back within the calls of the last question only, in the member it came in", []*heddlev1.HistoryEntry{
			Message("user", "one"), Reasoning(formReasoningContent, "", "old", ""), Message("assistant", "1"), Message("user", "two"),
			Reasoning(formReasoningContent, "", "new", ""), Call("a", "", "x", "{}"), Output("a", "A"), Reasoning(formReasoning, "", "newer", ""), Call("b", "", "x", "{}"), Output("b", "B"), Reasoning("anthropic/thinking", "foreign", "", "sig"), Reasoning("", "s", "", "ENC")},
			[]string{`user {"content":"one"}`, `assistant {"content":"1"}`, `user {"content":"two"}`, `assistant {"reasoning_content":"new","tool_calls":[{"function":{"arguments":"{}","name":"x"},"id":"a","type":"function"}]}`, `tool {"content":"A","tool_call_id":"a"}`,
				`assistant {"reasoning":"newer","tool_calls":[{"function":{"arguments":"{}","name":"x"},"id":"b","type":"function"}]}`, `tool {"content":"B","tool_call_id":"b"}`, `assistant {"content":""}`, `user {"content":"Continue."}`}},
		{"an answer at the end, as after a cut", []*heddlev1.HistoryEntry{Message("assistant", "x")}, []string{`user {"content":"Continue."}`, `assistant {"content":"x"}`, `user {"content":"Continue."}`}},
		{"nothing", nil, []string{`user {"content":"Continue."}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := lines(t, tt.entries...); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(tt.want, "\n     "))
			}
		})
	}
}

func TestBody(t *testing.T) {
	m := encoded(t, model.Request{Model: "m", Effort: "high", Verbosity: "low", ServiceTier: "flex", OutputSchema: map[string]any{"type": "object"}, Tools: []model.Tool{
		{Name: "x", Description: "d"}, {Kind: model.ToolFreeform, Name: "apply_patch", Description: "p", Grammar: "g"}, {Kind: model.ToolWebSearch, Name: "web_search"}, {Namespace: strings.Repeat("n", 60), Name: "ünd so"}}})
	want := map[string]any{"model": "m", "stream": true, "reasoning_effort": "high", "verbosity": "low", "service_tier": "flex", "parallel_tool_calls": false,
		"stream_options":  map[string]any{"include_usage": true},
		"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "final_output", "strict": true, "schema": map[string]any{"type": "object"}}}}
	for k, v := range want {
		if !reflect.DeepEqual(m[k], v) {
			t.Errorf("%s is %v", k, m[k])
		}
	}
	tools, _ := m["tools"].([]any)
	if len(tools) != 3 {
		t.Fatalf("tools %v", tools)
	}
	patch, _ := json.Marshal(tools[1])
	if !strings.Contains(string(patch), `"required":["input"]`) || !strings.Contains(string(patch), "(Lark):\\ng") {
		t.Errorf("patch tool %s", patch)
	}
	long, _ := tools[2].(map[string]any)["function"].(map[string]any)["name"].(string)
	if len(long) != 64 || !strings.HasPrefix(long, "nnnn") {
		t.Errorf("name %q", long)
	}
	m = encoded(t, model.Request{Model: "m", ParallelToolCalls: true, Tools: []model.Tool{{Name: "x"}}})
	for _, k := range []string{"reasoning_effort", "verbosity", "service_tier", "parallel_tool_calls", "response_format"} {
		if _, ok := m[k]; ok {
			t.Errorf("%s is sent unasked", k)
		}
	}
}

// A service that refuses a field by its name is asked without it, at once and
// from then on; other refusals stay.
func TestRefusedFields(t *testing.T) {
	var bodies []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(b))
		switch {
		case strings.Contains(string(b), "stream_options"):
			Status(422, `{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"]}]}`)(w, r)
		case strings.Contains(string(b), "reasoning_effort"):
			Status(400, `{"error":{"message":"\"model\" does not support reasoning_effort"}}`)(w, r)
		default:
			Body(sse(finish("stop"), "[DONE]"))(w, r)
		}
	}, nil)
	for _, want := range []int{3, 4} {
		if _, err := Collect(t.Context(), c, model.Request{Model: "m", Effort: "high"}); err != nil || len(bodies) != want {
			t.Errorf("%d requests, %v", len(bodies), err)
		}
	}
	// Another model of the same service is not concerned.
	if _, err := Collect(t.Context(), c, model.Request{Model: "other"}); err != nil || !strings.Contains(bodies[4], "stream_options") {
		t.Errorf("%d requests, %v", len(bodies), err)
	}
	c = client(t, Status(400, `{"error":{"message":"stream_options and no end of it"}}`), nil)
	if _, err := Collect(t.Context(), c, model.Request{Model: "m"}); ErrorOf(t, err).Kind != "other" {
		t.Errorf("got %v", err)
	}
}

func TestHeaders(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "process-key")
	var got *http.Request
	c := client(t, func(w http.ResponseWriter, r *http.Request) { got = r; Body(sse("[DONE]"))(w, r) }, func(c *Config) {
		c.APIKey, c.Headers, c.Query = "key", map[string]string{"X-A": "1"}, map[string]string{"api-version": "2"}
	})
	if _, err := Collect(t.Context(), c, model.Request{Model: "m", ThreadID: "t", Originator: "me", UserAgent: "me/1"}); err != nil {
		t.Fatal(err)
	}
	if got.URL.String() != "/v1/chat/completions?api-version=2" || got.Header.Get("Authorization") != "Bearer key" || got.Header.Get("X-A") != "1" || got.UserAgent() != "me/1" || got.Header.Get("Thread-Id") != "t" {
		t.Errorf("%s %v", got.URL, got.Header)
	}
	c = client(t, func(w http.ResponseWriter, r *http.Request) { got = r; Body(sse("[DONE]"))(w, r) }, nil)
	if _, err := Collect(t.Context(), c, model.Request{}); err != nil || got.Header.Get("Authorization") != "" {
		t.Errorf("%v, %v", got.Header, err)
	}
}
