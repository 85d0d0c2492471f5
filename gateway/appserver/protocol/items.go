package protocol

import (
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// ItemOptions say for whom an item's wire form is made.
type ItemOptions struct {
	// Extended adds members that the v2 protocol does not have.
	Extended bool
	// DeferOutput leaves the output of commands out.
	DeferOutput bool
}

// itemBase holds the members that every item has.
type itemBase struct {
	Type          string `json:"type"`
	ID            string `json:"id"`
	StartedAtMs   *int64 `json:"startedAtMs"`
	CompletedAtMs *int64 `json:"completedAtMs"`
}

type textItem struct {
	itemBase
	Text string `json:"text"`
}

type userItem struct {
	itemBase
	ClientID *string `json:"clientId"`
	Content  []any   `json:"content"`
}

type agentItem struct {
	itemBase
	Text           string  `json:"text"`
	Phase          *string `json:"phase"`
	Moderation     *string `json:"moderation"`
	MemoryCitation *string `json:"memoryCitation"`
	Delivery       *string `json:"delivery"`
	Questions      []any   `json:"questions"`
}

type reasoningItem struct {
	itemBase
	Summary []string `json:"summary"`
	Content []string `json:"content"`
}

type commandItem struct {
	itemBase
	Command          string  `json:"command"`
	Cwd              string  `json:"cwd"`
	ProcessID        *string `json:"processId"`
	Source           string  `json:"source"`
	Status           string  `json:"status"`
	CommandActions   []any   `json:"commandActions"`
	AggregatedOutput *string `json:"aggregatedOutput"`
	ExitCode         *int32  `json:"exitCode"`
	DurationMs       *int64  `json:"durationMs"`
	PluginID         *string `json:"pluginId"`
	ScriptPath       *string `json:"scriptPath"`
	Heddle           any     `json:"heddle,omitempty"`
}

type fileItem struct {
	itemBase
	Changes []FileUpdate `json:"changes"`
	Status  string       `json:"status"`
	Heddle  any          `json:"heddle,omitempty"`
}

// FileUpdate is one changed file.
type FileUpdate struct {
	Path string `json:"path"`
	Kind any    `json:"kind"`
	Diff string `json:"diff"`
}

type mcpItem struct {
	itemBase
	Server            string  `json:"server"`
	Tool              string  `json:"tool"`
	Status            string  `json:"status"`
	Arguments         any     `json:"arguments"`
	Result            any     `json:"result"`
	Error             any     `json:"error"`
	DurationMs        *int64  `json:"durationMs"`
	ReadOnlyHint      *bool   `json:"readOnlyHint"`
	PluginID          *string `json:"pluginId"`
	AppContext        *string `json:"appContext"`
	MCPAppResourceURI *string `json:"mcpAppResourceUri"`
}

type dynamicItem struct {
	itemBase
	Namespace    *string `json:"namespace"`
	Tool         string  `json:"tool"`
	Arguments    any     `json:"arguments"`
	Status       string  `json:"status"`
	ContentItems any     `json:"contentItems"`
	Success      *bool   `json:"success"`
	DurationMs   *int64  `json:"durationMs"`
}

type pathItem struct {
	itemBase
	Path string `json:"path"`
}

type searchItem struct {
	itemBase
	Query   string `json:"query"`
	Action  any    `json:"action"`
	Results any    `json:"results"`
}

type hookPromptItem struct {
	itemBase
	Fragments []hookFragment `json:"fragments"`
}

type hookFragment struct {
	Text      string `json:"text"`
	HookRunID string `json:"hookRunId"`
}

type reviewItem struct {
	itemBase
	Review string `json:"review"`
}

// FromItem makes the wire form of an item.
func FromItem(it *heddlev1.Item, o ItemOptions) any {
	base := func(kind string) itemBase {
		return itemBase{Type: kind, ID: it.GetId(), StartedAtMs: optInt(it.GetStartedAtMs()), CompletedAtMs: optInt(it.GetCompletedAtMs())}
	}
	switch c := it.GetContent().(type) {
	case *heddlev1.Item_UserMessage:
		return userItem{base("userMessage"), opt(c.UserMessage.GetClientId()), fromInput(c.UserMessage.GetParts())}
	case *heddlev1.Item_AgentMessage:
		return agentItem{itemBase: base("agentMessage"), Text: Clip(c.AgentMessage.GetText()), Phase: phaseOf(c.AgentMessage.GetPhase())}
	case *heddlev1.Item_Reasoning:
		return reasoningItem{base("reasoning"), clipAll(c.Reasoning.GetSummary()), clipAll(c.Reasoning.GetContent())}
	case *heddlev1.Item_CommandExecution:
		return fromCommand(it, c.CommandExecution, base("commandExecution"), o)
	case *heddlev1.Item_FileChange:
		return fromFileChange(it, c.FileChange, base("fileChange"), o)
	case *heddlev1.Item_Plan:
		return textItem{base("plan"), Clip(c.Plan.GetText())}
	case *heddlev1.Item_McpToolCall:
		return fromMCP(it, c.McpToolCall, base("mcpToolCall"))
	case *heddlev1.Item_DynamicToolCall:
		return fromDynamic(it, c.DynamicToolCall, base("dynamicToolCall"))
	case *heddlev1.Item_AgentCall:
		return fromAgentCall(it, c.AgentCall, base("collabAgentToolCall"))
	case *heddlev1.Item_ImageView:
		return pathItem{base("imageView"), c.ImageView.GetPath()}
	case *heddlev1.Item_ContextCompaction:
		return base("contextCompaction")
	case *heddlev1.Item_WebSearch:
		s := searchItem{itemBase: base("webSearch"), Query: c.WebSearch.GetQuery()}
		if a := c.WebSearch.GetAction(); a != nil {
			s.Action = searchAction(a.AsMap())
		}
		return s
	case *heddlev1.Item_HookPrompt:
		p := hookPromptItem{itemBase: base("hookPrompt"), Fragments: []hookFragment{}}
		for _, f := range c.HookPrompt.GetFragments() {
			p.Fragments = append(p.Fragments, hookFragment{Clip(f.GetText()), f.GetHookRunId()})
		}
		return p
	case *heddlev1.Item_ReviewMode:
		kind := "exitedReviewMode"
		if c.ReviewMode.GetEntered() {
			kind = "enteredReviewMode"
		}
		return reviewItem{base(kind), Clip(c.ReviewMode.GetReview())}
	}
	// An item of a newer version: shown as an empty message rather than lost.
	return agentItem{itemBase: base("agentMessage")}
}

func phaseOf(p string) *string {
	switch p {
	case "commentary", "partial_answer", "final_answer":
		return &p
	}
	return nil
}

func clipAll(in []string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = Clip(s)
	}
	return out
}

