// Package prompt makes the texts that a model is given besides the conversation.
//
// The same settings give the same bytes, so that the prefix of a thread's input
// stays stable and the service can cache it.
package prompt

import (
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Instructions is one instruction file of the workspace.
type Instructions struct {
	// Dir is the folder of the file.
	Dir  string
	Text string
}

// Context is what a model is told about the thread's surroundings.
type Context struct {
	// BaseInstructions replaces the built-in ones when not empty.
	BaseInstructions      string
	DeveloperInstructions string
	Cwd                   string
	Shell                 string
	Timezone              string
	Now                   time.Time
	Policy                *heddlev1.SandboxPolicy
	ApprovalPolicy        string
	// Escalation is false where asking to leave the sandbox is refused anyway.
	GranularApproval map[string]any
	// AllowedPrefixes are prefixes that rules already allow.
	AllowedPrefixes [][]string
	Instructions    []Instructions
	// PlanMode is set for turns in plan mode.
	PlanMode bool
}

// Base is the built-in base instructions.
func Base() string { return "" }

// First returns the entries that stand before the first input of a thread.
func First(c Context) []*heddlev1.HistoryEntry { return nil }

// Update returns the entries that tell what changed between two turns; none when
// nothing that matters to the model did.
func Update(before, after Context) []*heddlev1.HistoryEntry { return nil }

// Aborted returns the entry that tells the model that a turn was interrupted.
func Aborted() *heddlev1.HistoryEntry { return nil }

// Compact returns the user message that asks for a summary.
func Compact() *heddlev1.HistoryEntry { return nil }

// Summary returns the user message that holds a summary after compaction.
func Summary(text string) *heddlev1.HistoryEntry { return nil }

// RuleAdded returns the developer message after a rule was added by an approval.
func RuleAdded(prefix []string) *heddlev1.HistoryEntry { return nil }

// ShellCommand returns the user message about a command that the person ran.
func ShellCommand(cmd string, exit *int32, output string) *heddlev1.HistoryEntry { return nil }

// UserInput returns the user message of a turn's input.
func UserInput(m *heddlev1.UserMessage) *heddlev1.HistoryEntry { return nil }
