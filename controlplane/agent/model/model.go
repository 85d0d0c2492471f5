// Package model is the boundary between the agent and the services that answer
// for a language model.
//
// A Client turns one Request into a stream of Events. Requests and events are
// provider-neutral; a client owns its wire format, its retries of a request that
// was not accepted, and the mapping of failures to Error. Clients are safe for
// concurrent use; the yield function of one Stream call is never called
// concurrently and never after Stream has returned.
package model

import (
	"context"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Client asks a model.
type Client interface {
	// Stream sends one request and calls yield for every event in order. It
	// returns nil only after a Completed event. Failures of the model side are
	// *Error; an error of yield ends the stream and is returned as it is; when ctx
	// ends, the connection is closed at once and ctx's cause is returned.
	//
	// Requests that the service refused before streaming are retried inside, as
	// the provider's settings say. A stream that broke off is not: that is the
	// caller's decision, since it has shown what came before.
	Stream(ctx context.Context, req Request, yield func(Event) error) error
}

// Request is everything a model needs for one step.
type Request struct {
	Model string
	// Input is the whole conversation, instructions first.
	Input             []*heddlev1.HistoryEntry
	Tools             []Tool
	ParallelToolCalls bool
	// Effort, Summary, Verbosity and ServiceTier are left out when empty.
	Effort      string
	Summary     string
	Verbosity   string
	ServiceTier string
	// OutputSchema is a JSON schema for the final answer; nil for free text.
	OutputSchema map[string]any
	// LooseSchema says that the schema has optional members, which the strict form
	// of some services does not allow.
	LooseSchema bool

	ThreadID   string
	SessionID  string
	Originator string
	UserAgent  string
}

// ToolKind says how the arguments of a tool look.
type ToolKind int

const (
	// ToolFunction takes JSON arguments that follow Parameters.
	ToolFunction ToolKind = iota
	// ToolFreeform takes raw text that follows Grammar.
	ToolFreeform
	// ToolWebSearch is run by the service itself.
	ToolWebSearch
)

// Tool is one tool that is offered to the model.
type Tool struct {
	Kind        ToolKind
	Name        string
	Description string
	// Namespace groups the tools of one server; empty for most.
	Namespace string
	// Parameters is a JSON schema of type object.
	Parameters map[string]any
	Strict     bool
	// Grammar is a Lark grammar, for ToolFreeform.
	Grammar string
	// Search says what ToolWebSearch sees; SearchCached when empty.
	Search Search
}

// Search says what the service's web search sees.
type Search string

const (
	// SearchCached sees what the service has stored; nothing is fetched.
	SearchCached Search = "cached"
	// SearchIndexed fetches pages that the service's index has.
	SearchIndexed Search = "indexed"
	// SearchLive fetches any page.
	SearchLive Search = "live"
)

// ItemKind is the kind of an output item of the model.
type ItemKind int

const (
	KindMessage ItemKind = iota + 1
	KindReasoning
	KindToolCall
	KindWebSearch
)

// Event is one step of a stream: ItemStarted, TextDelta, SummaryPart,
// SummaryDelta, ReasoningDelta, ItemDone or Completed.
type Event interface{ event() }

// ItemStarted says that the model began an output item. For a tool call nothing
// may be acted on before its ItemDone.
type ItemStarted struct {
	ID    string
	Kind  ItemKind
	Phase string
	// CallID and Name are set for a tool call, when known.
	CallID string
	Name   string
}

// TextDelta is more text of a message.
type TextDelta struct {
	ItemID string
	Text   string
}

// SummaryPart says that a part of a reasoning summary begins.
type SummaryPart struct {
	ItemID string
	Index  int32
}

// SummaryDelta is more text of a reasoning summary part.
type SummaryDelta struct {
	ItemID string
	Index  int32
	Text   string
}

// ReasoningDelta is more raw reasoning text.
type ReasoningDelta struct {
	ItemID string
	Index  int32
	Text   string
}

// ItemDone holds a whole output item.
type ItemDone struct {
	ID   string
	Kind ItemKind
	// Entry is what belongs into the history; nil for a web search.
	Entry *heddlev1.HistoryEntry
	// WebSearch is set for KindWebSearch.
	WebSearch *heddlev1.WebSearch
}

// Completed is the last event of a stream that went well.
type Completed struct {
	Usage      *heddlev1.TokenUsage
	ResponseID string
}

func (ItemStarted) event()    {}
func (TextDelta) event()      {}
func (SummaryPart) event()    {}
func (SummaryDelta) event()   {}
func (ReasoningDelta) event() {}
func (ItemDone) event()       {}
func (Completed) event()      {}
