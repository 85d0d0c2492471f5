package protocol

import "encoding/json"

// ClientInfo names a client.
type ClientInfo struct {
	Name    string  `wire:"name"`
	Title   *string `wire:"title,opt"`
	Version string  `wire:"version"`
}

// Capabilities are what a client asks for.
type Capabilities struct {
	ExperimentalAPI bool             `wire:"experimentalApi,default"`
	OptOut          []string         `wire:"optOutNotificationMethods,opt"`
	Extensions      *json.RawMessage `wire:"extensions,opt"`
	Heddle          *json.RawMessage `wire:"heddle,opt"`
}

// InitializeParams open a connection.
type InitializeParams struct {
	ClientInfo   ClientInfo    `wire:"clientInfo"`
	Capabilities *Capabilities `wire:"capabilities,opt"`
}

// ThreadStartParams start a thread.
type ThreadStartParams struct {
	Model                 *string            `wire:"model,opt"`
	AllowFallback         bool               `wire:"allowProviderModelFallback,default,exp"`
	ModelProvider         *string            `wire:"modelProvider,opt"`
	ServiceTier           Nullable           `wire:"serviceTier,default"`
	Cwd                   *string            `wire:"cwd,opt"`
	RuntimeWorkspaceRoots []AbsPath          `wire:"runtimeWorkspaceRoots,opt,exp"`
	ApprovalPolicy        *Approval          `wire:"approvalPolicy,opt"`
	ApprovalsReviewer     *Reviewer          `wire:"approvalsReviewer,opt"`
	Sandbox               *SandboxMode       `wire:"sandbox,opt"`
	Permissions           *string            `wire:"permissions,opt,exp"`
	Config                *Object            `wire:"config,opt"`
	ServiceName           *string            `wire:"serviceName,opt"`
	BaseInstructions      *string            `wire:"baseInstructions,opt"`
	DeveloperInstructions *string            `wire:"developerInstructions,opt"`
	Personality           *Personality       `wire:"personality,opt"`
	MultiAgentMode        *MultiAgentMode    `wire:"multiAgentMode,opt,exp"`
	DaybreakEnabled       *bool              `wire:"daybreakEnabled,opt,exp"`
	Ephemeral             *bool              `wire:"ephemeral,opt"`
	HistoryMode           *HistoryMode       `wire:"historyMode,opt,exp"`
	SessionStartSource    *StartSource       `wire:"sessionStartSource,opt"`
	ThreadSource          *string            `wire:"threadSource,opt"`
	ProjectID             *string            `wire:"projectId,opt,exp"`
	Environments          *[]TurnEnvironment `wire:"environments,opt,exp"`
	DynamicTools          *[]DynamicTool     `wire:"dynamicTools,opt,exp"`
	CapabilityRoots       []CapabilityRoot   `wire:"selectedCapabilityRoots,opt,exp"`
	MockExperimental      *string            `wire:"mockExperimentalField,opt,exp"`
	RawEvents             bool               `wire:"experimentalRawEvents,default,exp"`
}

// TurnsPageParams ask for turns with the answer of thread/resume.
type TurnsPageParams struct {
	Limit         *uint32        `wire:"limit,opt"`
	SortDirection *SortDirection `wire:"sortDirection,opt"`
	ItemsView     *ItemsView     `wire:"itemsView,opt"`
}

// ThreadResumeParams load or join a thread.
type ThreadResumeParams struct {
	ThreadID              string            `wire:"threadId"`
	History               []json.RawMessage `wire:"history,opt,exp"`
	Path                  *Path             `wire:"path,opt,exp"`
	Model                 *string           `wire:"model,opt"`
	ModelProvider         *string           `wire:"modelProvider,opt"`
	ServiceTier           Nullable          `wire:"serviceTier,default"`
	Cwd                   *string           `wire:"cwd,opt"`
	RuntimeWorkspaceRoots []AbsPath         `wire:"runtimeWorkspaceRoots,opt,exp"`
	ApprovalPolicy        *Approval         `wire:"approvalPolicy,opt"`
	ApprovalsReviewer     *Reviewer         `wire:"approvalsReviewer,opt"`
	Sandbox               *SandboxMode      `wire:"sandbox,opt"`
	Permissions           *string           `wire:"permissions,opt,exp"`
	Config                *Object           `wire:"config,opt"`
	BaseInstructions      *string           `wire:"baseInstructions,opt"`
	DeveloperInstructions *string           `wire:"developerInstructions,opt"`
	Personality           *Personality      `wire:"personality,opt"`
	ExcludeTurns          bool              `wire:"excludeTurns,default"`
	InitialTurnsPage      *TurnsPageParams  `wire:"initialTurnsPage,opt,exp"`
}

