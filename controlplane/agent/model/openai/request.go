package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// requestBody is the wire form. Field order and content depend on the request
// alone, so that equal prefixes are equal bytes.
type requestBody struct {
	Model string `json:"model"`
	// Stream stands before the long fields: the library looks for it.
	Stream            bool            `json:"stream"`
	Input             []any           `json:"input"`
	Tools             []any           `json:"tools"`
	ToolChoice        string          `json:"tool_choice"`
	ParallelToolCalls bool            `json:"parallel_tool_calls"`
	Reasoning         *reasoningParam `json:"reasoning"`
	Store             bool            `json:"store"`
	Include           []string        `json:"include"`
	ServiceTier       string          `json:"service_tier,omitempty"`
	PromptCacheKey    string          `json:"prompt_cache_key,omitempty"`
	Text              *textParam      `json:"text,omitempty"`
}

type reasoningParam struct {
	Effort  string `json:"effort,omitempty"`
	Summary string `json:"summary,omitempty"`
}

type textParam struct {
	Verbosity string       `json:"verbosity,omitempty"`
	Format    *formatParam `json:"format,omitempty"`
}

type formatParam struct {
	Type   string         `json:"type"`
	Strict bool           `json:"strict"`
	Schema map[string]any `json:"schema"`
	Name   string         `json:"name"`
}

type messageParam struct {
	Type    string      `json:"type"`
	Role    string      `json:"role"`
	Content []partParam `json:"content"`
	Phase   string      `json:"phase,omitempty"`
}

type partParam struct {
	Type     string  `json:"type"`
	Text     *string `json:"text,omitempty"`
	ImageURL string  `json:"image_url,omitempty"`
	Detail   string  `json:"detail,omitempty"`
}

type functionCallParam struct {
	Type      string `json:"type"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Arguments string `json:"arguments"`
	CallID    string `json:"call_id"`
}

type customCallParam struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Name   string `json:"name"`
	Input  string `json:"input"`
}

type callOutputParam struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Output any    `json:"output"`
}

type reasoningItem struct {
	Type             string      `json:"type"`
	Summary          []partParam `json:"summary"`
	EncryptedContent string      `json:"encrypted_content"`
}

// encodeRequest builds the body of one request.
func encodeRequest(r model.Request) ([]byte, error) {
	b := requestBody{
		Model:             r.Model,
		Input:             encodeInput(r.Input),
		Tools:             encodeTools(r.Tools),
		ToolChoice:        "auto",
		ParallelToolCalls: r.ParallelToolCalls,
		Stream:            true,
		Include:           []string{"reasoning.encrypted_content"},
		ServiceTier:       r.ServiceTier,
		PromptCacheKey:    r.ThreadID,
	}
	summary := r.Summary
	if summary == "none" {
		summary = ""
	}
	if r.Effort != "" || summary != "" {
		b.Reasoning = &reasoningParam{Effort: r.Effort, Summary: summary}
	}
	if r.Verbosity != "" || r.OutputSchema != nil {
		b.Text = &textParam{Verbosity: r.Verbosity}
		if r.OutputSchema != nil {
			b.Text.Format = &formatParam{Type: "json_schema", Strict: !r.LooseSchema, Schema: r.OutputSchema, Name: "final_output"}
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(b); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// encodeInput writes the history. The service refuses a call without a result
// and a result without a call for ever, so a lost result becomes "aborted" and a
// stray one is left out.
func encodeInput(entries []*heddlev1.HistoryEntry) []any {
	answered, called := map[string]bool{}, map[string]bool{}
	for _, e := range entries {
		if o := e.GetToolOutput(); o != nil {
			answered[o.GetCallId()] = true
		}
		if c := e.GetToolCall(); c != nil {
			called[c.GetCallId()] = true
		}
	}
	out := make([]any, 0, len(entries))
	for _, e := range entries {
		switch x := e.GetEntry().(type) {
		case *heddlev1.HistoryEntry_Message:
			out = append(out, encodeMessage(x.Message))
		case *heddlev1.HistoryEntry_ToolCall:
			c := x.ToolCall
			out = append(out, encodeCall(c))
			if !answered[c.GetCallId()] {
				out = append(out, callOutputParam{Type: outputType(c.GetFreeform()), CallID: c.GetCallId(), Output: "aborted"})
			}
		case *heddlev1.HistoryEntry_ToolOutput:
			if o := x.ToolOutput; called[o.GetCallId()] {
				out = append(out, callOutputParam{Type: outputType(o.GetFreeform()), CallID: o.GetCallId(), Output: encodeOutput(o.GetParts())})
			}
		case *heddlev1.HistoryEntry_Reasoning:
			// Without its encrypted form the service cannot take reasoning back; that of
			// another service it does not know.
			if r := x.Reasoning; r.GetEncryptedContent() != "" && r.GetForm() == "" {
				item := reasoningItem{Type: "reasoning", Summary: []partParam{}, EncryptedContent: r.GetEncryptedContent()}
				for _, s := range r.GetSummary() {
					item.Summary = append(item.Summary, textPart("summary_text", s))
				}
				out = append(out, item)
			}
		}
	}
	return out
}

func encodeMessage(m *heddlev1.HistoryMessage) messageParam {
	p := messageParam{Type: "message", Role: m.GetRole(), Content: []partParam{}, Phase: m.GetPhase()}
	kind := "input_text"
	if m.GetRole() == "assistant" {
		kind = "output_text"
	}
	for _, part := range m.GetParts() {
		switch x := part.GetPart().(type) {
		case *heddlev1.HistoryPart_Text:
			p.Content = append(p.Content, textPart(kind, x.Text))
		case *heddlev1.HistoryPart_ImageUrl:
			p.Content = append(p.Content, partParam{Type: "input_image", ImageURL: x.ImageUrl, Detail: part.GetImageDetail()})
		}
	}
	return p
}

func encodeCall(c *heddlev1.ToolCall) any {
	if c.GetFreeform() {
		return customCallParam{Type: "custom_tool_call", CallID: c.GetCallId(), Name: c.GetName(), Input: c.GetArguments()}
	}
	return functionCallParam{Type: "function_call", Name: c.GetName(), Namespace: c.GetNamespace(), Arguments: c.GetArguments(), CallID: c.GetCallId()}
}

func outputType(freeform bool) string {
	if freeform {
		return "custom_tool_call_output"
	}
	return "function_call_output"
}

// encodeOutput is a plain string when there is only text.
func encodeOutput(parts []*heddlev1.HistoryPart) any {
	var text strings.Builder
	list := make([]partParam, 0, len(parts))
	plain := true
	for _, part := range parts {
		switch x := part.GetPart().(type) {
		case *heddlev1.HistoryPart_Text:
			text.WriteString(x.Text)
			list = append(list, textPart("input_text", x.Text))
		case *heddlev1.HistoryPart_ImageUrl:
			plain = false
			list = append(list, partParam{Type: "input_image", ImageURL: x.ImageUrl, Detail: part.GetImageDetail()})
		}
	}
	if plain && len(list) <= 1 {
		return text.String()
	}
	return list
}

func textPart(kind, text string) partParam { return partParam{Type: kind, Text: &text} }

type functionParam struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Strict      bool           `json:"strict"`
	Parameters  map[string]any `json:"parameters"`
}

type namespaceParam struct {
	Type        string `json:"type"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Tools       []any  `json:"tools"`
}

