package chat

import (
	"encoding/json"

	"github.com/tidwall/gjson"
)

// chunk holds the members of a chunk that are used.
type chunk struct {
	ID      string          `json:"id"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index        int    `json:"index"`
	Delta        *delta `json:"delta"`
	Message      *delta `json:"message"`
	FinishReason string `json:"finish_reason"`
}

type delta struct {
	Content   json.RawMessage `json:"content"`
	Refusal   string          `json:"refusal"`
	Thoughts  string          `json:"reasoning_content"`
	Reasoning string          `json:"reasoning"`
	ToolCalls []callDelta     `json:"tool_calls"`
	// FunctionCall is the form before tool_calls.
	FunctionCall *functionDelta `json:"function_call"`
}

type callDelta struct {
	Index    *int          `json:"index"`
	ID       string        `json:"id"`
	Function functionDelta `json:"function"`
}

type functionDelta struct {
	Name string `json:"name"`
	// Arguments are a piece of a string; some services send the object itself.
	Arguments json.RawMessage `json:"arguments"`
}

type usage struct {
	Prompt        int64 `json:"prompt_tokens"`
	PromptDetails struct {
		Cached     int64 `json:"cached_tokens"`
		CacheWrite int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	// CacheHit is DeepSeek's name for the cached part.
	CacheHit          int64 `json:"prompt_cache_hit_tokens"`
	Completion        int64 `json:"completion_tokens"`
	CompletionDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	Total int64 `json:"total_tokens"`
}

// contentOf is the text of a content, and the thoughts in one that is a list of
// parts.
func contentOf(raw json.RawMessage) (text, thoughts string) {
	if len(raw) == 0 {
		return "", ""
	}
	v := gjson.ParseBytes(raw)
	if v.Type == gjson.String {
		return v.Str, ""
	}
	for _, p := range v.Array() {
		switch p.Get("type").Str {
		case "thinking":
			for _, t := range p.Get("thinking").Array() {
				thoughts += t.Get("text").Str
			}
		default:
			text += p.Get("text").Str
		}
	}
	return text, thoughts
}