// ThreadForkParams copy a thread's history into a new one.
type ThreadForkParams struct {
	ThreadID              string       `wire:"threadId"`
	LastTurnID            *string      `wire:"lastTurnId,opt"`
	BeforeTurnID          *string      `wire:"beforeTurnId,opt,exp"`
	Path                  *Path        `wire:"path,opt,exp"`
	Model                 *string      `wire:"model,opt"`
	ModelProvider         *string      `wire:"modelProvider,opt"`
	ServiceTier           Nullable     `wire:"serviceTier,default"`
	Cwd                   *string      `wire:"cwd,opt"`
	RuntimeWorkspaceRoots []AbsPath    `wire:"runtimeWorkspaceRoots,opt,exp"`
	ApprovalPolicy        *Approval    `wire:"approvalPolicy,opt"`
	ApprovalsReviewer     *Reviewer    `wire:"approvalsReviewer,opt"`
	Sandbox               *SandboxMode `wire:"sandbox,opt"`
	Permissions           *string      `wire:"permissions,opt,exp"`
	Config                *Object      `wire:"config,opt"`
	BaseInstructions      *string      `wire:"baseInstructions,opt"`
	DeveloperInstructions *string      `wire:"developerInstructions,opt"`
	Ephemeral             bool         `wire:"ephemeral,default"`
	ThreadSource          *string      `wire:"threadSource,opt"`
	ExcludeTurns          bool         `wire:"excludeTurns,default"`
	AttachToSource        bool         `wire:"attachToSource,default,exp"`
	DeferGoal             bool         `wire:"deferGoalContinuation,default,exp"`
	PredictionMCP         bool         `wire:"experimentalDisablePredictionMcp,default,exp"`
	PredictionMode        bool         `wire:"experimentalPredictionMode,default,exp"`
}

// ThreadParams name a thread.
type ThreadParams struct {
	ThreadID string `wire:"threadId"`
}

// ApproveDeniedParams allow what the approval reviewer denied.
type ApproveDeniedParams struct {
	ThreadID string          `wire:"threadId"`
	Event    json.RawMessage `wire:"event"`
}

// ThreadReadParams read a thread.
type ThreadReadParams struct {
	ThreadID     string `wire:"threadId"`
	IncludeTurns bool   `wire:"includeTurns,default"`
}

// ThreadSetNameParams name a thread.
type ThreadSetNameParams struct {
	ThreadID string `wire:"threadId"`
	Name     string `wire:"name"`
}

// PageParams ask for a page of a list.
type PageParams struct {
	Cursor *string `wire:"cursor,opt"`
	Limit  *uint32 `wire:"limit,opt"`
}

// ThreadListParams filter and page thread/list.
type ThreadListParams struct {
	Cursor            *string        `wire:"cursor,opt"`
	Limit             *uint32        `wire:"limit,opt"`
	SortKey           *ThreadSortKey `wire:"sortKey,opt"`
	SortDirection     *SortDirection `wire:"sortDirection,opt"`
	ModelProviders    []string       `wire:"modelProviders,opt"`
	SourceKinds       []SourceKind   `wire:"sourceKinds,opt"`
	Originators       []string       `wire:"originators,opt"`
	Archived          *bool          `wire:"archived,opt"`
	Cwd               *CwdFilter     `wire:"cwd,opt"`
	SearchTerm        *string        `wire:"searchTerm,opt"`
	SectionID         Nullable       `wire:"sectionId,default"`
	IncludedThreadIDs *[]string      `wire:"includedThreadIds,opt"`
	ExcludedThreadIDs []string       `wire:"excludedThreadIds,opt"`
	StateDBOnly       bool           `wire:"useStateDbOnly,default"`
	CurrentAccount    bool           `wire:"currentAccountOnly,default"`
	ParentThreadID    *string        `wire:"parentThreadId,opt,exp"`
	AncestorThreadID  *string        `wire:"ancestorThreadId,opt,exp"`
	AttachedTo        *string        `wire:"attachedToThreadId,opt,exp"`
	IncludeAttached   bool           `wire:"includeAttachedThreads,default,exp"`
	ProjectID         Nullable       `wire:"projectId,default,exp"`
}

// TurnsListParams page a thread's turns.
type TurnsListParams struct {
	ThreadID      string         `wire:"threadId"`
	Cursor        *string        `wire:"cursor,opt"`
	Limit         *uint32        `wire:"limit,opt"`
	SortDirection *SortDirection `wire:"sortDirection,opt"`
	ItemsView     *ItemsView     `wire:"itemsView,opt"`
}

// ItemsListParams page a thread's items.
type ItemsListParams struct {
	ThreadID      string          `wire:"threadId"`
	TurnID        *string         `wire:"turnId,opt"`
	Cursor        *ItemsCursor    `wire:"cursor,opt"`
	Limit         *uint32         `wire:"limit,opt"`
	SortDirection *SortDirection  `wire:"sortDirection,opt"`
	DeferOutput   *OutputDeferral `wire:"deferOutput,opt"`
}

