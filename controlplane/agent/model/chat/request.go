package chat

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/dialogue"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// optional are the fields that a service may not know.
var optional = []string{"stream_options", "parallel_tool_calls", "reasoning_effort", "verbosity", "service_tier", "reasoning_content", "response_format"}

// requestBody is the wire form. Field order and content depend on the request
// alone, so that equal prefixes are equal bytes.
type requestBody struct {
	Model             string         `json:"model"`
	Stream            bool           `json:"stream"`
	StreamOptions     *streamOptions `json:"stream_options,omitempty"`
	Messages          []message      `json:"messages"`
	Tools             []tool         `json:"tools,omitempty"`
	ParallelToolCalls *bool          `json:"parallel_tool_calls,omitempty"`
	ReasoningEffort   string         `json:"reasoning_effort,omitempty"`
	Verbosity         string         `json:"verbosity,omitempty"`
	ServiceTier       string         `json:"service_tier,omitempty"`
	ResponseFormat    any            `json:"response_format,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role string `json:"role"`
	// Content is a string, a list of parts, or absent where there are only calls.
	Content    any        `json:"content,omitempty"`
	Reasoning  string     `json:"reasoning,omitempty"`
	Thoughts   string     `json:"reasoning_content,omitempty"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type part struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type toolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type tool struct {
	Type     string       `json:"type"`
	Function functionSpec `json:"function"`
}

type functionSpec struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Parameters  map[string]any `json:"parameters"`
	Strict      bool           `json:"strict,omitempty"`
}

// encodeRequest builds the body of one request without the fields in drop.
func encodeRequest(r model.Request, drop map[string]bool) ([]byte, error) {
	b := requestBody{Model: r.Model, Stream: true, Messages: encodeMessages(r.Input, drop["reasoning_content"])}
	if !drop["stream_options"] {
		b.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	for _, t := range r.Tools {
		if t.Kind == model.ToolWebSearch {
			continue
		}
		description, schema := dialogue.Parameters(t)
		b.Tools = append(b.Tools, tool{Type: "function", Function: functionSpec{
			Name: dialogue.Flat(t.Namespace, t.Name), Description: description, Parameters: schema, Strict: t.Strict}})
	}
	if len(b.Tools) > 0 && !r.ParallelToolCalls && !drop["parallel_tool_calls"] {
		b.ParallelToolCalls = new(bool)
	}
	set := func(dst *string, field, value string) {
		if !drop[field] {
			*dst = value
		}
	}
	set(&b.ReasoningEffort, "reasoning_effort", r.Effort)
	set(&b.Verbosity, "verbosity", r.Verbosity)
	set(&b.ServiceTier, "service_tier", r.ServiceTier)
	if r.OutputSchema != nil && !drop["response_format"] {
		b.ResponseFormat = map[string]any{"type": "json_schema", "json_schema": map[string]any{
			"name": "final_output", "strict": !r.LooseSchema, "schema": r.OutputSchema}}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(b); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// encodeMessages writes the history. Instructions are one system message at the
// very beginning, which is all that the prompt templates of many models allow.
func encodeMessages(entries []*heddlev1.HistoryEntry, withoutThoughts bool) []message {
	system, dialog := dialogue.Fold(entries)
	var out []message
	if len(system) > 0 {
		out = append(out, message{Role: "system", Content: strings.Join(system, "\n\n")})
	}
	// Reasoning is given back within the tool calls of the last question only: services
	// that want it there refuse or pay for older reasoning.
	asked := 0
	for i, m := range dialog {
		if !m.Assistant && !m.Filler && len(m.Results) == 0 {
			asked = i
		}
	}
	for i, m := range dialog {
		if m.Assistant {
			out = append(out, encodeAssistant(m, i > asked && !withoutThoughts))
			continue
		}
		out = append(out, encodeUser(m)...)
	}
	return out
}

func encodeAssistant(m dialogue.Message, withReasoning bool) message {
	p := message{Role: "assistant"}
	var text strings.Builder
	for _, b := range m.Blocks {
		switch {
		case b.Call != nil:
			p.ToolCalls = append(p.ToolCalls, toolCall{ID: b.Call.GetCallId(), Type: "function", Function: function{
				Name: dialogue.Flat(b.Call.GetNamespace(), b.Call.GetName()), Arguments: string(dialogue.Arguments(b.Call))}})
		case b.Reasoning != nil:
			thoughts := strings.Join(b.Reasoning.GetContent(), "")
			switch {
			case !withReasoning:
			case b.Reasoning.GetForm() == formReasoning:
				p.Reasoning += thoughts
			case b.Reasoning.GetForm() == formReasoningContent:
				p.Thoughts += thoughts
			}
		default:
			if text.Len() > 0 {
				text.WriteString("\n\n")
			}
			text.WriteString(b.Text)
		}
	}
	if text.Len() > 0 || len(p.ToolCalls) == 0 {
		p.Content = text.String()
	}
	return p
}

// encodeUser writes the results of calls and the user's own words. Images of a
// result follow in the user's message: a tool's message holds text only.
func encodeUser(m dialogue.Message) []message {
	var out []message
	var parts []part
	for _, r := range m.Results {
		var text strings.Builder
		images := 0
		for _, p := range r.Parts {
			if url := p.GetImageUrl(); url != "" {
				images++
				parts = append(parts, part{Type: "text", Text: "Image from the result of call " + r.Call.GetCallId() + ":"},
					part{Type: "image_url", ImageURL: &imageURL{URL: url}})
				continue
			}
			text.WriteString(p.GetText())
		}
		if text.Len() == 0 && images > 0 {
			text.WriteString("The image follows.")
		}
		out = append(out, message{Role: "tool", ToolCallID: r.Call.GetCallId(), Content: text.String()})
	}
	for _, p := range m.Parts {
		if url := p.GetImageUrl(); url != "" {
			parts = append(parts, part{Type: "image_url", ImageURL: &imageURL{URL: url}})
			continue
		}
		parts = append(parts, part{Type: "text", Text: p.GetText()})
	}
	if len(parts) > 0 {
		out = append(out, message{Role: "user", Content: plain(parts)})
	}
	return out
}

// plain is one string when there is only text, which every service takes.
func plain(parts []part) any {
	var texts []string
	for _, p := range parts {
		if p.ImageURL != nil {
			return parts
		}
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n\n")
}
