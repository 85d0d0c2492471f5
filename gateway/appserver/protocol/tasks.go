package protocol

import (
	"encoding/json"
	"fmt"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

// GoalStatus is the state of a goal.
type GoalStatus string

// Variants implements the enumeration.
func (GoalStatus) Variants() []string {
	return []string{"active", "paused", "blocked", "usageLimited", "budgetLimited", "complete"}
}

// GoalOrigin says who changes a goal.
type GoalOrigin string

// Variants implements the enumeration.
func (GoalOrigin) Variants() []string { return []string{"user", "automatic"} }

// GoalSetParams set or change a goal.
type GoalSetParams struct {
	ThreadID    string      `wire:"threadId"`
	Objective   *string     `wire:"objective,opt"`
	Status      *GoalStatus `wire:"status,opt"`
	TokenBudget *int64      `wire:"tokenBudget,opt"`
	Origin      *GoalOrigin `wire:"origin,opt"`
}

// GoalClearParams clear a goal.
type GoalClearParams struct {
	ThreadID string      `wire:"threadId"`
	Origin   *GoalOrigin `wire:"origin,opt"`
}

// Goal is the wire form of a goal.
type Goal struct {
	ThreadID        string `json:"threadId"`
	Objective       string `json:"objective"`
	Status          string `json:"status"`
	TokenBudget     *int64 `json:"tokenBudget"`
	TokensUsed      int64  `json:"tokensUsed"`
	TimeUsedSeconds int64  `json:"timeUsedSeconds"`
	CreatedAt       int64  `json:"createdAt"`
	UpdatedAt       int64  `json:"updatedAt"`
}

// FromGoal makes the wire form of a goal, null for none.
func FromGoal(thread string, g *heddlev1.Goal) *Goal {
	if g == nil {
		return nil
	}
	return &Goal{
		ThreadID: thread, Objective: g.GetObjective(), Status: g.GetStatus(), TokenBudget: g.TokenBudget, TokensUsed: g.GetTokensUsed(),
		TimeUsedSeconds: g.GetTimeUsedMs() / 1000, CreatedAt: g.GetCreatedAtMs() / 1000, UpdatedAt: g.GetUpdatedAtMs() / 1000,
	}
}

// Delivery says where a review runs.
type Delivery string

// Variants implements the enumeration.
func (Delivery) Variants() []string { return []string{"inline"} }

// ReviewTarget is what is reviewed.
type ReviewTarget struct {
	Type         string
	Branch       string
	SHA          string
	Title        *string
	Instructions string
}

func (t *ReviewTarget) decodeWire(raw []byte) error {
	tag, err := tagOf(raw, "ReviewTarget", []string{"uncommittedChanges", "baseBranch", "commit", "custom"})
	if err != nil {
		return err
	}
	t.Type = tag
	switch tag {
	case "baseBranch":
		var f struct {
			Branch string `wire:"branch"`
		}
		_, err = Decode(raw, &f)
		t.Branch = f.Branch
	case "commit":
		var f struct {
			SHA   string  `wire:"sha"`
			Title *string `wire:"title,opt"`
		}
		_, err = Decode(raw, &f)
		t.SHA, t.Title = f.SHA, f.Title
	case "custom":
		var f struct {
			Instructions string `wire:"instructions"`
		}
		_, err = Decode(raw, &f)
		t.Instructions = f.Instructions
	}
	return err
}

// ReviewStartParams start a review.
type ReviewStartParams struct {
	ThreadID string       `wire:"threadId"`
	Target   ReviewTarget `wire:"target"`
	Delivery *Delivery    `wire:"delivery,opt"`
}

// ShellCommandParams run a command of the person.
type ShellCommandParams struct {
	ThreadID  string `wire:"threadId"`
	Command   string `wire:"command"`
	TimeoutMs *int64 `wire:"timeoutMs,opt"`
}

// InjectItemsParams add model items to a thread's history.
type InjectItemsParams struct {
	ThreadID string            `wire:"threadId"`
	Items    []json.RawMessage `wire:"items"`
}

// RevertParams take turns back.
type RevertParams struct {
	ThreadID     string `wire:"threadId"`
	BeforeTurnID string `wire:"beforeTurnId"`
}

// MetadataParams change what is recorded about a thread.
type MetadataParams struct {
	ThreadID  string           `wire:"threadId"`
	Git       *json.RawMessage `wire:"gitInfo,opt"`
	ProjectID *json.RawMessage `wire:"projectId,opt"`
	Daybreak  *bool            `wire:"daybreakEnabled,opt"`
}

// GitPatch reads a change of git facts: a member that is there and null clears.
func GitPatch(raw json.RawMessage) (*heddlev1.UpdateGitRequest, error) {
	if kindOf(raw) != '{' {
		return nil, wrongType(raw, "struct ThreadMetadataGitInfoUpdateParams")
	}
	out := &heddlev1.UpdateGitRequest{}
	err := members(raw, func(key string, value json.RawMessage) error {
		var to **string
		switch key {
		case "sha":
			to = &out.Sha
		case "branch":
			to = &out.Branch
		case "originUrl":
			to = &out.OriginUrl
		default:
			return nil
		}
		s := ""
		if kindOf(value) != 'n' {
			if kindOf(value) != '"' {
				return wrongType(value, "a string")
			}
			if err := json.Unmarshal(value, &s); err != nil {
				return err
			}
		}
		*to = &s
		return nil
	})
	return out, err
}

// ReadOperation marks a thread.
type ReadOperation struct{ Type string }

func (o *ReadOperation) decodeWire(raw []byte) (err error) {
	o.Type, err = tagOf(raw, "ThreadReadOperation", []string{"read", "unread"})
	return err
}

// ReadStateParams mark a thread as read or unread.
type ReadStateParams struct {
	ThreadID         string        `wire:"threadId"`
	Operation        ReadOperation `wire:"operation"`
	ExpectedRevision string        `wire:"expectedRevision"`
}

// FromReadState makes the wire form of how far a thread was read.
func FromReadState(s *heddlev1.ReadState) any {
	var first any
	switch {
	case s.GetFromStart():
		first = map[string]any{"type": "threadStart"}
	case s.GetFirstUnreadTurnId() != "":
		first = map[string]any{"type": "turn", "turnId": s.GetFirstUnreadTurnId()}
	}
	return map[string]any{"revision": fmt.Sprint(s.GetRevision()), "firstUnread": first}
}

// ItemsReadParams read items by id.
type ItemsReadParams struct {
	ThreadID string   `wire:"threadId"`
	TurnID   string   `wire:"turnId"`
	ItemIDs  []string `wire:"itemIds"`
}

// ThreadPageParams page something of a thread.
type ThreadPageParams struct {
	ThreadID string  `wire:"threadId"`
	Cursor   *string `wire:"cursor,opt"`
	Limit    *uint32 `wire:"limit,opt"`
}

// SearchParams find threads.
type SearchParams struct {
	SearchTerm      string         `wire:"searchTerm"`
	Cursor          *string        `wire:"cursor,opt"`
	Limit           *uint32        `wire:"limit,opt"`
	SortKey         *ThreadSortKey `wire:"sortKey,opt"`
	SortDirection   *SortDirection `wire:"sortDirection,opt"`
	SourceKinds     []SourceKind   `wire:"sourceKinds,opt"`
	Archived        *bool          `wire:"archived,opt"`
	CurrentAccount  bool           `wire:"currentAccountOnly,default"`
	IncludeAttached bool           `wire:"includeAttachedThreads,default"`
}

// OccurrencesParams find a text in a thread.
type OccurrencesParams struct {
	ThreadID   string  `wire:"threadId"`
	SearchTerm string  `wire:"searchTerm"`
	Cursor     *string `wire:"cursor,opt"`
	Limit      *uint32 `wire:"limit,opt"`
}

// FeatureListParams page the switches.
type FeatureListParams struct {
	Cursor *string `wire:"cursor,opt"`
	Limit  *uint32 `wire:"limit,opt"`
	Thread *string `wire:"threadId,opt"`
}

// SkillsConfigParams switch a skill.
type SkillsConfigParams struct {
	Name    *string  `wire:"name,opt"`
	Path    *AbsPath `wire:"path,opt"`
	Enabled bool     `wire:"enabled"`
}

// ToHistory reads one item of the Responses API as an entry of a history.
func ToHistory(raw json.RawMessage) (*heddlev1.HistoryEntry, error) {
	var item struct {
		Type      string          `json:"type"`
		Role      string          `json:"role"`
		ID        string          `json:"id"`
		Phase     string          `json:"phase"`
		Content   json.RawMessage `json:"content"`
		CallID    string          `json:"call_id"`
		Name      string          `json:"name"`
		Namespace string          `json:"namespace"`
		Arguments string          `json:"arguments"`
		Input     string          `json:"input"`
		Output    json.RawMessage `json:"output"`
		Encrypted string          `json:"encrypted_content"`
		Summary   json.RawMessage `json:"summary"`
	}
	if kindOf(raw) != '{' {
		return nil, wrongType(raw, "a Responses API item")
	}
	if err := json.Unmarshal(raw, &item); err != nil {
		return nil, fmt.Errorf("item: %w", err)
	}
	switch item.Type {
	case "", "message":
		switch item.Role {
		case "user", "developer", "assistant":
		case "system":
			item.Role = "developer"
		default:
			return nil, UnknownVariant(item.Role, []string{"user", "developer", "assistant", "system"})
		}
		parts, err := toParts(item.Content)
		if err != nil {
			return nil, err
		}
		return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{Role: item.Role, Parts: parts, Id: item.ID, Phase: item.Phase}}}, nil
	case "function_call", "custom_tool_call":
		if item.CallID == "" || item.Name == "" {
			return nil, fmt.Errorf("an item of type %s needs call_id and name", item.Type)
		}
		c := &heddlev1.ToolCall{CallId: item.CallID, Name: item.Name, Namespace: item.Namespace, Arguments: item.Arguments, Id: item.ID}
		if item.Type == "custom_tool_call" {
			c.Freeform, c.Arguments = true, item.Input
		}
		return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolCall{ToolCall: c}}, nil
	case "function_call_output", "custom_tool_call_output":
		if item.CallID == "" {
			return nil, fmt.Errorf("an item of type %s needs call_id", item.Type)
		}
		parts, err := toParts(item.Output)
		if err != nil {
			return nil, err
		}
		return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolOutput{ToolOutput: &heddlev1.ToolOutput{
			CallId: item.CallID, Parts: parts, Freeform: strings.HasPrefix(item.Type, "custom")}}}, nil
	case "reasoning":
		r := &heddlev1.HistoryReasoning{Id: item.ID, EncryptedContent: item.Encrypted}
		summary, err := toParts(item.Summary)
		if err != nil {
			return nil, err
		}
		for _, p := range summary {
			r.Summary = append(r.Summary, p.GetText())
		}
		return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Reasoning{Reasoning: r}}, nil
	}
	return nil, fmt.Errorf("items of type %s cannot be injected", item.Type)
}

