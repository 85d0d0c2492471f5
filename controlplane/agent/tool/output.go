package tool

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// DefaultMaxTokens bounds the output of a command for the model.
const DefaultMaxTokens = 10000

// bytesPerToken is the usual estimate; the count need not be exact.
const bytesPerToken = 4

// ExecResult is the state of a command when the model is told about it.
type ExecResult struct {
	// ChunkID is six hexadecimal digits; NewChunkID makes one. Empty leaves it out.
	ChunkID string
	Wall    time.Duration
	// Exit is nil while the process runs; then SessionID is shown.
	Exit      *int32
	SessionID int64
	// Output is what was printed since the model was told last, and Total its
	// whole length when Output is already a bounded view (0: len(Output)).
	Output []byte
	Total  int64
	// Notes are facts about its end that the output does not show, a line each.
	Notes []string
	// MaxTokens bounds the text; 0 means DefaultMaxTokens.
	MaxTokens int
}

// FormatExec is the text for the model.
func FormatExec(r ExecResult) string {
	if r.MaxTokens <= 0 {
		r.MaxTokens = DefaultMaxTokens
	}
	var b strings.Builder
	if r.ChunkID != "" {
		fmt.Fprintf(&b, "Chunk ID: %s\n", r.ChunkID)
	}
	fmt.Fprintf(&b, "Wall time: %.4f seconds\n", r.Wall.Seconds())
	if r.Exit != nil {
		fmt.Fprintf(&b, "Process exited with code %d\n", *r.Exit)
	} else {
		fmt.Fprintf(&b, "Process running with session ID %d\n", r.SessionID)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "Note: %s\n", n)
	}
	text, tokens := Truncate(r.Output, r.MaxTokens)
	if r.Total > int64(len(r.Output)) {
		tokens = int((r.Total + bytesPerToken - 1) / bytesPerToken)
	}
	fmt.Fprintf(&b, "Original token count: %d\nOutput:\n", tokens)
	b.WriteString(text)
	return b.String()
}

// NewChunkID returns six random hexadecimal digits.
func NewChunkID() string {
	var b [3]byte
	// Read of crypto/rand does not fail; it ends the program instead.
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// FormatPatch is the text for the model after a patch was written. summary is
// the list of changed files.
func FormatPatch(summary string, wall time.Duration) string {
	return fmt.Sprintf("Exit code: 0\nWall time: %.1f seconds\nOutput:\n%s", wall.Seconds(), summary)
}

// Truncate cuts text in the middle to about maxTokens and says so; invalid UTF-8
// is replaced. originalTokens is an estimate of the whole.
func Truncate(b []byte, maxTokens int) (text string, originalTokens int) {
	originalTokens = (len(b) + bytesPerToken - 1) / bytesPerToken
	if maxTokens <= 0 || originalTokens <= maxTokens {
		return valid(b), originalTokens
	}
	budget := maxTokens * bytesPerToken
	head, tail := cutHead(b, budget/2), cutTail(b, budget-budget/2)
	cut := (len(b) - len(head) - len(tail) + bytesPerToken - 1) / bytesPerToken
	return fmt.Sprintf("%s\u2026%d tokens truncated\u2026%s", valid(head), cut, valid(tail)), originalTokens
}

func valid(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// cutHead takes at most n bytes and does not end within a character.
func cutHead(b []byte, n int) []byte {
	for i := 0; i < utf8.UTFMax && n-i > 0; i++ {
		if utf8.RuneStart(b[n-i]) {
			return b[:n-i]
		}
	}
	return b[:n]
}

// cutTail is cutHead for the end.
func cutTail(b []byte, n int) []byte {
	start := len(b) - n
	for i := 0; i < utf8.UTFMax && start+i < len(b); i++ {
		if utf8.RuneStart(b[start+i]) {
			return b[start+i:]
		}
	}
	return b[start:]
}

// Output makes the history entry of a call's result.
func Output(c *heddlev1.ToolCall, text string) *heddlev1.HistoryEntry {
	return OutputParts(c, &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_Text{Text: strings.ToValidUTF8(text, "\uFFFD")}})
}

// OutputParts is Output for results that are not only text.
func OutputParts(c *heddlev1.ToolCall, parts ...*heddlev1.HistoryPart) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolOutput{ToolOutput: &heddlev1.ToolOutput{
		CallId: c.GetCallId(), Freeform: c.GetFreeform(), Parts: parts,
	}}}
}