func itemStatus(s heddlev1.ItemStatus) string {
	switch s {
	case heddlev1.ItemStatus_ITEM_STATUS_COMPLETED:
		return "completed"
	case heddlev1.ItemStatus_ITEM_STATUS_FAILED:
		return "failed"
	case heddlev1.ItemStatus_ITEM_STATUS_DECLINED:
		return "declined"
	}
	return "inProgress"
}

// searchAction is an action on the web as clients know it: with their names, and
// with the members that the model's service left out.
func searchAction(action map[string]any) map[string]any {
	var members []string
	switch action["type"] {
	case "search":
		members = []string{"query", "queries"}
	case "open_page":
		action["type"], members = "openPage", []string{"url"}
	case "find_in_page":
		action["type"], members = "findInPage", []string{"url", "pattern"}
	default:
		return map[string]any{"type": "other"}
	}
	for _, name := range members {
		if _, given := action[name]; !given {
			action[name] = nil
		}
	}
	return action
}

// FromActions makes the wire form of what a command does.
func FromActions(actions []*heddlev1.CommandAction) []any {
	out := make([]any, 0, len(actions))
	for _, a := range actions {
		m := map[string]any{"type": a.GetKind(), "command": a.GetCommand()}
		switch a.GetKind() {
		case "read":
			m["name"], m["path"] = a.GetName(), a.GetPath()
		case "listFiles":
			m["path"] = opt(a.GetPath())
		case "search":
			m["path"], m["query"] = opt(a.GetPath()), opt(a.GetQuery())
		default:
			m["type"] = "unknown"
		}
		out = append(out, m)
	}
	return out
}

func fromCommand(it *heddlev1.Item, c *heddlev1.CommandExecution, base itemBase, o ItemOptions) any {
	out := commandItem{
		itemBase: base, Command: Clip(c.GetCommand()), Cwd: c.GetCwd(), ProcessID: opt(c.GetProcessId()), Source: c.GetSource(),
		Status: itemStatus(it.GetStatus()), CommandActions: FromActions(c.GetActions()), ExitCode: c.ExitCode,
	}
	if out.Source == "" {
		out.Source = "agent"
	}
	// What was declined never ran.
	if it.GetCompletedAtMs() != 0 && it.GetStatus() != heddlev1.ItemStatus_ITEM_STATUS_DECLINED {
		d := c.GetDurationMs()
		out.DurationMs = &d
	}
	text := strings.ToValidUTF8(string(c.GetAggregatedOutput()), "\uFFFD")
	if e := c.GetError(); e != nil {
		text += errorLine(text, e)
	}
	if !o.DeferOutput {
		out.AggregatedOutput = opt(Clip(text))
	}
	if o.Extended {
		out.Heddle = extendedCommand(c)
	}
	return out
}

