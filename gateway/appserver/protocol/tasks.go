package protocol

import (
	"encoding/json"
	"fmt"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
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
	ProjectID *string          `wire:"projectId,opt,exp,expnull"`
	Daybreak  *bool            `wire:"daybreakEnabled,opt,exp"`
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
			if s = strings.TrimSpace(s); s == "" {
				return EmptyMemberError(key)
			}
		}
		*to = &s
		return nil
	})
	return out, err
}

// EmptyMemberError names a member that must not be an empty text.
type EmptyMemberError string

// Error implements error.
func (e EmptyMemberError) Error() string { return string(e) + " must not be empty" }

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
	SortKey         *SearchSortKey `wire:"sortKey,opt"`
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

// SkillsRootsParams name folders with skills.
type SkillsRootsParams struct {
	Roots []AbsPath `wire:"extraRoots"`
}

// SearchSortKey orders what a search finds.
type SearchSortKey string

// Variants implements the enumeration.
func (SearchSortKey) Variants() []string { return []string{"created_at", "updated_at", "recency_at"} }