// TerminalParams name a background terminal.
type TerminalParams struct {
	ThreadID  string `wire:"threadId"`
	ProcessID string `wire:"processId"`
}

// SettingsUpdateParams change a thread's settings.
type SettingsUpdateParams struct {
	ThreadID          string             `wire:"threadId"`
	Cwd               *Path              `wire:"cwd,opt"`
	ApprovalPolicy    *Approval          `wire:"approvalPolicy,opt"`
	ApprovalsReviewer *Reviewer          `wire:"approvalsReviewer,opt"`
	SandboxPolicy     *SandboxPolicy     `wire:"sandboxPolicy,opt"`
	Permissions       *string            `wire:"permissions,opt"`
	Model             *string            `wire:"model,opt"`
	ServiceTier       Nullable           `wire:"serviceTier,default"`
	Effort            *Effort            `wire:"effort,opt"`
	Summary           *Summary           `wire:"summary,opt"`
	CollaborationMode *CollaborationMode `wire:"collaborationMode,opt"`
	Personality       *Personality       `wire:"personality,opt"`
	MultiAgentMode    *MultiAgentMode    `wire:"multiAgentMode,opt"`
	DisabledPluginIDs []string           `wire:"disabledPluginIds,opt"`
	Environments      *[]TurnEnvironment `wire:"environments,opt"`
}

// TurnStartParams start a turn.
type TurnStartParams struct {
	ThreadID              string             `wire:"threadId"`
	ClientUserMessageID   *string            `wire:"clientUserMessageId,opt"`
	Input                 []UserInput        `wire:"input"`
	ClientMetadata        *Object            `wire:"responsesapiClientMetadata,opt,exp"`
	ClientMetadataPatch   *Object            `wire:"responsesapiClientMetadataPatch,opt,exp"`
	AdditionalContext     *Object            `wire:"additionalContext,opt,exp"`
	Environments          *[]TurnEnvironment `wire:"environments,opt,exp"`
	Cwd                   *Path              `wire:"cwd,opt"`
	RuntimeWorkspaceRoots []AbsPath          `wire:"runtimeWorkspaceRoots,opt,exp"`
	ApprovalPolicy        *Approval          `wire:"approvalPolicy,opt"`
	ApprovalsReviewer     *Reviewer          `wire:"approvalsReviewer,opt"`
	SandboxPolicy         *SandboxPolicy     `wire:"sandboxPolicy,opt"`
	Permissions           *string            `wire:"permissions,opt,exp"`
	Model                 *string            `wire:"model,opt"`
	ServiceTier           Nullable           `wire:"serviceTier,default"`
	ServiceTierForTurn    *string            `wire:"serviceTierForTurn,opt"`
	Effort                *Effort            `wire:"effort,opt"`
	Summary               *Summary           `wire:"summary,opt"`
	Personality           *Personality       `wire:"personality,opt"`
	OutputSchema          *json.RawMessage   `wire:"outputSchema,opt"`
	CollaborationMode     *CollaborationMode `wire:"collaborationMode,opt,exp"`
	MultiAgentMode        *MultiAgentMode    `wire:"multiAgentMode,opt,exp"`
	CyberAccessProgram    *CyberAccess       `wire:"cyberAccessProgram,opt,exp"`
	DisabledPluginIDs     []string           `wire:"disabledPluginIds,opt"`
	RootTurnID            *string            `wire:"rootTurnId,opt"`
	ParentTurnID          *string            `wire:"parentTurnId,opt"`
	TurnTrigger           *string            `wire:"turnTrigger,opt"`
	ToolOutput            *json.RawMessage   `wire:"toolOutput,opt"`
}

// TurnEnvironment selects a place where the commands of a thread run.
type TurnEnvironment struct {
	ID    string   `wire:"environmentId"`
	Cwd   string   `wire:"cwd"`
	Roots []string `wire:"runtimeWorkspaceRoots,opt"`
}

// TurnSteerParams add input to the running turn.
type TurnSteerParams struct {
	ThreadID            string      `wire:"threadId"`
	ClientUserMessageID *string     `wire:"clientUserMessageId,opt"`
	Input               []UserInput `wire:"input"`
	ClientMetadata      *Object     `wire:"responsesapiClientMetadata,opt,exp"`
	ClientMetadataPatch *Object     `wire:"responsesapiClientMetadataPatch,opt,exp"`
	AdditionalContext   *Object     `wire:"additionalContext,opt,exp"`
	ExpectedTurnID      string      `wire:"expectedTurnId"`
}

// TurnInterruptParams end the running turn.
type TurnInterruptParams struct {
	ThreadID string `wire:"threadId"`
	TurnID   string `wire:"turnId"`
}

