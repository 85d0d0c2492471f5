package protocol

import (
	"encoding/json"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Status is the state of a thread as clients see it.
type Status struct {
	Type        string   `json:"type"`
	ActiveFlags []string `json:"-"`
}

// MarshalJSON adds the flags of an active thread.
func (s Status) MarshalJSON() ([]byte, error) {
	if s.Type != "active" {
		return json.Marshal(map[string]string{"type": s.Type})
	}
	flags := s.ActiveFlags
	if flags == nil {
		flags = []string{}
	}
	return json.Marshal(struct {
		Type        string   `json:"type"`
		ActiveFlags []string `json:"activeFlags"`
	}{s.Type, flags})
}

// NotLoaded is the status of a thread that this server does not hold.
var NotLoaded = Status{Type: "notLoaded"}

// StatusOf derives the status of a loaded thread.
func StatusOf(state heddlev1.ThreadState, approval, input bool) Status {
	switch state {
	case heddlev1.ThreadState_THREAD_STATE_ACTIVE:
		s := Status{Type: "active"}
		if approval {
			s.ActiveFlags = append(s.ActiveFlags, "waitingOnApproval")
		}
		if input {
			s.ActiveFlags = append(s.ActiveFlags, "waitingOnUserInput")
		}
		return s
	case heddlev1.ThreadState_THREAD_STATE_SYSTEM_ERROR:
		return Status{Type: "systemError"}
	}
	return Status{Type: "idle"}
}

// GitInfo is what was read of a workspace's repository.
type GitInfo struct {
	SHA       *string `json:"sha"`
	Branch    *string `json:"branch"`
	OriginURL *string `json:"originUrl"`
}

// Thread is the wire form of a thread; every member is present.
type Thread struct {
	ID                   string   `json:"id"`
	SessionID            string   `json:"sessionId"`
	ForkedFromID         *string  `json:"forkedFromId"`
	ParentThreadID       *string  `json:"parentThreadId"`
	AttachedToThreadID   *string  `json:"attachedToThreadId"`
	Preview              string   `json:"preview"`
	Ephemeral            bool     `json:"ephemeral"`
	Section              *Section `json:"section"`
	SectionEnteredAt     *int64   `json:"sectionEnteredAt"`
	ProjectID            *string  `json:"projectId"`
	DaybreakEnabled      *bool    `json:"daybreakEnabled"`
	HistoryMode          string   `json:"historyMode"`
	ModelProvider        string   `json:"modelProvider"`
	Model                *string  `json:"model"`
	ReasoningEffort      *string  `json:"reasoningEffort"`
	CreatedAt            int64    `json:"createdAt"`
	UpdatedAt            int64    `json:"updatedAt"`
	RecencyAt            int64    `json:"recencyAt"`
	Status               Status   `json:"status"`
	Path                 *string  `json:"path"`
	Cwd                  string   `json:"cwd"`
	CliVersion           string   `json:"cliVersion"`
	Originator           *string  `json:"originator"`
	Source               any      `json:"source"`
	ThreadSource         *string  `json:"threadSource"`
	AgentNickname        *string  `json:"agentNickname"`
	AgentRole            *string  `json:"agentRole"`
	CanAcceptDirectInput *bool    `json:"canAcceptDirectInput"`
	GitInfo              *GitInfo `json:"gitInfo"`
	// Environments is nil for a thread that is not loaded.
	Environments []Environment `json:"environments"`
	Extra        *string       `json:"extra"`
	Name         *string       `json:"name"`
	Turns        []Turn        `json:"turns"`
}

// FromThread makes the wire form of a thread. path is where its output lies.
func FromThread(t *heddlev1.Thread, status Status, path string) Thread {
	s := t.GetSettings()
	out := Thread{
		ID: t.GetId(), SessionID: t.GetId(), ForkedFromID: opt(t.GetForkedFromId()), ParentThreadID: opt(t.GetParentThreadId()),
		Preview: t.GetPreview(), Ephemeral: t.GetEphemeral(), HistoryMode: "paginated",
		ModelProvider: s.GetModelProvider(), Model: opt(s.GetModel()), ReasoningEffort: opt(s.GetReasoningEffort()),
		CreatedAt: t.GetCreatedAtMs() / 1000, UpdatedAt: t.GetUpdatedAtMs() / 1000, RecencyAt: t.GetUpdatedAtMs() / 1000,
		Status: status, Cwd: s.GetCwd(), CliVersion: t.GetVersion(), Originator: opt(t.GetOriginator()),
		Source: fromSource(t), ThreadSource: opt(t.GetThreadSource()),
		ProjectID: opt(t.GetProjectId()), AgentNickname: opt(t.GetAgentNickname()), AgentRole: opt(t.GetAgentRole()), Name: opt(t.GetName()), Turns: []Turn{},
	}
	if !t.GetEphemeral() {
		out.Path = opt(path)
	}
	if status.Type != "notLoaded" {
		out.Environments = FromEnvironments(s)
		if t.GetParentThreadId() == "" {
			direct := true
			out.CanAcceptDirectInput = &direct
		}
	}
	if g := t.GetGit(); g.GetSha() != "" || g.GetBranch() != "" || g.GetOriginUrl() != "" {
		out.GitInfo = &GitInfo{opt(g.GetSha()), opt(g.GetBranch()), opt(g.GetOriginUrl())}
	}
	return out
}

func sourceOf(s string) any {
	switch s {
	case "cli", "vscode", "exec", "appServer", "unknown":
		return s
	case "":
		return "unknown"
	}
	return map[string]string{"custom": s}
}

// Opened is the answer of thread/start, thread/resume and thread/fork.
type Opened struct {
	Thread                  Thread        `json:"thread"`
	Model                   string        `json:"model"`
	ModelProvider           string        `json:"modelProvider"`
	ServiceTier             *string       `json:"serviceTier"`
	DisabledPluginIDs       []string      `json:"disabledPluginIds"`
	Cwd                     string        `json:"cwd"`
	RuntimeWorkspaceRoots   []string      `json:"runtimeWorkspaceRoots"`
	InstructionSources      []string      `json:"instructionSources"`
	ApprovalPolicy          Approval      `json:"approvalPolicy"`
	ApprovalsReviewer       string        `json:"approvalsReviewer"`
	Sandbox                 SandboxPolicy `json:"sandbox"`
	ActivePermissionProfile *Profile      `json:"activePermissionProfile"`
	MultiAgentMode          string        `json:"multiAgentMode"`
	ReasoningEffort         *string       `json:"reasoningEffort"`
	// Heddle is for clients with capabilities.heddle.
	Heddle *Place `json:"heddle,omitempty"`
}

// Place is what clients with capabilities.heddle are told of an opened thread.
type Place struct {
	// Seq is where in the thread's log the answer stands: everything up to it is
	// in it, and the notifications that follow begin after it. For clients that
	// asked for sequence numbers.
	Seq uint64 `json:"seq,omitempty"`
	// SandboxReport is missing before the thread's first sandbox was made; the
	// notification thread/sandbox/reported brings it.
	SandboxReport *SandboxReport `json:"sandboxReport,omitempty"`
}

// Resumed is the answer of thread/resume.
type Resumed struct {
	Opened
	CollaborationMode    any        `json:"collaborationMode"`
	InitialTurnsPage     *TurnsPage `json:"initialTurnsPage"`
	TurnsBackwardsCursor *string    `json:"turnsBackwardsCursor"`
	ItemsBackwardsCursor *string    `json:"itemsBackwardsCursor"`
}

// TurnsPage is one page of turns.
type TurnsPage struct {
	Data            []Turn  `json:"data"`
	NextCursor      *string `json:"nextCursor"`
	BackwardsCursor *string `json:"backwardsCursor"`
}

// FromOpened makes the common part of the three answers.
func FromOpened(t *heddlev1.Thread, wire Thread) Opened {
	s := t.GetSettings()
	sources := t.GetInstructionSources()
	if sources == nil {
		sources = []string{}
	}
	return Opened{
		Thread: wire, Model: s.GetModel(), ModelProvider: s.GetModelProvider(), ServiceTier: opt(s.GetServiceTier()),
		DisabledPluginIDs: []string{}, Cwd: s.GetCwd(), RuntimeWorkspaceRoots: workspaceRoots(s), InstructionSources: sources,
		ActivePermissionProfile: FromProfile(s.GetSandbox()), MultiAgentMode: multiAgentMode,
		ApprovalPolicy: FromApproval(s), ApprovalsReviewer: reviewerOf(s), Sandbox: FromSandbox(s.GetSandbox()), ReasoningEffort: opt(s.GetReasoningEffort()),
	}
}