// toParts reads a content: a text or a list of parts.
func toParts(raw json.RawMessage) ([]*heddlev1.HistoryPart, error) {
	switch kindOf(raw) {
	case 'n':
		return nil, nil
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		return []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: s}}}, nil
	}
	var list []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		ImageURL string `json:"image_url"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	var out []*heddlev1.HistoryPart
	for _, p := range list {
		switch p.Type {
		case "input_text", "output_text", "text", "summary_text":
			out = append(out, &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_Text{Text: p.Text}})
		case "input_image":
			out = append(out, &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_ImageUrl{ImageUrl: p.ImageURL}})
		default:
			return nil, fmt.Errorf("content of type %s cannot be injected", p.Type)
		}
	}
	return out, nil
}

// InputQuestions makes the wire form of questions to the person, who may always
// write an answer of their own.
func InputQuestions(in []*heddlev1.UserInputRequest_Question) []any {
	out := make([]any, 0, len(in))
	for _, q := range in {
		var options []any
		for _, o := range q.GetOptions() {
			options = append(options, map[string]any{"label": o.GetLabel(), "description": o.GetDescription()})
		}
		out = append(out, map[string]any{
			"id": q.GetId(), "header": q.GetHeader(), "question": q.GetQuestion(), "options": options, "isOther": true, "isSecret": false,
		})
	}
	return out
}

// ToAnswers reads the answers to questions; nil when they are unusable.
func ToAnswers(result json.RawMessage) *structpb.Value {
	var body struct {
		Answers map[string]*struct {
			Answers []string `json:"answers"`
		} `json:"answers"`
	}
	if json.Unmarshal(result, &body) != nil || body.Answers == nil {
		return nil
	}
	answers := map[string]any{}
	for id, a := range body.Answers {
		given := []any{}
		if a != nil {
			for _, s := range a.Answers {
				given = append(given, s)
			}
		}
		answers[id] = map[string]any{"answers": given}
	}
	v, err := structpb.NewValue(map[string]any{"answers": answers})
	if err != nil {
		return nil
	}
	return v
}

// ToToolResult reads the result of a client's tool; nil when it is unusable.
func ToToolResult(result json.RawMessage) *structpb.Value {
	var body struct {
		ContentItems *[]map[string]any `json:"contentItems"`
		Success      *bool             `json:"success"`
	}
	if json.Unmarshal(result, &body) != nil || body.ContentItems == nil || body.Success == nil {
		return nil
	}
	items := []any{}
	for _, it := range *body.ContentItems {
		kind, _ := it["type"].(string)
		content := "text"
		switch kind {
		case "inputText":
		case "inputImage":
			content = "imageUrl"
		default:
			return nil
		}
		if _, ok := it[content].(string); !ok {
			return nil
		}
		items = append(items, map[string]any{"type": kind, content: it[content]})
	}
	v, err := structpb.NewValue(map[string]any{"contentItems": items, "success": *body.Success})
	if err != nil {
		return nil
	}
	return v
}
