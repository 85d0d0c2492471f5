package appserver

import (
	"context"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// translator turns the events of one thread, read from some seq on, into notes.
// It belongs to one goroutine.
type translator struct {
	thread string
	opts   protocol.ItemOptions
	// global leaves out what only subscribers see.
	global bool
	// jumps tells of ranges that were compacted away.
	jumps bool
	read  func(ctx context.Context, item string, offset, length int64) ([]byte, error)

	state   heddlev1.ThreadState
	pending map[string]bool
	// inputs are the open questions to a person, unread how far one has read.
	inputs map[string]bool
	unread *heddlev1.ReadState
	items  map[string]*openItem
	shown  string
	turn   *heddlev1.Turn
}

// newTranslator starts from a thread's row.
func newTranslator(t *heddlev1.Thread, pending []*heddlev1.Approval) *translator {
	tr := &translator{
		thread: t.GetId(), state: t.GetState(), unread: t.GetReadState(),
		pending: map[string]bool{}, inputs: map[string]bool{}, items: map[string]*openItem{},
	}
	for _, a := range pending {
		tr.asked(a)
	}
	tr.shown = key(tr.status())
	return tr
}

func (tr *translator) status() protocol.Status {
	return protocol.StatusOf(tr.state, len(tr.pending) > 0, len(tr.inputs) > 0)
}

// asked notes an open question. A client that runs a tool of its own is not
// waited for like a person.
func (tr *translator) asked(a *heddlev1.Approval) {
	switch {
	case a.GetReviewer() != "":
	case a.GetUserInput() != nil:
		tr.inputs[a.GetId()] = true
	case a.GetDynamicTool() == nil:
		tr.pending[a.GetId()] = true
	}
}

func key(s protocol.Status) string {
	k := s.Type
	for _, f := range s.ActiveFlags {
		k += " " + f
	}
	return k
}

type threadID struct {
	ThreadID string `json:"threadId"`
}

type statusChanged struct {
	ThreadID string          `json:"threadId"`
	Status   protocol.Status `json:"status"`
}

func statusNote(thread string, s protocol.Status) note {
	return note{method: "thread/status/changed", all: true, key: "status/" + thread, params: statusChanged{thread, s}}
}

// showStatus emits the status if it is not the one shown last.
func (tr *translator) showStatus(emit func(note) error) error {
	s := tr.status()
	if k := key(s); k != tr.shown {
		tr.shown = k
		return emit(statusNote(tr.thread, s))
	}
	return nil
}

// event passes an event's notes to emit, in order.
func (tr *translator) event(ctx context.Context, e *heddlev1.Event, emit func(note) error) error {
	switch p := e.GetPayload().(type) {
	case *heddlev1.Event_ItemDelta:
		return tr.itemDelta(e, p.ItemDelta, emit)
	case *heddlev1.Event_OutputAdvanced:
		return tr.outputAdvanced(ctx, e, p.OutputAdvanced, emit)
	case *heddlev1.Event_ItemStarted:
		return tr.itemStarted(e, p.ItemStarted.GetItem(), emit)
	case *heddlev1.Event_ItemCompleted:
		return tr.itemCompleted(e, p.ItemCompleted.GetItem(), emit)
	case *heddlev1.Event_TurnStarted:
		tr.state, tr.turn = heddlev1.ThreadState_THREAD_STATE_ACTIVE, p.TurnStarted.GetTurn()
		if err := tr.showStatus(emit); err != nil {
			return err
		}
		return tr.local(emit, note{method: "turn/started", seq: e.GetSeq(), params: turnNote{tr.thread, protocol.FromTurn(p.TurnStarted.GetTurn())}})
	case *heddlev1.Event_TurnCompleted:
		return tr.turnCompleted(e, p.TurnCompleted.GetTurn(), emit)
	case *heddlev1.Event_ApprovalRequested:
		return tr.approvalRequested(e, p.ApprovalRequested.GetApproval(), emit)
	case *heddlev1.Event_ApprovalResolved:
		return tr.approvalResolved(e, p.ApprovalResolved.GetApproval(), emit)
	case *heddlev1.Event_ErrorRaised:
		return tr.errorRaised(e, p.ErrorRaised, emit)
	case *heddlev1.Event_ThreadNamed:
		return emit(nameNote(tr.thread, p.ThreadNamed.GetName(), e.GetSeq()))
	case *heddlev1.Event_GoalChanged:
		return emit(goalNote(tr.thread, e.GetTurnId(), p.GoalChanged.GetGoal(), e.GetSeq()))
	case *heddlev1.Event_ReadStateChanged:
		tr.unread = p.ReadStateChanged.GetReadState()
		return emit(readNote(tr.thread, tr.unread, e.GetSeq()))
	case *heddlev1.Event_ThreadReverted:
		return tr.reverted(e, emit)
	case *heddlev1.Event_QueueChanged:
		return emit(queueNote(tr.thread, e.GetSeq()))
	case *heddlev1.Event_SectionChanged:
		return emit(sectionNote(tr.thread, p.SectionChanged.GetPlace().GetSectionId(), e.GetSeq()))
	case *heddlev1.Event_ProjectChanged:
		return emit(projectNote(tr.thread, p.ProjectChanged.GetProjectId(), e.GetSeq()))
	case *heddlev1.Event_AttachmentChanged:
		return emit(attachmentNote(tr.thread, p.AttachmentChanged.GetAttachment(), p.AttachmentChanged.GetRemoved(), e.GetSeq()))
	case *heddlev1.Event_TurnAccepted:
		if p.TurnAccepted.GetQueuedId() == "" {
			return nil
		}
		return emit(queueNote(tr.thread, e.GetSeq()))
	}
	if tr.global {
		return nil
	}
	return tr.detail(e, emit)
}

// detail handles the events that make one note for subscribers.
func (tr *translator) detail(e *heddlev1.Event, emit func(note) error) error {
	n := note{seq: e.GetSeq()}
	switch p := e.GetPayload().(type) {
	case *heddlev1.Event_TerminalInteraction:
		t := p.TerminalInteraction
		n.method = "item/commandExecution/terminalInteraction"
		n.params = struct {
			itemRef
			ProcessID string `json:"processId"`
			Stdin     string `json:"stdin"`
		}{itemRef{tr.thread, e.GetTurnId(), t.GetItemId()}, t.GetProcessId(), protocol.Clip(t.GetStdin())}
	case *heddlev1.Event_HookStarted:
		n.method, n.params = "hook/started", hookNote(tr.thread, e.GetTurnId(), p.HookStarted.GetRun())
	case *heddlev1.Event_HookCompleted:
		n.method, n.params = "hook/completed", hookNote(tr.thread, e.GetTurnId(), p.HookCompleted.GetRun())
	case *heddlev1.Event_SandboxReported:
		n.method, n.extended = "thread/sandbox/reported", true
		n.params = struct {
			ThreadID string                  `json:"threadId"`
			Report   *protocol.SandboxReport `json:"report"`
		}{tr.thread, protocol.FromSandboxReport(p.SandboxReported.GetReport())}
	case *heddlev1.Event_McpServerStatus:
		n.method, n.params = "mcpServer/startupStatus/updated", mcpStatusParams(tr.thread, p.McpServerStatus)
	case *heddlev1.Event_McpProgress:
		n.method = "item/mcpToolCall/progress"
		n.params = struct {
			itemRef
			Message string `json:"message"`
		}{itemRef{tr.thread, e.GetTurnId(), p.McpProgress.GetItemId()}, p.McpProgress.GetMessage()}
	case *heddlev1.Event_PlanUpdated:
		n.method, n.params = "turn/plan/updated", planNote(tr.thread, e.GetTurnId(), p.PlanUpdated)
	case *heddlev1.Event_DiffUpdated:
		n.method = "turn/diff/updated"
		n.params = struct {
			turnRef
			Diff string `json:"diff"`
		}{turnRef{tr.thread, e.GetTurnId()}, protocol.Clip(p.DiffUpdated.GetDiff())}
	case *heddlev1.Event_TokenUsageUpdated:
		if err := emit(usageNote(tr.thread, e.GetTurnId(), p.TokenUsageUpdated.GetUsage(), e.GetSeq())); err != nil {
			return err
		}
		n = note{method: "account/rateLimits/updated", params: map[string]any{"rateLimits": protocol.RateLimits{}}}
	case *heddlev1.Event_WarningRaised:
		n.method, n.params = "warning", warningParams(tr.thread, p.WarningRaised.GetMessage())
		if p.WarningRaised.GetReviewer() {
			n.method, n.params = "guardianWarning", reviewerWarning{tr.thread, p.WarningRaised.GetMessage()}
		}
	case *heddlev1.Event_SettingsChanged:
		n.method = "thread/settings/updated"
		n.params = map[string]any{"threadId": tr.thread, "threadSettings": protocol.FromSettings(p.SettingsChanged.GetSettings())}
	case *heddlev1.Event_RangeCompacted:
		if !p.RangeCompacted.GetDamaged() {
			return tr.compacted(e, p.RangeCompacted, emit)
		}
		n.method, n.params = "warning", warningParams(tr.thread, "some records of this thread could not be read and are left out")
	default:
		return nil
	}
	return emit(n)
}

// local emits a note for subscribers.
func (tr *translator) local(emit func(note) error, n note) error {
	if tr.global {
		return nil
	}
	return emit(n)
}

type turnRef struct {
	ThreadID string `json:"threadId"`
	TurnID   string `json:"turnId"`
}

type itemRef struct {
	ThreadID string `json:"threadId"`
	TurnID   string `json:"turnId"`
	ItemID   string `json:"itemId"`
}

func warningParams(thread, message string) any {
	return map[string]any{"threadId": thread, "message": protocol.Clip(message)}
}

func nameNote(thread, name string, seq uint64) note {
	var n *string
	if name != "" {
		n = &name
	}
	return note{method: "thread/name/updated", all: true, seq: seq, params: map[string]any{"threadId": thread, "threadName": n}}
}

func usageNote(thread, turn string, u *heddlev1.ThreadTokenUsage, seq uint64) note {
	return note{method: "thread/tokenUsage/updated", seq: seq, params: map[string]any{
		"threadId": thread, "turnId": turn, "tokenUsage": protocol.FromUsage(u),
	}}
}

func planNote(thread, turn string, p *heddlev1.PlanUpdated) any {
	type step struct {
		Step   string `json:"step"`
		Status string `json:"status"`
	}
	steps := make([]step, 0, len(p.GetSteps()))
	for _, s := range p.GetSteps() {
		status := s.GetStatus()
		if status != "inProgress" && status != "completed" {
			status = "pending"
		}
		steps = append(steps, step{s.GetStep(), status})
	}
	var explanation *string
	if p.GetExplanation() != "" {
		explanation = &p.Explanation
	}
	return struct {
		turnRef
		Explanation *string `json:"explanation"`
		Plan        []step  `json:"plan"`
	}{turnRef{thread, turn}, explanation, steps}
}
