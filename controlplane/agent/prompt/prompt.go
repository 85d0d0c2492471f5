// Package prompt makes the texts that a model is given besides the conversation.
//
// The same settings give the same bytes, so that the prefix of a thread's input
// stays stable and the service can cache it: later changes are told by entries
// that are added, never by changing earlier ones.
package prompt

import (
	"cmp"
	_ "embed"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

//go:embed base.md
var base string

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
	// Now is shown as a date in its own location.
	Now            time.Time
	Policy         *heddlev1.SandboxPolicy
	ApprovalPolicy string
	// GranularApproval holds the flags of the policy "granular".
	GranularApproval map[string]any
	// AllowedPrefixes are prefixes that rules already allow.
	AllowedPrefixes [][]string
	Instructions    []Instructions
	// PlanMode is set for turns in plan mode. ModeInstructions replace the built-in
	// ones of the mode when not empty.
	PlanMode         bool
	ModeInstructions string
	// Personality is the tone of answers: "friendly", "pragmatic", or "none" and
	// empty for that of the instructions.
	Personality string
	// Skills are told of once, at the start of a thread.
	Skills []Skill
}

// Base is the built-in base instructions.
func Base() string { return base }

// First returns the entries that stand before the first input of a thread: the
// base instructions, the developer's texts, then what the user's side knows.
func First(c Context) []*heddlev1.HistoryEntry {
	instructions := c.BaseInstructions
	if instructions == "" {
		instructions = base
	}
	entries := []*heddlev1.HistoryEntry{message("developer", instructions)}
	var developer []string
	if c.DeveloperInstructions != "" {
		developer = append(developer, c.DeveloperInstructions)
	}
	if tone := toneText(c.Personality); tone != "" {
		developer = append(developer, tone)
	}
	if s := skillsText(c.Skills); s != "" {
		developer = append(developer, s)
	}
	developer = append(developer, permissions(c))
	if c.PlanMode || c.ModeInstructions != "" {
		developer = append(developer, modeText(c))
	}
	entries = append(entries, message("developer", developer...))
	var user []string
	for _, i := range c.Instructions {
		user = append(user, agentsText(i))
	}
	return append(entries, message("user", append(user, environment(nil, c))...))
}

// Update returns the entries that tell what changed between two turns; none when
// nothing that matters to the model did.
func Update(before, after Context) []*heddlev1.HistoryEntry {
	var developer, user []string
	// Prefixes that were added meanwhile have been told by RuleAdded.
	before.AllowedPrefixes = after.AllowedPrefixes
	if p := permissions(after); p != permissions(before) {
		developer = append(developer, p)
	}
	if d := after.DeveloperInstructions; d != before.DeveloperInstructions && d != "" {
		developer = append(developer, d)
	}
	if tone := toneText(after.Personality); tone != toneText(before.Personality) {
		developer = append(developer, cmp.Or(tone, plainTone))
	}
	if after.PlanMode != before.PlanMode || after.ModeInstructions != before.ModeInstructions {
		developer = append(developer, modeText(after))
	}
	for _, i := range after.Instructions {
		if !knows(before, i) {
			user = append(user, agentsText(i))
		}
	}
	if env := environment(&before, after); env != "" {
		user = append(user, env)
	}
	var entries []*heddlev1.HistoryEntry
	if len(developer) > 0 {
		entries = append(entries, message("developer", developer...))
	}
	if len(user) > 0 {
		entries = append(entries, message("user", user...))
	}
	return entries
}

func knows(c Context, i Instructions) bool {
	for _, old := range c.Instructions {
		if old == i {
			return true
		}
	}
	return false
}

func agentsText(i Instructions) string {
	return "# AGENTS.md instructions for " + i.Dir + "\n\n<INSTRUCTIONS>\n" + i.Text + "\n</INSTRUCTIONS>"
}

func message(role string, texts ...string) *heddlev1.HistoryEntry {
	m := &heddlev1.HistoryMessage{Role: role}
	for _, t := range texts {
		m.Parts = append(m.Parts, textPart(t))
	}
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: m}}
}

func textPart(t string) *heddlev1.HistoryPart {
	return &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_Text{Text: t}}
}