func extendedCommand(c *heddlev1.CommandExecution) any {
	m := map[string]any{"outputBytes": c.GetOutputBytes(), "droppedBytes": c.GetDroppedBytes()}
	if e := c.GetError(); e != nil {
		m["error"] = map[string]any{"code": e.GetCode(), "message": e.GetMessage(), "fix": opt(e.GetFix())}
	}
	if v := c.GetVerdict(); v != nil {
		violations := make([]any, 0, len(v.GetViolations()))
		for _, p := range v.GetViolations() {
			violations = append(violations, map[string]any{"path": p.GetPath(), "what": p.GetWhat()})
		}
		m["verdict"] = map[string]any{
			"signal": v.GetSignal(), "timedOut": v.GetTimedOut(), "oomKilled": v.GetOomKilled(),
			"pidsHit": v.GetPidsHit(), "sandboxLost": v.GetSandboxLost(), "diskLow": v.GetDiskLow(),
			"violations": violations,
		}
	}
	return m
}

// errorLine puts a typed error behind the output, on a line of its own.
func errorLine(before string, e *heddlev1.ActionError) string {
	line := e.GetMessage()
	if e.GetFix() != "" {
		line += " (" + e.GetFix() + ")"
	}
	if before != "" && !strings.HasSuffix(before, "\n") {
		line = "\n" + line
	}
	return line
}

// FromUpdates makes the wire form of a patch's files.
func FromUpdates(in []*heddlev1.FileUpdate) []FileUpdate {
	out := make([]FileUpdate, 0, len(in))
	budget := MaxText
	for _, u := range in {
		f := FileUpdate{Path: u.GetPath(), Diff: ClipTo(u.GetDiff(), max(budget, 1<<10)), Kind: map[string]any{"type": u.GetKind()}}
		if u.GetKind() == "update" {
			f.Kind = map[string]any{"type": "update", "move_path": opt(u.GetMovePath())}
			if u.GetMovePath() != "" {
				f.Diff += "\n\nMoved to: " + u.GetMovePath()
			}
		}
		budget -= len(f.Diff)
		out = append(out, f)
	}
	return out
}

func fromFileChange(it *heddlev1.Item, c *heddlev1.FileChange, base itemBase, o ItemOptions) any {
	out := fileItem{itemBase: base, Changes: FromUpdates(c.GetChanges()), Status: itemStatus(it.GetStatus())}
	if e := c.GetError(); e != nil && o.Extended {
		out.Heddle = map[string]any{"error": map[string]any{"code": e.GetCode(), "message": e.GetMessage(), "fix": opt(e.GetFix())}}
	}
	return out
}

// callStatus is itemStatus for calls, which cannot be declined.
func callStatus(s heddlev1.ItemStatus) string {
	if s == heddlev1.ItemStatus_ITEM_STATUS_DECLINED {
		return "failed"
	}
	return itemStatus(s)
}

func fromMCP(it *heddlev1.Item, c *heddlev1.McpToolCall, base itemBase) any {
	out := mcpItem{itemBase: base, Server: c.GetServer(), Tool: c.GetTool(), Status: callStatus(it.GetStatus()), Arguments: c.GetArguments().AsInterface(), ReadOnlyHint: c.ReadOnlyHint}
	if r := c.GetResult(); r != nil {
		m := r.AsMap()
		if m["content"] == nil {
			m["content"] = []any{}
		}
		out.Result = map[string]any{"content": m["content"], "structuredContent": m["structuredContent"], "_meta": m["_meta"]}
	}
	if c.GetError() != "" {
		out.Error = map[string]string{"message": c.GetError()}
	}
	if it.GetCompletedAtMs() != 0 {
		d := c.GetDurationMs()
		out.DurationMs = &d
	}
	return out
}

func fromDynamic(it *heddlev1.Item, c *heddlev1.DynamicToolCall, base itemBase) any {
	out := dynamicItem{
		itemBase: base, Namespace: opt(c.GetNamespace()), Tool: c.GetTool(), Arguments: c.GetArguments().AsInterface(),
		Status: callStatus(it.GetStatus()), Success: c.Success,
	}
	if l := c.GetContentItems(); l != nil {
		out.ContentItems = l.AsSlice()
	}
	if it.GetCompletedAtMs() != 0 {
		d := c.GetDurationMs()
		out.DurationMs = &d
	}
	return out
}
