package protocol

import heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"

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
