package tool

import (
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Specs returns the tools to offer, in a fixed order.
func Specs(o Options) []model.Tool { return nil }

// Parse reads a call of one of the built-in tools. A call that is malformed or
// of an unknown tool is an *Error. Dynamic and MCP tools are the caller's to
// look up first.
func Parse(c *heddlev1.ToolCall) (Call, error) { return nil, &Error{Output: "not implemented"} }

// PatchInCommand finds an apply_patch heredoc in a shell command. ok is false
// when the command is anything else. workdir is the folder of a leading `cd`.
func PatchInCommand(cmd string) (patch, workdir string, ok bool) { return "", "", false }

// ExecResult is the state of a command when the model is told about it.
type ExecResult struct {
	// ChunkID is six hexadecimal digits; NewChunkID makes one.
	ChunkID string
	Wall    time.Duration
	// Exit is nil while the process runs; then SessionID is shown.
	Exit      *int32
	SessionID int64
	// Output is what was printed since the model was told last, and Total its
	// whole length when Output is already a bounded view (0: len(Output)).
	Output []byte
	Total  int64
	// MaxTokens bounds the text; 0 means DefaultMaxTokens.
	MaxTokens int
}

// DefaultMaxTokens bounds the output of a command for the model.
const DefaultMaxTokens = 10000

// FormatExec is the text for the model.
func FormatExec(r ExecResult) string { return "" }

// NewChunkID returns six random hexadecimal digits.
func NewChunkID() string { return "" }

// FormatPatch is the text for the model after a patch was written.
func FormatPatch(summary string, wall time.Duration) string { return "" }

// Truncate cuts text in the middle to about maxTokens and says so; invalid UTF-8
// is replaced.
func Truncate(b []byte, maxTokens int) (text string, originalTokens int) { return "", 0 }

// Output makes the history entry of a call's result.
func Output(c *heddlev1.ToolCall, text string) *heddlev1.HistoryEntry { return nil }
