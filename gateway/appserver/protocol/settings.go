package protocol

import heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"

// Settings is the wire form of a thread's settings.
type Settings struct {
	Cwd                     string        `json:"cwd"`
	ApprovalPolicy          Approval      `json:"approvalPolicy"`
	ApprovalsReviewer       string        `json:"approvalsReviewer"`
	SandboxPolicy           SandboxPolicy `json:"sandboxPolicy"`
	ActivePermissionProfile *Profile      `json:"activePermissionProfile"`
	MultiAgentMode          string        `json:"multiAgentMode"`
	Model                   string        `json:"model"`
	ModelProvider           string        `json:"modelProvider"`
	ServiceTier             *string       `json:"serviceTier"`
	Effort                  *string       `json:"effort"`
	Summary                 *string       `json:"summary"`
	CollaborationMode       any           `json:"collaborationMode"`
	Personality             *string       `json:"personality"`
	DisabledPluginIDs       []string      `json:"disabledPluginIds"`
	Environments            []Environment `json:"environments"`
}

// FromSettings makes the wire form of settings.
func FromSettings(s *heddlev1.ThreadSettings) Settings {
	return Settings{
		Cwd: s.GetCwd(), ApprovalPolicy: FromApproval(s), ApprovalsReviewer: reviewerOf(s), SandboxPolicy: FromSandbox(s.GetSandbox()),
		Model: s.GetModel(), ModelProvider: s.GetModelProvider(), ServiceTier: opt(s.GetServiceTier()), Effort: opt(s.GetReasoningEffort()),
		Summary: opt(s.GetReasoningSummary()), CollaborationMode: ModeOf(s), Personality: opt(s.GetPersonality()), DisabledPluginIDs: []string{},
		ActivePermissionProfile: FromProfile(s.GetSandbox()), MultiAgentMode: multiAgentMode, Environments: FromEnvironments(s),
	}
}

func reviewerOf(s *heddlev1.ThreadSettings) string {
	if r := s.GetApprovalsReviewer(); r != "" {
		return r
	}
	return "user"
}

// ModeOf is a thread's collaboration mode.
func ModeOf(s *heddlev1.ThreadSettings) any {
	if m := s.GetCollaborationMode(); m != nil {
		return m.AsMap()
	}
	return map[string]any{
		"mode":     "default",
		"settings": map[string]any{"model": s.GetModel(), "reasoning_effort": opt(s.GetReasoningEffort()), "developer_instructions": nil},
	}
}
