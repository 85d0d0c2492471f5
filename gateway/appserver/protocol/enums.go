package protocol

import "encoding/json"

// SandboxMode is the short name of a sandbox policy.
type SandboxMode string

// Sandbox modes.
const (
	ModeReadOnly       SandboxMode = "read-only"
	ModeWorkspaceWrite SandboxMode = "workspace-write"
	ModeFullAccess     SandboxMode = "danger-full-access"
)

// Variants implements the enumeration.
func (SandboxMode) Variants() []string {
	return []string{string(ModeReadOnly), string(ModeWorkspaceWrite), string(ModeFullAccess)}
}

// SortDirection orders a page.
type SortDirection string

// Variants implements the enumeration.
func (SortDirection) Variants() []string { return []string{"asc", "desc"} }

// ThreadSortKey orders thread/list.
type ThreadSortKey string

// Variants implements the enumeration.
func (ThreadSortKey) Variants() []string {
	return []string{"created_at", "updated_at", "recency_at", "section_position"}
}

// SourceKind filters thread/list.
type SourceKind string

// Variants implements the enumeration.
func (SourceKind) Variants() []string {
	return []string{"cli", "vscode", "exec", "appServer", "subAgent", "subAgentReview", "subAgentCompact", "subAgentThreadSpawn", "subAgentOther", "unknown"}
}

// ItemsView says how much of a turn's items is wanted.
type ItemsView string

// Items views.
const (
	ViewNotLoaded ItemsView = "notLoaded"
	ViewSummary   ItemsView = "summary"
	ViewFull      ItemsView = "full"
)

// Variants implements the enumeration.
func (ItemsView) Variants() []string {
	return []string{string(ViewNotLoaded), string(ViewSummary), string(ViewFull)}
}

// Reviewer says who answers approvals.
type Reviewer string

// Variants implements the enumeration.
func (Reviewer) Variants() []string { return []string{"user", "auto_review", "guardian_subagent"} }

// Personality is the tone of the agent.
type Personality string

// Variants implements the enumeration.
func (Personality) Variants() []string { return []string{"none", "friendly", "pragmatic"} }

// Summary is the detail of reasoning summaries.
type Summary string

// Variants implements the enumeration.
func (Summary) Variants() []string { return []string{"auto", "concise", "detailed", "none"} }

// HistoryMode is how a thread's history is served.
type HistoryMode string

// Variants implements the enumeration.
func (HistoryMode) Variants() []string { return []string{"legacy", "paginated"} }

// StartSource says why a thread is started.
type StartSource string

// Variants implements the enumeration.
func (StartSource) Variants() []string { return []string{"startup", "clear"} }

// CyberAccess is a treatment that a vendor's server gives to a turn. It has no
// effect here.
type CyberAccess string

// Variants implements the enumeration.
func (CyberAccess) Variants() []string { return []string{"standard", "daybreakBlue", "daybreakRed"} }

// MultiAgentMode says whether the model hands work on. It has no effect here.
type MultiAgentMode struct{}

func (*MultiAgentMode) decodeWire(raw []byte) error {
	names := []string{"none", "custom", "explicitRequestOnly", "proactive"}
	switch kindOf(raw) {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		return oneOf(s, names)
	case '{':
		return members(raw, func(key string, value json.RawMessage) error {
			if key != "custom" {
				return oneOf(key, names)
			}
			if kindOf(value) != '"' {
				return wrongType(value, "a string")
			}
			return nil
		})
	}
	return wrongType(raw, "string or map")
}
