package anthropic

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/dialogue"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// optional are the fields that a service or a model may not know.
var optional = []string{"output_config", "thinking", "service_tier", "disable_parallel_tool_use", "cache_control"}

// requestBody is the wire form. Field order and content depend on the request
// alone, so that equal prefixes are equal bytes.
type requestBody struct {
	Model        string         `json:"model"`
	MaxTokens    int64          `json:"max_tokens"`
	Stream       bool           `json:"stream"`
	System       []block        `json:"system,omitempty"`
	Tools        []tool         `json:"tools,omitempty"`
	ToolChoice   *toolChoice    `json:"tool_choice,omitempty"`
	Messages     []message      `json:"messages"`
	Thinking     *thinking      `json:"thinking,omitempty"`
	OutputConfig map[string]any `json:"output_config,omitempty"`
	ServiceTier  string         `json:"service_tier,omitempty"`
}

type toolChoice struct {
	Type            string `json:"type"`
	DisableParallel bool   `json:"disable_parallel_tool_use"`
}

type thinking struct {
	Type    string `json:"type"`
	Budget  int64  `json:"budget_tokens,omitempty"`
	Display string `json:"display,omitempty"`
}

type tool struct {
	Name         string         `json:"name"`
	Description  string         `json:"description,omitempty"`
	InputSchema  map[string]any `json:"input_schema"`
	CacheControl *cacheControl  `json:"cache_control,omitempty"`
}

type cacheControl struct {
	Type string `json:"type"`
}

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// block is any content block; Type says which fields count.
type block struct {
	Type         string          `json:"type"`
	Text         string          `json:"text,omitempty"`
	Source       *source         `json:"source,omitempty"`
	Thinking     *string         `json:"thinking,omitempty"`
	Signature    string          `json:"signature,omitempty"`
	Data         string          `json:"data,omitempty"`
	ID           string          `json:"id,omitempty"`
	Name         string          `json:"name,omitempty"`
	Input        json.RawMessage `json:"input,omitempty"`
	ToolUseID    string          `json:"tool_use_id,omitempty"`
	Content      []block         `json:"content,omitempty"`
	CacheControl *cacheControl   `json:"cache_control,omitempty"`
}

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// What is known of models: how many tokens they may answer, and which take a
// budget of thinking instead of deciding by themselves.
var (
	smallest   = regexp.MustCompile(`^claude-3-(?:opus|haiku|sonnet)`)
	small      = regexp.MustCompile(`^claude-3-5`)
	unthinking = regexp.MustCompile(`^claude-3-(?:opus|haiku|sonnet|5)`)
	budgeted   = regexp.MustCompile(`^claude-(?:3-7|(?:opus|sonnet|haiku)-4(?:-0|-1|-5)?(?:-\d{8}|-latest)?$)`)
)

func maxTokens(name string) int64 {
	switch {
	case smallest.MatchString(name):
		return 4096
	case small.MatchString(name):
		return 8192
	}
	return 32000
}

// budgets of thinking for the efforts, in tokens.
var budgets = map[string]int64{"minimal": 1024, "low": 4096, "medium": 10000, "high": 20000, "xhigh": 26000, "max": 26000}

