package mcpserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/types/known/structpb"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

var levels = []string{"read-only", "workspace-write", "danger-full-access"}

// policies are the approval policies that the tool takes. The one that asks
// after a failure is a name of earlier releases and is treated as on-request.
var policies = []string{"untrusted", "on-failure", "on-request", "never"}

func object(required []string, properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

func textOf(description string) map[string]any {
	return map[string]any{"type": "string", "description": description}
}

func oneOf(values []string, description string) map[string]any {
	return map[string]any{"type": "string", "enum": values, "description": description}
}

func outputSchema() any {
	return object([]string{"threadId", "content"}, map[string]any{
		"threadId": textOf("The thread, for codex-reply."),
		"content":  textOf("The final answer."),
	})
}

func codexTool() *mcp.Tool {
	return &mcp.Tool{
		Name: "codex", Title: "heddle",
		Description: "Give a task to a coding agent of its own. It works in a folder, runs commands in a sandbox, edits files, and answers when it is done. " +
			"The answer names the thread; codex-reply goes on with it.",
		InputSchema: object([]string{"prompt"}, map[string]any{
			"prompt":                 textOf("The task."),
			"cwd":                    textOf("Folder to work in. A relative one is resolved against the server's own working folder, which is also the default."),
			"sandbox":                oneOf(levels, "What commands may do: read, write in the folder, or everything. Default: the config's."),
			"approval-policy":        oneOf(policies, "When the client is asked before a command or an edit. Default: the config's."),
			"model":                  textOf("The model. Default: the config's."),
			"profile":                textOf("A profile of config.toml."),
			"base-instructions":      textOf("Instructions in place of the built-in ones."),
			"developer-instructions": textOf("Instructions beside the built-in ones, as a developer message."),
			"compact-prompt":         textOf("What is asked for when the conversation is summed up because it has grown too long."),
			"config":                 map[string]any{"type": "object", "additionalProperties": true, "description": "Further config keys, over those of config.toml."},
		}),
		OutputSchema: outputSchema(),
	}
}

func replyTool() *mcp.Tool {
	return &mcp.Tool{
		Name: "codex-reply", Title: "heddle: reply",
		Description: "Go on with a thread of the codex tool: its agent knows what was said and done. Threads stay known after a restart.",
		InputSchema: object([]string{"prompt"}, map[string]any{
			"threadId":       textOf("The thread, as the codex tool named it. Required."),
			"conversationId": textOf("Older name of threadId."),
			"prompt":         textOf("What to say next."),
		}),
		OutputSchema: outputSchema(),
	}
}

// codexArgs are the arguments of the codex tool.
type codexArgs struct {
	Prompt        *string         `json:"prompt"`
	Cwd           string          `json:"cwd"`
	Sandbox       string          `json:"sandbox"`
	Approval      string          `json:"approval-policy"`
	Model         string          `json:"model"`
	Profile       string          `json:"profile"`
	Base          string          `json:"base-instructions"`
	Developer     string          `json:"developer-instructions"`
	CompactPrompt string          `json:"compact-prompt"`
	Config        json.RawMessage `json:"config"`
}

// replyArgs are the arguments of the codex-reply tool.
type replyArgs struct {
	Prompt         *string `json:"prompt"`
	ThreadID       string  `json:"threadId"`
	ConversationID string  `json:"conversationId"`
}

// decode reads arguments; unknown ones are ignored.
func decode(raw json.RawMessage, args any, prompt func() *string) error {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	if err := json.Unmarshal(raw, args); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("invalid type of `%s`: %s", wrong.Field, wrong.Value)
		}
		return err
	}
	if prompt() == nil {
		return errors.New("missing field `prompt`")
	}
	if strings.TrimSpace(*prompt()) == "" {
		return errors.New("`prompt` is empty")
	}
	return nil
}

func known(value string, among []string) error {
	if value == "" || slices.Contains(among, value) {
		return nil
	}
	return fmt.Errorf("unknown variant `%s`, expected one of `%s`", value, strings.Join(among, "`, `"))
}

func readCodexArgs(raw json.RawMessage) (*codexArgs, error) {
	a := &codexArgs{}
	err := decode(raw, a, func() *string { return a.Prompt })
	if err == nil {
		err = known(a.Sandbox, levels)
	}
	if err == nil {
		err = known(a.Approval, policies)
	}
	if err != nil {
		return nil, fmt.Errorf("Failed to parse configuration for Codex tool: %w", err) //nolint:staticcheck // the text is API: callers look for it
	}
	return a, nil
}

func readReplyArgs(raw json.RawMessage) (*replyArgs, error) {
	a := &replyArgs{}
	if err := decode(raw, a, func() *string { return a.Prompt }); err != nil {
		return nil, fmt.Errorf("Failed to parse configuration for Codex tool: %w", err) //nolint:staticcheck // the text is API: callers look for it
	}
	if a.ThreadID == "" {
		a.ThreadID = a.ConversationID
	}
	if a.ThreadID == "" {
		return nil, errors.New("Failed to parse thread_id: either threadId or conversationId must be provided") //nolint:staticcheck // the text is API
	}
	return a, nil
}

// settings are those of the new thread; what is not given is the config's.
func (a *codexArgs) settings(cwd string) (*heddlev1.ThreadSettings, error) {
	s := &heddlev1.ThreadSettings{
		Cwd: cwd, Model: a.Model, ApprovalPolicy: a.Approval, BaseInstructions: a.Base, DeveloperInstructions: a.Developer,
	}
	if s.ApprovalPolicy == "on-failure" {
		s.ApprovalPolicy = "on-request"
	}
	switch a.Sandbox {
	case "read-only":
		s.Sandbox = &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY}
	case "workspace-write":
		s.Sandbox = &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE}
	case "danger-full-access":
		s.Sandbox = &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS}
	}
	config := &structpb.Struct{}
	if len(a.Config) > 0 {
		if err := config.UnmarshalJSON(a.Config); err != nil {
			return nil, fmt.Errorf("Failed to parse configuration for Codex tool: `config` is not an object: %w", err) //nolint:staticcheck // the text is API
		}
	}
	if config.Fields == nil {
		config.Fields = map[string]*structpb.Value{}
	}
	for key, value := range map[string]string{"profile": a.Profile, "compact_prompt": a.CompactPrompt} {
		if value != "" {
			config.Fields[key] = structpb.NewStringValue(value)
		}
	}
	if len(config.Fields) > 0 {
		s.Config = config
	}
	return s, nil
}
