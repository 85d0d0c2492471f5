package storetest

import (
	"reflect"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

func message(text string) *heddlev1.UserMessage {
	return &heddlev1.UserMessage{Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: text}}}}
}

// Accepted is the event that accepts a turn.
func Accepted(turn, text string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_TurnAccepted{TurnAccepted: &heddlev1.TurnAccepted{Turn: &heddlev1.Turn{Id: turn}, Input: message(text)}}}
}

// Started is the event that starts a turn.
func Started(turn string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_TurnStarted{TurnStarted: &heddlev1.TurnStarted{Turn: &heddlev1.Turn{Id: turn}}}}
}

// Completed is the event that ends a turn.
func Completed(turn string, status heddlev1.TurnStatus) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_TurnCompleted{TurnCompleted: &heddlev1.TurnCompleted{Turn: &heddlev1.Turn{Id: turn, Status: status}}}}
}

// UserItem is a userMessage item.
func UserItem(id, text string) *heddlev1.Item {
	return &heddlev1.Item{Id: id, Content: &heddlev1.Item_UserMessage{UserMessage: message(text)}}
}

// AgentItem is an agentMessage item.
func AgentItem(id, text string) *heddlev1.Item {
	return &heddlev1.Item{Id: id, Content: &heddlev1.Item_AgentMessage{AgentMessage: &heddlev1.AgentMessage{Text: text}}}
}

// CommandItem is a commandExecution item.
func CommandItem(id string) *heddlev1.Item {
	return &heddlev1.Item{Id: id, Content: &heddlev1.Item_CommandExecution{CommandExecution: &heddlev1.CommandExecution{Command: "true"}}}
}

// ItemStarted starts an item.
func ItemStarted(turn string, it *heddlev1.Item) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ItemStarted{ItemStarted: &heddlev1.ItemStarted{Item: it}}}
}

// ItemCompleted ends an item.
func ItemCompleted(turn string, it *heddlev1.Item) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ItemCompleted{ItemCompleted: &heddlev1.ItemCompleted{Item: it}}}
}

// Delta is an increment of an agent message.
func Delta(turn, item, text string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ItemDelta{ItemDelta: &heddlev1.ItemDelta{ItemId: item, Delta: &heddlev1.ItemDelta_AgentText{AgentText: text}}}}
}

// History adds one user message to the model's history.
func History(turn, text string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_HistoryAppended{HistoryAppended: &heddlev1.HistoryAppended{Entries: []*heddlev1.HistoryEntry{entry(text)}}}}
}

// Replaced replaces the model's history.
func Replaced(turn, text string) *heddlev1.Event {
	ev := History(turn, text)
	ev.GetHistoryAppended().Replace = true
	return ev
}

func entry(text string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{
		Role: "user", Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: text}}},
	}}}
}

// Intended makes an action's intent durable.
func Intended(turn, action string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ActionsIntended{ActionsIntended: &heddlev1.ActionsIntended{Actions: []*heddlev1.ActionIntent{{ActionId: action, Kind: "process"}}}}}
}

// Resolved ends an action.
func Resolved(turn, action string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ActionsResolved{ActionsResolved: &heddlev1.ActionsResolved{ActionIds: []string{action}}}}
}

// Asked requests an approval.
func Asked(turn, id string, request int64) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ApprovalRequested{ApprovalRequested: &heddlev1.ApprovalRequested{
		Approval: &heddlev1.Approval{Id: id, TurnId: turn, RequestId: request},
	}}}
}

// Decided resolves an approval.
func Decided(turn, id string, request int64, d heddlev1.Decision) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn, Payload: &heddlev1.Event_ApprovalResolved{ApprovalResolved: &heddlev1.ApprovalResolved{
		Approval: &heddlev1.Approval{Id: id, TurnId: turn, RequestId: request, Decision: d},
	}}}
}

// Warning is an event that changes no row.
func Warning(text string) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_WarningRaised{WarningRaised: &heddlev1.WarningRaised{Message: text}}}
}

func named(name string) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_ThreadNamed{ThreadNamed: &heddlev1.ThreadNamed{Name: name}}}
}

func archived() *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_ThreadArchived{ThreadArchived: &heddlev1.ThreadArchived{}}}
}

func texts(entries []*heddlev1.HistoryEntry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.GetMessage().GetParts()[0].GetText())
	}
	return out
}

func turnIDs(turns []*heddlev1.TurnWithItems) []string {
	var ids []string
	for _, t := range turns {
		ids = append(ids, t.GetTurn().GetId())
	}
	return ids
}

func itemIDs(items []*heddlev1.Item) []string {
	var ids []string
	for _, it := range items {
		ids = append(ids, it.GetId())
	}
	return ids
}

func threadIDs(rows []*heddlev1.Thread) []string {
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.GetId())
	}
	return ids
}
