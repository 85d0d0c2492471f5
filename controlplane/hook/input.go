package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Input is what a hook reads as JSON on its standard input.
type Input struct {
	SessionID string `json:"session_id"`
	TurnID    string `json:"turn_id,omitempty"`
	// TranscriptPath is always null: there is no file of the conversation.
	TranscriptPath *string `json:"transcript_path"`
	Cwd            string  `json:"cwd"`
	EventName      string  `json:"hook_event_name"`
	Model          string  `json:"model"`
	// PermissionMode is "default", "plan" or "bypassPermissions".
	PermissionMode string `json:"permission_mode"`
	// Source says how a session started.
	Source string `json:"source,omitempty"`
	// Prompt is what the person wrote.
	Prompt *string `json:"prompt,omitempty"`
	// The tool, its input, its output and the id of its call.
	ToolName     string          `json:"tool_name,omitempty"`
	ToolInput    json.RawMessage `json:"tool_input,omitempty"`
	ToolResponse *string         `json:"tool_response,omitempty"`
	ToolUseID    string          `json:"tool_use_id,omitempty"`
	// Subject tells runs apart whose id is the same: the call, or what stands for
	// the prompt. Hooks do not see it.
	Subject string `json:"-"`
	// StopActive says that a stop hook has made the turn go on already.
	StopActive *bool `json:"stop_hook_active,omitempty"`
	// LastMessage is what the model said last.
	LastMessage *string `json:"last_assistant_message,omitempty"`
}

// Encode returns the input as JSON on one line.
func (in Input) Encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(in); err != nil {
		return nil, fmt.Errorf("encode the input of a hook: %w", err)
	}
	return b.Bytes(), nil
}
