package protocol

import (
	"encoding/json"
	"fmt"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

// ToHistory reads one item of the Responses API as an entry of a history.
func ToHistory(raw json.RawMessage) (*heddlev1.HistoryEntry, error) {
	var item struct {
		Type      string          `json:"type"`
		Role      string          `json:"role"`
		ID        string          `json:"id"`
		Phase     string          `json:"phase"`
		Content   json.RawMessage `json:"content"`
		CallID    string          `json:"call_id"`
		Name      string          `json:"name"`
		Namespace string          `json:"namespace"`
		Arguments string          `json:"arguments"`
		Input     string          `json:"input"`
		Output    json.RawMessage `json:"output"`
		Encrypted string          `json:"encrypted_content"`
		Summary   json.RawMessage `json:"summary"`
	}
	if kindOf(raw) != '{' {
		return nil, wrongType(raw, "a Responses API item")
	}
	if err := json.Unmarshal(raw, &item); err != nil {
		return nil, fmt.Errorf("item: %w", err)
	}
	switch item.Type {
	case "", "message":
		switch item.Role {
		case "user", "developer", "assistant":
		case "system":
			item.Role = "developer"
		default:
			return nil, UnknownVariant(item.Role, []string{"user", "developer", "assistant", "system"})
		}
		parts, err := toParts(item.Content)
		if err != nil {
			return nil, err
		}
		return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{Role: item.Role, Parts: parts, Id: item.ID, Phase: item.Phase}}}, nil
	case "function_call", "custom_tool_call":
		if item.CallID == "" || item.Name == "" {
			return nil, fmt.Errorf("an item of type %s needs call_id and name", item.Type)
		}
		c := &heddlev1.ToolCall{CallId: item.CallID, Name: item.Name, Namespace: item.Namespace, Arguments: item.Arguments, Id: item.ID}
		if item.Type == "custom_tool_call" {
			c.Freeform, c.Arguments = true, item.Input
		}
		return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolCall{ToolCall: c}}, nil
	case "function_call_output", "custom_tool_call_output":
		if item.CallID == "" {
			return nil, fmt.Errorf("an item of type %s needs call_id", item.Type)
		}
		parts, err := toParts(item.Output)
		if err != nil {
			return nil, err
		}
		return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolOutput{ToolOutput: &heddlev1.ToolOutput{
			CallId: item.CallID, Parts: parts, Freeform: strings.HasPrefix(item.Type, "custom")}}}, nil
	case "reasoning":
		r := &heddlev1.HistoryReasoning{Id: item.ID, EncryptedContent: item.Encrypted}
		summary, err := toParts(item.Summary)
		if err != nil {
			return nil, err
		}
		for _, p := range summary {
			r.Summary = append(r.Summary, p.GetText())
		}
		return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Reasoning{Reasoning: r}}, nil
	}
	return nil, fmt.Errorf("items of type %s cannot be injected", item.Type)
}

// toParts reads a content: a text or a list of parts.
func toParts(raw json.RawMessage) ([]*heddlev1.HistoryPart, error) {
	switch kindOf(raw) {
	case 'n':
		return nil, nil
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		return []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: s}}}, nil
	}
	var list []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		ImageURL string `json:"image_url"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	var out []*heddlev1.HistoryPart
	for _, p := range list {
		switch p.Type {
		case "input_text", "output_text", "text", "summary_text":
			out = append(out, &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_Text{Text: p.Text}})
		case "input_image":
			out = append(out, &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_ImageUrl{ImageUrl: p.ImageURL}})
		default:
			return nil, fmt.Errorf("content of type %s cannot be injected", p.Type)
		}
	}
	return out, nil
}

// InputQuestions makes the wire form of questions to the person, who may always
// write an answer of their own.
func InputQuestions(in []*heddlev1.UserInputRequest_Question) []any {
	out := make([]any, 0, len(in))
	for _, q := range in {
		var options []any
		for _, o := range q.GetOptions() {
			options = append(options, map[string]any{"label": o.GetLabel(), "description": o.GetDescription()})
		}
		out = append(out, map[string]any{
			"id": q.GetId(), "header": q.GetHeader(), "question": q.GetQuestion(), "options": options, "isOther": true, "isSecret": false,
		})
	}
	return out
}

// ToAnswers reads the answers to questions; nil when they are unusable.
func ToAnswers(result json.RawMessage) *structpb.Value {
	var body struct {
		Answers map[string]*struct {
			Answers []string `json:"answers"`
		} `json:"answers"`
	}
	if json.Unmarshal(result, &body) != nil || body.Answers == nil {
		return nil
	}
	answers := map[string]any{}
	for id, a := range body.Answers {
		given := []any{}
		if a != nil {
			for _, s := range a.Answers {
				given = append(given, s)
			}
		}
		answers[id] = map[string]any{"answers": given}
	}
	v, err := structpb.NewValue(map[string]any{"answers": answers})
	if err != nil {
		return nil
	}
	return v
}

// ToToolResult reads the result of a client's tool; nil when it is unusable.
func ToToolResult(result json.RawMessage) *structpb.Value {
	var body struct {
		ContentItems *[]map[string]any `json:"contentItems"`
		Success      *bool             `json:"success"`
	}
	if json.Unmarshal(result, &body) != nil || body.ContentItems == nil || body.Success == nil {
		return nil
	}
	items := []any{}
	for _, it := range *body.ContentItems {
		kind, _ := it["type"].(string)
		content := "text"
		switch kind {
		case "inputText":
		case "inputImage":
			content = "imageUrl"
		default:
			return nil
		}
		if _, ok := it[content].(string); !ok {
			return nil
		}
		items = append(items, map[string]any{"type": kind, content: it[content]})
	}
	v, err := structpb.NewValue(map[string]any{"contentItems": items, "success": *body.Success})
	if err != nil {
		return nil
	}
	return v
}
