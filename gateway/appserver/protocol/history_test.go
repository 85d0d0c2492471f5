package protocol

import (
	"encoding/json"
	"strings"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func TestToHistory(t *testing.T) {
	for name, c := range map[string]struct {
		raw   string
		check func(*heddlev1.HistoryEntry) bool
		fault string
	}{
		"message": {`{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:x"}]}`, func(e *heddlev1.HistoryEntry) bool {
			return e.GetMessage().GetRole() == "user" && e.GetMessage().GetParts()[0].GetText() == "a" && e.GetMessage().GetParts()[1].GetImageUrl() == "data:x"
		}, ""},
		"text content": {`{"role":"assistant","content":"a"}`, func(e *heddlev1.HistoryEntry) bool { return e.GetMessage().GetParts()[0].GetText() == "a" }, ""},
		"system":       {`{"role":"system","content":"a"}`, func(e *heddlev1.HistoryEntry) bool { return e.GetMessage().GetRole() == "developer" }, ""},
		"call":         {`{"type":"function_call","call_id":"c","name":"n","arguments":"{}"}`, func(e *heddlev1.HistoryEntry) bool { return e.GetToolCall().GetName() == "n" }, ""},
		"custom call": {`{"type":"custom_tool_call","call_id":"c","name":"n","input":"x"}`, func(e *heddlev1.HistoryEntry) bool {
			return e.GetToolCall().GetFreeform() && e.GetToolCall().GetArguments() == "x"
		}, ""},
		"output":        {`{"type":"function_call_output","call_id":"c","output":"x"}`, func(e *heddlev1.HistoryEntry) bool { return e.GetToolOutput().GetParts()[0].GetText() == "x" }, ""},
		"custom output": {`{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_text","text":"x"}]}`, func(e *heddlev1.HistoryEntry) bool { return e.GetToolOutput().GetFreeform() }, ""},
		"reasoning": {`{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"e"}`, func(e *heddlev1.HistoryEntry) bool {
			return e.GetReasoning().GetSummary()[0] == "s" && e.GetReasoning().GetEncryptedContent() == "e"
		}, ""},
		"role":            {`{"role":"tool","content":"a"}`, nil, "unknown variant `tool`"},
		"type":            {`{"type":"image_generation_call"}`, nil, "cannot be injected"},
		"part":            {`{"role":"user","content":[{"type":"input_file"}]}`, nil, "cannot be injected"},
		"content":         {`{"role":"user","content":7}`, nil, "content"},
		"no call id":      {`{"type":"function_call","name":"n"}`, nil, "needs call_id"},
		"no output id":    {`{"type":"function_call_output","output":"x"}`, nil, "needs call_id"},
		"not an object":   {`[]`, nil, "expected a Responses API item"},
		"type of a field": {`{"type":7}`, nil, "item"},
	} {
		e, err := ToHistory(json.RawMessage(c.raw))
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: error %v, want %q", name, err, c.fault)
			}
			continue
		}
		if err != nil || !c.check(e) {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
}

func FuzzToHistory(f *testing.F) {
	f.Add([]byte(`{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if e, err := ToHistory(raw); err == nil && e.GetEntry() == nil {
			t.Errorf("%q became nothing", raw)
		}
	})
}

// What a client answers is taken only in the form that the protocol gives it.
func TestAnswersOfClients(t *testing.T) {
	for raw, ok := range map[string]bool{
		`{"contentItems":[{"type":"inputText","text":"a"}],"success":true}`:           true,
		`{"contentItems":[],"success":false}`:                                         true,
		`{"contentItems":[{"type":"inputImage","imageUrl":"data:x"}],"success":true}`: true,
		`{"contentItems":[{"type":"inputAudio","audioUrl":"data:x"}],"success":true}`: false,
		`{"contentItems":[{"type":"inputText"}],"success":true}`:                      false,
		`{"contentItems":[{"type":"inputText","text":"a"}]}`:                          false,
		`{"success":true}`: false,
		`{}`:               false,
		`null`:             false,
		`"x"`:              false,
	} {
		if got := ToToolResult(json.RawMessage(raw)); (got != nil) != ok {
			t.Errorf("tool result %s: %v", raw, got)
		}
	}
	for raw, ok := range map[string]bool{
		`{"answers":{"q":{"answers":["a","b"]}}}`: true,
		`{"answers":{}}`:          true,
		`{"answers":{"q":null}}`:  true,
		`{"answers":{"q":["a"]}}`: false,
		`{}`:                      false,
		`[]`:                      false,
	} {
		if got := ToAnswers(json.RawMessage(raw)); (got != nil) != ok {
			t.Errorf("answers %s: %v", raw, got)
		}
	}
}

// Absence keeps, null clears.
func TestGitPatch(t *testing.T) {
	p, err := GitPatch(json.RawMessage(`{"branch":null,"sha":"abc","other":1}`))
	if err != nil || p.Branch == nil || *p.Branch != "" || p.GetSha() != "abc" || p.OriginUrl != nil {
		t.Errorf("%v, %v", p, err)
	}
	for _, raw := range []string{`[]`, `{"sha":7}`} {
		if _, err := GitPatch(json.RawMessage(raw)); err == nil {
			t.Errorf("%s was accepted", raw)
		}
	}
}

func TestReviewTarget(t *testing.T) {
	for raw, fault := range map[string]string{
		`{"type":"uncommittedChanges"}`:            "",
		`{"type":"baseBranch","branch":"main"}`:    "",
		`{"type":"commit","sha":"a","title":null}`: "",
		`{"type":"custom","instructions":"x"}`:     "",
		`{"type":"custom"}`:                        "missing field `instructions`",
		`{"type":"other"}`:                         "unknown variant `other`",
		`{}`:                                       "missing field `type`",
	} {
		var target ReviewTarget
		err := target.decodeWire([]byte(raw))
		if fault == "" && err != nil || fault != "" && (err == nil || !strings.Contains(err.Error(), fault)) {
			t.Errorf("%s: %v, want %q", raw, err, fault)
		}
	}
}
