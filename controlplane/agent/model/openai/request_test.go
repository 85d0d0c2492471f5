package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func textParts(s ...string) []*heddlev1.HistoryPart {
	var out []*heddlev1.HistoryPart
	for _, t := range s {
		out = append(out, &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_Text{Text: t}})
	}
	return out
}

func toolCall(id, name, args string, freeform bool) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolCall{ToolCall: &heddlev1.ToolCall{CallId: id, Name: name, Arguments: args, Freeform: freeform, Id: "fc_" + id}}}
}

func toolOutput(id string, freeform bool, parts ...*heddlev1.HistoryPart) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolOutput{ToolOutput: &heddlev1.ToolOutput{CallId: id, Parts: parts, Freeform: freeform}}}
}

func TestRequest(t *testing.T) {
	image := &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_ImageUrl{ImageUrl: "data:image/png;base64,AA=="}}
	said := message("assistant", "hi <b>&")
	said.GetMessage().Id, said.GetMessage().Phase = "msg_1", "commentary"
	req := model.Request{
		Model: "gpt-5.5", ThreadID: "thread-1", SessionID: "session-1", Originator: "client", UserAgent: "client/1", ParallelToolCalls: true,
		Effort: "high", Summary: "auto", Verbosity: "low", ServiceTier: "flex",
		OutputSchema: map[string]any{"type": "object", "required": []any{"a"}},
		Input: []*heddlev1.HistoryEntry{
			message("developer", "base"), message("user", "q"), said,
			{Entry: &heddlev1.HistoryEntry_Reasoning{Reasoning: &heddlev1.HistoryReasoning{Id: "rs", Summary: []string{"s"}, EncryptedContent: "ENC"}}},
			{Entry: &heddlev1.HistoryEntry_Reasoning{Reasoning: &heddlev1.HistoryReasoning{Id: "rs2", Summary: []string{"lost"}}}},
			toolCall("c1", "exec_command", `{"cmd":"ls"}`, false), toolCall("c2", "apply_patch", "*** Begin", true), toolCall("c3", "lost", "{}", false),
			toolOutput("c1", false, textParts("out")...), toolOutput("c2", true, textParts("a", "b")...), toolOutput("stray", false, textParts("x")...),
			toolCall("c4", "view_image", "{}", false), toolOutput("c4", false, image),
		},
		Tools: []model.Tool{
			{Name: "exec_command", Description: "d", Parameters: map[string]any{"type": "object"}},
			{Kind: model.ToolFreeform, Name: "apply_patch", Description: "d", Grammar: "start: x"},
			{Name: "one", Namespace: "mcp__s"}, {Kind: model.ToolWebSearch}, {Name: "two", Namespace: "mcp__s"},
		},
	}
	var header http.Header
	var path string
	var raw []byte
	c, _ := stream(t, func(w http.ResponseWriter, r *http.Request) {
		header, path = r.Header, r.URL.String()
		raw, _ = io.ReadAll(r.Body)
		body(completed)(w, r)
	}, func(c *Config) {
		c.APIKey, c.Headers, c.Query = "key", map[string]string{"X-Extra": "1"}, map[string]string{"api-version": "2"}
	})
	if _, err := collect(t.Context(), c, req); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{
		"Authorization": "Bearer key", "Accept": "text/event-stream", "Originator": "client", "User-Agent": "client/1", "Session-Id": "session-1",
		"Thread-Id": "thread-1", "X-Extra": "1", "Content-Type": "application/json", "X-Stainless-Lang": "",
	} {
		if got := header.Get(k); got != want {
			t.Errorf("header %s is %q, want %q", k, got, want)
		}
	}
	if path != "/v1/responses?api-version=2" {
		t.Errorf("path %q", path)
	}
	const want = `{
	"model":"gpt-5.5","tool_choice":"auto","parallel_tool_calls":true,"store":false,"stream":true,"include":["reasoning.encrypted_content"],
	"reasoning":{"effort":"high","summary":"auto"},"service_tier":"flex","prompt_cache_key":"thread-1",
	"text":{"verbosity":"low","format":{"type":"json_schema","strict":true,"schema":{"type":"object","required":["a"]},"name":"final_output"}},
	"input":[
		{"type":"message","role":"developer","content":[{"type":"input_text","text":"base"}]},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"q"}]},
		{"type":"message","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"hi <b>&"}]},
		{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"ENC"},
		{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"ls\"}","call_id":"c1"},
		{"type":"custom_tool_call","call_id":"c2","name":"apply_patch","input":"*** Begin"},
		{"type":"function_call","name":"lost","arguments":"{}","call_id":"c3"},
		{"type":"function_call_output","call_id":"c3","output":"aborted"},
		{"type":"function_call_output","call_id":"c1","output":"out"},
		{"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
		{"type":"function_call","name":"view_image","arguments":"{}","call_id":"c4"},
		{"type":"function_call_output","call_id":"c4","output":[{"type":"input_image","image_url":"data:image/png;base64,AA=="}]}
	],
	"tools":[
		{"type":"function","name":"exec_command","description":"d","strict":false,"parameters":{"type":"object"}},
		{"type":"custom","name":"apply_patch","description":"d","format":{"type":"grammar","syntax":"lark","definition":"start: x"}},
		{"type":"namespace","name":"mcp__s","description":"Tools of mcp__s","tools":[
			{"type":"function","name":"one","description":"","strict":false,"parameters":{"type":"object","properties":{}}},
			{"type":"function","name":"two","description":"","strict":false,"parameters":{"type":"object","properties":{}}}]},
		{"type":"web_search","external_web_access":false}
	]}`
	var g, w any
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
}

func TestRequestIsStable(t *testing.T) {
	req := model.Request{Model: "m", Input: []*heddlev1.HistoryEntry{message("user", "a")}, Tools: []model.Tool{{Name: "t", Parameters: map[string]any{"b": 1, "a": map[string]any{"z": 1, "y": 2}}}}}
	first, err := encodeRequest(req)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, _ := encodeRequest(req); string(again) != string(first) {
			t.Fatal("the same request gives other bytes")
		}
	}
	if s := string(first); strings.Contains(s, "instructions") || !strings.Contains(s, `"reasoning":null`) || strings.Contains(s, `"text":{`) {
		t.Errorf("got %s", s)
	}
	if _, err := encodeRequest(model.Request{OutputSchema: map[string]any{"f": func() {}}}); err == nil {
		t.Error("a schema that is no JSON was accepted")
	}
}
