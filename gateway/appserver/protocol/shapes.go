package protocol

import (
	"encoding/json"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

// InitializeResult answers initialize.
type InitializeResult struct {
	UserAgent      string          `json:"userAgent"`
	CodexHome      string          `json:"codexHome"`
	PlatformFamily string          `json:"platformFamily"`
	PlatformOs     string          `json:"platformOs"`
	Heddle         *HeddleFeatures `json:"heddle,omitempty"`
}

// HeddleFeatures answers a client that asked for additions.
type HeddleFeatures struct {
	ProtocolVersion string   `json:"protocolVersion"`
	ServerVersion   string   `json:"serverVersion"`
	TestedWith      []string `json:"testedClientVersions"`
	Features        []string `json:"serverFeatures"`
}

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
	Environments         []string `json:"environments"`
	Extra                *string  `json:"extra"`
	Name                 *string  `json:"name"`
	Turns                []Turn   `json:"turns"`
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
	if g := t.GetGit(); g.GetSha() != "" {
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

// opt is null for an empty text.
func opt(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func optInt(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// TurnError is why a turn failed.
type TurnError struct {
	Message           string  `json:"message"`
	CodexErrorInfo    any     `json:"codexErrorInfo"`
	AdditionalDetails *string `json:"additionalDetails"`
	Misalignment      *string `json:"misalignment"`
}

// FromError makes the wire form of a turn's error, null for none.
func FromError(e *heddlev1.TurnError) *TurnError {
	if e == nil {
		return nil
	}
	return &TurnError{Message: Clip(e.GetMessage()), CodexErrorInfo: errorInfo(e), AdditionalDetails: opt(Clip(e.GetAdditionalDetails()))}
}

func errorInfo(e *heddlev1.TurnError) any {
	switch k := e.GetKind(); k {
	case "httpConnectionFailed", "responseStreamConnectionFailed", "responseStreamDisconnected", "responseTooManyFailedAttempts":
		var status *int32
		if e.HttpStatus != nil {
			status = e.HttpStatus
		}
		return map[string]any{k: map[string]any{"httpStatusCode": status}}
	case "contextWindowExceeded", "sessionBudgetExceeded", "usageLimitExceeded", "rateLimitExceeded", "serverOverloaded",
		"modelNotFound", "internalServerError", "unauthorized", "badRequest", "sandboxError":
		return k
	}
	return "other"
}

// Turn is the wire form of a turn.
type Turn struct {
	ID          string     `json:"id"`
	RootTurnID  string     `json:"rootTurnId"`
	Items       []any      `json:"items"`
	ItemsView   ItemsView  `json:"itemsView"`
	Status      string     `json:"status"`
	Error       *TurnError `json:"error"`
	StartedAt   *int64     `json:"startedAt"`
	CompletedAt *int64     `json:"completedAt"`
	DurationMs  *int64     `json:"durationMs"`
}

// FromTurn makes the wire form of a turn without items.
func FromTurn(t *heddlev1.Turn) Turn {
	out := Turn{
		ID: t.GetId(), RootTurnID: t.GetRootTurnId(), Items: []any{}, ItemsView: ViewNotLoaded,
		Status: turnStatus(t.GetStatus()), Error: FromError(t.GetError()),
		StartedAt: optInt(t.GetStartedAtMs() / 1000), CompletedAt: optInt(t.GetCompletedAtMs() / 1000),
	}
	if out.RootTurnID == "" {
		out.RootTurnID = out.ID
	}
	if t.GetCompletedAtMs() != 0 {
		d := t.GetDurationMs()
		out.DurationMs = &d
	}
	return out
}

func turnStatus(s heddlev1.TurnStatus) string {
	switch s {
	case heddlev1.TurnStatus_TURN_STATUS_COMPLETED:
		return "completed"
	case heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED:
		return "interrupted"
	case heddlev1.TurnStatus_TURN_STATUS_FAILED:
		return "failed"
	}
	return "inProgress"
}

// FromTurnWithItems makes the wire form of a listed turn.
func FromTurnWithItems(t *heddlev1.TurnWithItems, view ItemsView, o ItemOptions) Turn {
	out := FromTurn(t.GetTurn())
	out.ItemsView = view
	for _, it := range t.GetItems() {
		out.Items = append(out.Items, FromItem(it, o))
	}
	return out
}

// FromSandbox makes the tagged form of a policy.
func FromSandbox(p *heddlev1.SandboxPolicy) SandboxPolicy {
	// A proxied network is access; which hosts can be reached is not in this shape.
	out := SandboxPolicy{NetworkAccess: p.GetNetwork() == heddlev1.NetworkMode_NETWORK_MODE_FULL ||
		p.GetNetwork() == heddlev1.NetworkMode_NETWORK_MODE_PROXIED}
	switch p.GetLevel() {
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS:
		out.Type = "dangerFullAccess"
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL:
		out.Type = "externalSandbox"
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE:
		out.Type, out.WritableRoots = "workspaceWrite", p.GetWritableRoots()
		out.ExcludeSlashTmp, out.ExcludeTmpdirEnvVar = p.GetExcludeSlashTmp(), p.GetExcludeTmpdirEnvVar()
	default:
		out.Type = "readOnly"
	}
	return out
}

// ToSandbox reads the tagged form of a policy.
func ToSandbox(p *SandboxPolicy) *heddlev1.SandboxPolicy {
	if p == nil {
		return nil
	}
	out := &heddlev1.SandboxPolicy{Network: heddlev1.NetworkMode_NETWORK_MODE_OFF}
	if p.NetworkAccess {
		out.Network = heddlev1.NetworkMode_NETWORK_MODE_FULL
	}
	switch p.Type {
	case "dangerFullAccess":
		out.Level, out.Network = heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS, heddlev1.NetworkMode_NETWORK_MODE_FULL
	case "externalSandbox":
		out.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL
	case "workspaceWrite":
		out.Level, out.WritableRoots = heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, p.WritableRoots
		out.ExcludeSlashTmp, out.ExcludeTmpdirEnvVar = p.ExcludeSlashTmp, p.ExcludeTmpdirEnvVar
	default:
		out.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
	}
	return out
}

// LevelOf reads the short name of a policy; the rest of the policy is left to
// the config.
func LevelOf(m SandboxMode) heddlev1.SandboxLevel {
	switch m {
	case ModeReadOnly:
		return heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
	case ModeWorkspaceWrite:
		return heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE
	case ModeFullAccess:
		return heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
	}
	return heddlev1.SandboxLevel_SANDBOX_LEVEL_UNSPECIFIED
}

// FromApproval makes the wire form of an approval policy.
func FromApproval(s *heddlev1.ThreadSettings) Approval {
	a := Approval{Name: s.GetApprovalPolicy()}
	if a.Name == "" {
		a.Name = "on-request"
	}
	if a.Name == "granular" {
		a.Granular = s.GetGranularApproval().AsMap()
	}
	return a
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
	ActivePermissionProfile *string       `json:"activePermissionProfile"`
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
		DisabledPluginIDs: []string{}, Cwd: s.GetCwd(), RuntimeWorkspaceRoots: []string{s.GetCwd()}, InstructionSources: sources,
		ApprovalPolicy: FromApproval(s), ApprovalsReviewer: reviewerOf(s), Sandbox: FromSandbox(s.GetSandbox()), ReasoningEffort: opt(s.GetReasoningEffort()),
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

// Settings is the wire form of a thread's settings.
type Settings struct {
	Cwd                     string        `json:"cwd"`
	ApprovalPolicy          Approval      `json:"approvalPolicy"`
	ApprovalsReviewer       string        `json:"approvalsReviewer"`
	SandboxPolicy           SandboxPolicy `json:"sandboxPolicy"`
	ActivePermissionProfile *string       `json:"activePermissionProfile"`
	Model                   string        `json:"model"`
	ModelProvider           string        `json:"modelProvider"`
	ServiceTier             *string       `json:"serviceTier"`
	Effort                  *string       `json:"effort"`
	Summary                 *string       `json:"summary"`
	CollaborationMode       any           `json:"collaborationMode"`
	Personality             *string       `json:"personality"`
	DisabledPluginIDs       []string      `json:"disabledPluginIds"`
	Environments            []string      `json:"environments"`
}

// FromSettings makes the wire form of settings.
func FromSettings(s *heddlev1.ThreadSettings) Settings {
	return Settings{
		Cwd: s.GetCwd(), ApprovalPolicy: FromApproval(s), ApprovalsReviewer: reviewerOf(s), SandboxPolicy: FromSandbox(s.GetSandbox()),
		Model: s.GetModel(), ModelProvider: s.GetModelProvider(), ServiceTier: opt(s.GetServiceTier()), Effort: opt(s.GetReasoningEffort()),
		Summary: opt(s.GetReasoningSummary()), CollaborationMode: ModeOf(s), Personality: opt(s.GetPersonality()), DisabledPluginIDs: []string{},
	}
}

// TokenCounts is the wire form of a usage.
type TokenCounts struct {
	TotalTokens           int64 `json:"totalTokens"`
	InputTokens           int64 `json:"inputTokens"`
	CachedInputTokens     int64 `json:"cachedInputTokens"`
	CacheWriteInputTokens int64 `json:"cacheWriteInputTokens"`
	OutputTokens          int64 `json:"outputTokens"`
	ReasoningOutputTokens int64 `json:"reasoningOutputTokens"`
}

// TokenUsage is a thread's usage.
type TokenUsage struct {
	Total              TokenCounts `json:"total"`
	Last               TokenCounts `json:"last"`
	ModelContextWindow *int64      `json:"modelContextWindow"`
}

// FromUsage makes the wire form of a thread's usage.
func FromUsage(u *heddlev1.ThreadTokenUsage) TokenUsage {
	return TokenUsage{counts(u.GetTotal()), counts(u.GetLast()), optInt(u.GetModelContextWindow())}
}

func counts(u *heddlev1.TokenUsage) TokenCounts {
	return TokenCounts{u.GetTotalTokens(), u.GetInputTokens(), u.GetCachedInputTokens(), u.GetCacheWriteInputTokens(), u.GetOutputTokens(), u.GetReasoningOutputTokens()}
}

// RateLimits are the limits of an account; all null without one.
type RateLimits struct {
	LimitID              *string `json:"limitId"`
	LimitName            *string `json:"limitName"`
	Primary              *string `json:"primary"`
	Secondary            *string `json:"secondary"`
	Credits              *string `json:"credits"`
	PlanType             *string `json:"planType"`
	IndividualLimit      *string `json:"individualLimit"`
	NormalModelSlug      *string `json:"normalModelSlug"`
	RateLimitReachedType *string `json:"rateLimitReachedType"`
	SpendControlReached  *bool   `json:"spendControlReached"`
}

// ToStruct reads a JSON object, nil for anything else.
func ToStruct(raw *json.RawMessage) *structpb.Struct {
	if raw == nil {
		return nil
	}
	var m map[string]any
	if json.Unmarshal(*raw, &m) != nil {
		return nil
	}
	s, err := structpb.NewStruct(m)
	if err != nil {
		return nil
	}
	return s
}

// ToList reads a JSON list, nil for anything else.
func ToList(raw json.RawMessage) *structpb.ListValue {
	var parts []any
	if raw == nil || json.Unmarshal(raw, &parts) != nil {
		return nil
	}
	l, err := structpb.NewList(parts)
	if err != nil {
		return nil
	}
	return l
}