// TerminalSize is the size of a terminal in character cells.
type TerminalSize struct {
	Rows uint16 `wire:"rows"`
	Cols uint16 `wire:"cols"`
}

// ExecParams run one command.
type ExecParams struct {
	Command           []string           `wire:"command"`
	ProcessID         *string            `wire:"processId,opt"`
	TTY               bool               `wire:"tty,default"`
	StreamStdin       bool               `wire:"streamStdin,default"`
	StreamOutput      bool               `wire:"streamStdoutStderr,default"`
	OutputBytesCap    *uint64            `wire:"outputBytesCap,opt"`
	DisableOutputCap  bool               `wire:"disableOutputCap,default"`
	DisableTimeout    bool               `wire:"disableTimeout,default"`
	TimeoutMs         *int64             `wire:"timeoutMs,opt"`
	Cwd               *Path              `wire:"cwd,opt"`
	Env               map[string]*string `wire:"env,opt"`
	Size              *TerminalSize      `wire:"size,opt"`
	SandboxPolicy     *SandboxPolicy     `wire:"sandboxPolicy,opt"`
	PermissionProfile *string            `wire:"permissionProfile,opt,exp"`
}

// ExecWriteParams write to a command's stdin.
type ExecWriteParams struct {
	ProcessID   string  `wire:"processId"`
	DeltaBase64 *string `wire:"deltaBase64,opt"`
	CloseStdin  bool    `wire:"closeStdin,default"`
}

// ExecResizeParams resize a command's terminal.
type ExecResizeParams struct {
	ProcessID string       `wire:"processId"`
	Size      TerminalSize `wire:"size"`
}

// ExecTerminateParams end a command.
type ExecTerminateParams struct {
	ProcessID string `wire:"processId"`
}

// ModelListParams page the catalogue of models.
type ModelListParams struct {
	Cursor        *string `wire:"cursor,opt"`
	Limit         *uint32 `wire:"limit,opt"`
	IncludeHidden *bool   `wire:"includeHidden,opt"`
	ModelProvider *string `wire:"modelProvider,opt"`
}

// ConfigReadParams read the effective config.
type ConfigReadParams struct {
	Cwd           *string `wire:"cwd,opt"`
	IncludeLayers bool    `wire:"includeLayers,default"`
}

// CwdsParams name folders.
type CwdsParams struct {
	Cwds        []Path  `wire:"cwds,default"`
	ForceReload bool    `wire:"forceReload,default"`
	Thread      *string `wire:"threadId,opt"`
}

// TerminalsParams page the background terminals of a thread.
type TerminalsParams struct {
	ThreadID string  `wire:"threadId"`
	Cursor   *string `wire:"cursor,opt"`
	Limit    *uint32 `wire:"limit,opt"`
}

// ProfilesParams page the permission profiles.
type ProfilesParams struct {
	Cursor *string `wire:"cursor,opt"`
	Limit  *uint32 `wire:"limit,opt"`
	Cwd    *string `wire:"cwd,opt"`
}

// AppsParams list apps.
type AppsParams struct {
	Cursor *string `wire:"cursor,opt"`
	Limit  *uint32 `wire:"limit,opt"`
	Thread *string `wire:"threadId,opt"`
	Fetch  bool    `wire:"forceRefetch,default"`
}

// AppsInstalledParams list the apps that are installed.
type AppsInstalledParams struct {
	Thread  *string `wire:"threadId,opt"`
	Refresh bool    `wire:"forceRefresh,default"`
}

// PluginsInstalledParams list the plugins that are installed.
type PluginsInstalledParams struct {
	Cwds    []AbsPath `wire:"cwds,opt"`
	Suggest []string  `wire:"installSuggestionPluginNames,opt"`
}

// PluginListParams list the plugins that could be installed.
type PluginListParams struct {
	Cwds         []AbsPath         `wire:"cwds,opt"`
	ForceRefetch bool              `wire:"forceRefetch,default"`
	Kinds        []MarketplaceKind `wire:"marketplaceKinds,opt"`
}

// MarketplaceKind is where plugins come from.
type MarketplaceKind string

// Variants implements the enumeration.
func (MarketplaceKind) Variants() []string {
	return []string{"local", "vertical", "workspace-directory", "shared-with-me", "created-by-me-remote"}
}

// AccountSessionsParams list the accounts that are signed in.
type AccountSessionsParams struct {
	Refresh bool `wire:"refreshWorkspaceMetadata,default"`
}

// RateLimitsParams read the limits of an account.
type RateLimitsParams struct {
	ExcludeCredits bool `wire:"excludeResetCreditDetails,default"`
	LunaReserve    bool `wire:"supportsLunaReserve,default"`
}

// NoParams are those of a method whose structure has no members.
type NoParams struct{}

// AccountReadParams read the account.
type AccountReadParams struct {
	RefreshToken bool `wire:"refreshToken,default"`
}
