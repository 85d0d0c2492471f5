package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/types/known/structpb"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// wireEvent holds the fields of an event that are used; the rest is skipped.
type wireEvent struct {
	Type         string          `json:"type"`
	ItemID       string          `json:"item_id"`
	OutputIndex  int             `json:"output_index"`
	SummaryIndex int32           `json:"summary_index"`
	ContentIndex int32           `json:"content_index"`
	Delta        string          `json:"delta"`
	Item         json.RawMessage `json:"item"`
	Response     json.RawMessage `json:"response"`
	Code         string          `json:"code"`
	Message      string          `json:"message"`
	Error        *wireError      `json:"error"`
}

type wireError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type wireItem struct {
	Type             string          `json:"type"`
	ID               string          `json:"id"`
	Role             string          `json:"role"`
	Phase            string          `json:"phase"`
	Content          []wirePart      `json:"content"`
	Summary          []wirePart      `json:"summary"`
	EncryptedContent string          `json:"encrypted_content"`
	CallID           string          `json:"call_id"`
	Name             string          `json:"name"`
	Namespace        string          `json:"namespace"`
	Arguments        string          `json:"arguments"`
	Input            string          `json:"input"`
	Action           json.RawMessage `json:"action"`
}

type wirePart struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

type wireResponse struct {
	ID         string     `json:"id"`
	Error      *wireError `json:"error"`
	Incomplete *struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Usage *struct {
		Input        int64 `json:"input_tokens"`
		InputDetails struct {
			Cached     int64 `json:"cached_tokens"`
			CacheWrite int64 `json:"cache_write_tokens"`
		} `json:"input_tokens_details"`
		Output        int64 `json:"output_tokens"`
		OutputDetails struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
		Total int64 `json:"total_tokens"`
	} `json:"usage"`
}

// ignored are frequent or large events that say nothing new.
var ignored = map[string]bool{
	"response.created":                       true,
	"response.in_progress":                   true,
	"response.queued":                        true,
	"response.content_part.added":            true,
	"response.content_part.done":             true,
	"response.output_text.done":              true,
	"response.function_call_arguments.delta": true,
	"response.function_call_arguments.done":  true,
	"response.custom_tool_call_input.delta":  true,
	"response.custom_tool_call_input.done":   true,
	"response.reasoning_summary_text.done":   true,
	"response.reasoning_summary_part.done":   true,
	"response.reasoning_text.done":           true,
}

// deltas are the events that come by the thousand.
var deltas = map[string]bool{
	"response.output_text.delta":            true,
	"response.refusal.delta":                true,
	"response.reasoning_summary_text.delta": true,
	"response.reasoning_text.delta":         true,
}

// fast reads a delta event without decoding the rest of it; false when it is not
// one. A general decoder costs ten times as much.
func (ev *wireEvent) fast(name string, data []byte) bool {
	data = bytes.TrimSpace(data)
	if len(data) < 2 || data[0] != '{' || data[len(data)-1] != '}' {
		return false
	}
	delta := gjson.GetBytes(data, "delta")
	if delta.Type != gjson.String {
		return false
	}
	ev.Type, ev.Delta = name, valid(delta.Str)
	ev.ItemID = valid(gjson.GetBytes(data, "item_id").Str)
	index := "content_index"
	if name == "response.reasoning_summary_text.delta" {
		index = "summary_index"
	}
	if n := gjson.GetBytes(data, index).Num; n >= 0 && n <= maxParts {
		ev.ContentIndex, ev.SummaryIndex = int32(n), int32(n)
	} else {
		ev.ContentIndex, ev.SummaryIndex = -1, -1
	}
	if ev.ItemID == "" {
		ev.OutputIndex = int(gjson.GetBytes(data, "output_index").Num)
	}
	return true
}

// valid replaces what is no UTF-8: texts are stored as protobuf strings.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func partsText(parts []wirePart) string {
	if len(parts) == 1 && parts[0].Refusal == "" {
		return parts[0].Text
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
		b.WriteString(p.Refusal)
	}
	return b.String()
}

func messageEntry(id, phase, text string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{
		Role: "assistant", Id: id, Phase: phase,
		Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: text}}},
	}}}
}

func reasoningEntry(it *wireItem) *heddlev1.HistoryEntry {
	r := &heddlev1.HistoryReasoning{Id: it.ID, EncryptedContent: it.EncryptedContent}
	for _, p := range it.Summary {
		r.Summary = append(r.Summary, p.Text)
	}
	for _, p := range it.Content {
		r.Content = append(r.Content, p.Text)
	}
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Reasoning{Reasoning: r}}
}

func callEntry(it *wireItem) *heddlev1.HistoryEntry {
	c := &heddlev1.ToolCall{CallId: it.CallID, Name: it.Name, Namespace: it.Namespace, Arguments: it.Arguments, Id: it.ID}
	if it.Type == "custom_tool_call" {
		c.Freeform, c.Arguments = true, it.Input
	}
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolCall{ToolCall: c}}
}

func webSearch(action json.RawMessage) *heddlev1.WebSearch {
	w := &heddlev1.WebSearch{}
	var m map[string]any
	if json.Unmarshal(action, &m) != nil || m == nil {
		return w
	}
	w.Query, _ = m["query"].(string)
	if s, err := structpb.NewStruct(m); err == nil {
		w.Action = s
	}
	return w
}