type customParam struct {
	Type        string       `json:"type"`
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Format      grammarParam `json:"format"`
}

type grammarParam struct {
	Type       string `json:"type"`
	Syntax     string `json:"syntax"`
	Definition string `json:"definition"`
}

// encodeTools keeps the order; the tools of one namespace stand together at the
// place of its first tool.
func encodeTools(tools []model.Tool) []any {
	out := make([]any, 0, len(tools))
	spaces := map[string]int{}
	for _, t := range tools {
		p := encodeTool(t)
		if t.Namespace == "" {
			out = append(out, p)
			continue
		}
		i, known := spaces[t.Namespace]
		if !known {
			i = len(out)
			spaces[t.Namespace] = i
			out = append(out, namespaceParam{Type: "namespace", Name: t.Namespace, Description: "Tools of " + t.Namespace})
		}
		ns := out[i].(namespaceParam)
		ns.Tools = append(ns.Tools, p)
		out[i] = ns
	}
	return out
}

// searchParam always says whether pages are fetched: services fetch unless told.
type searchParam struct {
	Type     string `json:"type"`
	External bool   `json:"external_web_access"`
	Indexed  bool   `json:"indexed_web_access,omitempty"`
}

func encodeTool(t model.Tool) any {
	switch t.Kind {
	case model.ToolFreeform:
		return customParam{Type: "custom", Name: t.Name, Description: t.Description, Format: grammarParam{Type: "grammar", Syntax: "lark", Definition: t.Grammar}}
	case model.ToolWebSearch:
		return searchParam{Type: "web_search", External: t.Search == model.SearchLive || t.Search == model.SearchIndexed, Indexed: t.Search == model.SearchIndexed}
	}
	params := t.Parameters
	if params == nil {
		params = map[string]any{"type": "object", "properties": map[string]any{}}
	}
	return functionParam{Type: "function", Name: t.Name, Description: t.Description, Strict: t.Strict, Parameters: params}
}