// encodeRequest builds the body of one request without the fields in drop.
func encodeRequest(r model.Request, drop map[string]bool) ([]byte, error) {
	b := requestBody{Model: r.Model, MaxTokens: maxTokens(r.Model), Stream: true}
	system, dialog := dialogue.Fold(r.Input)
	for _, s := range system {
		if strings.TrimSpace(s) != "" {
			b.System = append(b.System, block{Type: "text", Text: s})
		}
	}
	b.Messages = encodeMessages(dialog)
	b.Tools = encodeTools(r.Tools)
	if len(b.Tools) > 0 && !r.ParallelToolCalls && !drop["disable_parallel_tool_use"] {
		b.ToolChoice = &toolChoice{Type: "auto", DisableParallel: true}
	}
	if !drop["thinking"] {
		b.Thinking = thinkingFor(r, dialog)
	}
	if !drop["output_config"] {
		b.OutputConfig = outputConfig(r)
	}
	if t := r.ServiceTier; (t == "auto" || t == "standard_only") && !drop["service_tier"] {
		b.ServiceTier = t
	}
	if !drop["cache_control"] {
		markCache(&b)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(b); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func known(name string) bool { return strings.HasPrefix(name, "claude-") }

// adaptive reports whether the model itself decides how long it thinks.
func adaptive(name string) bool {
	return known(name) && !unthinking.MatchString(name) && !budgeted.MatchString(name)
}

func thinkingFor(r model.Request, dialog []dialogue.Message) *thinking {
	switch {
	case r.Effort == "none", unthinking.MatchString(r.Model):
		return nil
	case adaptive(r.Model):
		return &thinking{Type: "adaptive", Display: "summarized"}
	}
	budget := budgets[r.Effort]
	if budget == 0 || unthought(dialog) {
		return nil
	}
	return &thinking{Type: "enabled", Budget: budget}
}

// unthought reports whether tools are being called by an answer without thinking,
// which a service that thinks by budget refuses to go on with.
func unthought(dialog []dialogue.Message) bool {
	n := len(dialog)
	if n < 2 || len(dialog[n-1].Results) == 0 {
		return false
	}
	for _, b := range dialog[n-2].Blocks {
		if b.Reasoning != nil && thought(b.Reasoning) != nil {
			return false
		}
	}
	return true
}

// outputConfig holds effort and the form of the answer.
func outputConfig(r model.Request) map[string]any {
	c := map[string]any{}
	if adaptive(r.Model) {
		switch r.Effort {
		case "minimal", "low":
			c["effort"] = "low"
		case "medium", "high", "xhigh", "max":
			c["effort"] = r.Effort
		}
	}
	if r.OutputSchema != nil {
		c["format"] = map[string]any{"type": "json_schema", "schema": r.OutputSchema}
	}
	if len(c) == 0 {
		return nil
	}
	return c
}

func encodeTools(tools []model.Tool) []tool {
	var out []tool
	for _, t := range tools {
		if t.Kind == model.ToolWebSearch {
			continue
		}
		description, schema := dialogue.Parameters(t)
		out = append(out, tool{Name: dialogue.Flat(t.Namespace, t.Name), Description: description, InputSchema: schema})
	}
	return out
}

// markCache asks the service to keep the request up to its instructions, and up
// to its end: the next step begins with all of it.
func markCache(b *requestBody) {
	mark := &cacheControl{Type: "ephemeral"}
	switch {
	case len(b.System) > 0:
		b.System[len(b.System)-1].CacheControl = mark
	case len(b.Tools) > 0:
		b.Tools[len(b.Tools)-1].CacheControl = mark
	}
	if n := len(b.Messages); n > 0 {
		content := b.Messages[n-1].Content
		content[len(content)-1].CacheControl = mark
	}
}

func encodeMessages(dialog []dialogue.Message) []message {
	out := make([]message, 0, len(dialog))
	for _, m := range dialog {
		p := message{Role: "user"}
		if m.Assistant {
			p.Role, p.Content = "assistant", assistantBlocks(m.Blocks)
		} else {
			p.Content = userBlocks(m)
		}
		if len(p.Content) == 0 {
			// The service takes no empty message.
			p.Content = []block{{Type: "text", Text: "(empty)"}}
		}
		out = append(out, p)
	}
	return out
}

func assistantBlocks(blocks []dialogue.Block) []block {
	var out []block
	for _, b := range blocks {
		switch {
		case b.Call != nil:
			out = append(out, block{Type: "tool_use", ID: toolID(b.Call.GetCallId()), Name: dialogue.Flat(b.Call.GetNamespace(), b.Call.GetName()), Input: dialogue.Arguments(b.Call)})
		case b.Reasoning != nil:
			if t := thought(b.Reasoning); t != nil {
				out = append(out, *t)
			}
		default:
			out = append(out, block{Type: "text", Text: b.Text})
		}
	}
	return out
}

// thought is a thinking block as the service gave it; nil for reasoning of
// another service.
func thought(r *heddlev1.HistoryReasoning) *block {
	switch r.GetForm() {
	case formThinking:
		text := strings.Join(r.GetSummary(), "")
		return &block{Type: "thinking", Thinking: &text, Signature: r.GetEncryptedContent()}
	case formRedacted:
		return &block{Type: "redacted_thinking", Data: r.GetEncryptedContent()}
	}
	return nil
}

func userBlocks(m dialogue.Message) []block {
	var out []block
	for _, r := range m.Results {
		out = append(out, block{Type: "tool_result", ToolUseID: toolID(r.Call.GetCallId()), Content: parts(r.Parts)})
	}
	return append(out, parts(m.Parts)...)
}

func parts(list []*heddlev1.HistoryPart) []block {
	var out []block
	for _, p := range list {
		if url := p.GetImageUrl(); url != "" {
			out = append(out, block{Type: "image", Source: imageSource(url)})
		} else if strings.TrimSpace(p.GetText()) != "" {
			out = append(out, block{Type: "text", Text: p.GetText()})
		}
	}
	return out
}

// imageSource is a data URL taken apart, or any other URL as it is.
func imageSource(url string) *source {
	if rest, ok := strings.CutPrefix(url, "data:"); ok {
		if kind, data, ok := strings.Cut(rest, ";base64,"); ok {
			return &source{Type: "base64", MediaType: kind, Data: data}
		}
	}
	return &source{Type: "url", URL: url}
}

var notInID = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// toolID is a call id in the letters that the service takes; other services give
// others.
func toolID(id string) string { return notInID.ReplaceAllString(id, "_") }
