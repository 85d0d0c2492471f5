package agent

import (
	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// The functions of this file build events. Items are copied, since the turn
// goes on changing its own.

func itemStarted(item *heddlev1.Item) *heddlev1.Event {
	return &heddlev1.Event{TurnId: item.GetTurnId(), Payload: &heddlev1.Event_ItemStarted{
		ItemStarted: &heddlev1.ItemStarted{Item: proto.CloneOf(item)}}}
}

func itemCompleted(item *heddlev1.Item) *heddlev1.Event {
	return &heddlev1.Event{TurnId: item.GetTurnId(), Payload: &heddlev1.Event_ItemCompleted{
		ItemCompleted: &heddlev1.ItemCompleted{Item: proto.CloneOf(item)}}}
}

func itemDelta(turnID string, d *heddlev1.ItemDelta) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_ItemDelta{ItemDelta: d}}
}

func historyAppended(turnID string, entries ...*heddlev1.HistoryEntry) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_HistoryAppended{
		HistoryAppended: &heddlev1.HistoryAppended{Entries: entries}}}
}

func actionsIntended(turnID string, intents ...*heddlev1.ActionIntent) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_ActionsIntended{
		ActionsIntended: &heddlev1.ActionsIntended{Actions: intents}}}
}

func actionsResolved(turnID string, ids ...string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_ActionsResolved{
		ActionsResolved: &heddlev1.ActionsResolved{ActionIds: ids}}}
}

func turnAccepted(turn *heddlev1.Turn, in *heddlev1.UserMessage, queued string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn.GetId(), Payload: &heddlev1.Event_TurnAccepted{
		TurnAccepted: &heddlev1.TurnAccepted{Turn: proto.CloneOf(turn), Input: in, NoInput: len(in.GetParts()) == 0, QueuedId: queued}}}
}

func turnStarted(turn *heddlev1.Turn) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn.GetId(), Payload: &heddlev1.Event_TurnStarted{
		TurnStarted: &heddlev1.TurnStarted{Turn: proto.CloneOf(turn)}}}
}

func turnCompleted(turn *heddlev1.Turn) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turn.GetId(), Payload: &heddlev1.Event_TurnCompleted{
		TurnCompleted: &heddlev1.TurnCompleted{Turn: proto.CloneOf(turn)}}}
}

func steerAccepted(turnID, steerID string, in *heddlev1.UserMessage) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_SteerAccepted{
		SteerAccepted: &heddlev1.SteerAccepted{SteerId: steerID, Input: in}}}
}

func errorRaised(turnID string, e *heddlev1.TurnError, retry bool) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_ErrorRaised{
		ErrorRaised: &heddlev1.ErrorRaised{Error: e, WillRetry: retry}}}
}

func warningRaised(turnID, text string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_WarningRaised{
		WarningRaised: &heddlev1.WarningRaised{Message: text}}}
}

func usageUpdated(turnID string, u *heddlev1.ThreadTokenUsage) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_TokenUsageUpdated{
		TokenUsageUpdated: &heddlev1.TokenUsageUpdated{Usage: proto.CloneOf(u)}}}
}

func turnSettingsChanged(turnID string, o *heddlev1.TurnOverrides) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_TurnSettingsChanged{TurnSettingsChanged: &heddlev1.TurnSettingsChanged{Overrides: o}}}
}

func settingsChanged(s *heddlev1.ThreadSettings) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_SettingsChanged{
		SettingsChanged: &heddlev1.SettingsChanged{Settings: proto.CloneOf(s)}}}
}

func approvalRequested(a *heddlev1.Approval) *heddlev1.Event {
	return &heddlev1.Event{TurnId: a.GetTurnId(), Payload: &heddlev1.Event_ApprovalRequested{
		ApprovalRequested: &heddlev1.ApprovalRequested{Approval: proto.CloneOf(a)}}}
}

func outputAdvanced(turnID, itemID string, offset, length, dropped int64) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_OutputAdvanced{
		OutputAdvanced: &heddlev1.OutputAdvanced{ItemId: itemID, Offset: offset, Length: length, Dropped: dropped}}}
}

func terminalInteraction(turnID, itemID, processID, stdin string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_TerminalInteraction{
		TerminalInteraction: &heddlev1.TerminalInteraction{ItemId: itemID, ProcessId: processID, Stdin: stdin}}}
}

func planUpdated(turnID, explanation string, steps []*heddlev1.PlanStep) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_PlanUpdated{
		PlanUpdated: &heddlev1.PlanUpdated{Explanation: explanation, Steps: steps}}}
}

func diffUpdated(turnID, diff, base string) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_DiffUpdated{
		DiffUpdated: &heddlev1.DiffUpdated{Diff: diff, BaseCommit: base}}}
}
