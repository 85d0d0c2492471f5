package execmode

import (
	"fmt"
	"slices"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// turnState is what the end of a run is decided from.
type turnState struct {
	open   map[string]bool // items that started and did not complete
	usage  *heddlev1.TokenUsage
	answer string
	// lastAction is the last command, file change or tool call that completed.
	lastAction *heddlev1.Item
	// refused is true when the latest action was not allowed.
	refused bool
	ended   bool
}

// refusals begin what the model is told of an action that policy does not allow
// and that makes no item.
var refusals = [...]string{"approval policy is Never; reject command", "patch rejected: "}

func newTurnState(t *heddlev1.Thread) turnState {
	return turnState{open: map[string]bool{}, usage: t.GetTokenUsage().GetTotal()}
}

// apply takes one event and reports whether it ended the turn.
func (s *turnState) apply(ev *heddlev1.Event) (done bool) {
	switch p := ev.GetPayload().(type) {
	case *heddlev1.Event_ItemStarted:
		s.open[p.ItemStarted.GetItem().GetId()] = true
	case *heddlev1.Event_ItemCompleted:
		item := p.ItemCompleted.GetItem()
		delete(s.open, item.GetId())
		switch c := item.GetContent().(type) {
		case *heddlev1.Item_AgentMessage:
			s.answer = c.AgentMessage.GetText()
		case *heddlev1.Item_CommandExecution, *heddlev1.Item_FileChange, *heddlev1.Item_McpToolCall, *heddlev1.Item_DynamicToolCall:
			s.lastAction = item
			s.refused = item.GetStatus() == heddlev1.ItemStatus_ITEM_STATUS_DECLINED
		}
	case *heddlev1.Event_HistoryAppended:
		for _, e := range p.HistoryAppended.GetEntries() {
			s.refused = s.refused || refusal(e.GetToolOutput()) != ""
		}
	case *heddlev1.Event_TokenUsageUpdated:
		s.usage = p.TokenUsageUpdated.GetUsage().GetTotal()
	case *heddlev1.Event_TurnCompleted:
		s.ended = true
		return true
	}
	return false
}

// notDone are the errors of actions that could not be done for reasons that lie
// outside of the work itself.
var notDone = []string{"no_executor", "executor_lost", "sandbox_lost", "outcome_unknown"}

// outcome decides the exit code. A turn that completed although its last action
// was refused or could not be contained did not do its work.
func (s *turnState) outcome(turn *heddlev1.Turn) Outcome {
	o := Outcome{Turn: turn, Answer: s.answer, Usage: s.usage}
	switch turn.GetStatus() {
	case heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED:
		o.Code, o.Failure = ExitInterrupted, "the turn was interrupted"
		if c := turn.GetInterruptCause(); c != "" && c != "client" {
			o.Failure += " (" + c + ")"
		}
	case heddlev1.TurnStatus_TURN_STATUS_FAILED:
		o.Code, o.Failure = ExitFailed, turnFailure(turn.GetError())
		if turn.GetError().GetKind() == "sandboxError" {
			o.Code = ExitNotEnforceable
		}
	default:
		if e := actionError(s.lastAction); e.GetCode() == "not_enforceable" {
			o.Code, o.Failure = ExitNotEnforceable, errorText(e)
		} else if slices.Contains(notDone, e.GetCode()) {
			o.Code, o.Failure = ExitFailed, errorText(e)
		} else if s.refused {
			o.Code, o.Failure = ExitFailed, "the last action was refused: approvals are not possible in this mode"
		}
	}
	return o
}

// refusal is what the model was told of an action that policy does not allow;
// empty for any other output.
func refusal(out *heddlev1.ToolOutput) string {
	for _, part := range out.GetParts() {
		for _, begin := range refusals {
			if strings.HasPrefix(part.GetText(), begin) {
				return part.GetText()
			}
		}
	}
	return ""
}

func turnFailure(e *heddlev1.TurnError) string {
	if e.GetMessage() == "" {
		return "the turn failed"
	}
	return e.GetMessage()
}

func actionError(item *heddlev1.Item) *heddlev1.ActionError {
	switch c := item.GetContent().(type) {
	case *heddlev1.Item_CommandExecution:
		return c.CommandExecution.GetError()
	case *heddlev1.Item_FileChange:
		return c.FileChange.GetError()
	}
	return nil
}

func errorText(e *heddlev1.ActionError) string {
	if e.GetFix() == "" {
		return e.GetMessage()
	}
	return fmt.Sprintf("%s; to fix: %s", e.GetMessage(), e.GetFix())
}
