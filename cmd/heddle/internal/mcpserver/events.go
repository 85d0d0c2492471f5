package mcpserver

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// outputChunk bounds the bytes of one output event.
	outputChunk = 64 << 10
	// outputLimit bounds the bytes of one command that are shown as events; the
	// end of the command holds a bounded view of the whole.
	outputLimit = 8 << 20
)

// msg is one JSON object of an event.
type msg map[string]any

// events shows a call's turn as codex/event notifications.
type events struct {
	requestID any
	progress  any
	send      func(ctx context.Context, method string, params any)
	read      func(ctx context.Context, item string, offset, length int64) ([]byte, error)
	steps     int
}

// emit sends one event.
func (c *call) emit(ctx context.Context, turn, kind string, body msg) {
	body["type"] = kind
	c.send(ctx, "codex/event", msg{
		"_meta": msg{"requestId": c.view.requestID, "threadId": c.thread.GetId()}, "id": turn, "msg": body,
	})
}

// step tells the client how the call goes on, where it asked for progress.
func (c *call) step(ctx context.Context, text string) {
	if c.view.progress == nil {
		return
	}
	c.view.steps++
	err := c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: c.view.progress, Progress: float64(c.view.steps), Message: clip(text),
	})
	if err != nil {
		c.srv.cfg.Logger.Debug("send progress", "error", err)
	}
}

func (c *call) warn(ctx context.Context, text string) {
	c.emit(ctx, c.turn, "warning", msg{"message": text})
}

// configured tells what the new thread runs with.
func (c *call) configured(ctx context.Context) {
	s := c.thread.GetSettings()
	c.emit(ctx, "", "session_configured", msg{
		"session_id": c.thread.GetId(), "model": s.GetModel(), "model_provider_id": s.GetModelProvider(),
		"approval_policy": s.GetApprovalPolicy(), "approvals_reviewer": s.GetApprovalsReviewer(),
		"sandbox_policy": policy(s.GetSandbox()), "cwd": s.GetCwd(), "history_log_id": 0, "history_entry_count": 0,
	})
}

// show translates one event of the log.
func (c *call) show(ctx context.Context, ev *heddlev1.Event) {
	turn := c.turn
	switch p := ev.GetPayload().(type) {
	case *heddlev1.Event_TurnStarted:
		c.emit(ctx, turn, "task_started", msg{
			"turn_id": turn, "started_at": p.TurnStarted.GetTurn().GetStartedAtMs() / 1000,
			"model_context_window": windowOf(c.thread.GetTokenUsage()), "collaboration_mode_kind": "default",
		})
	case *heddlev1.Event_TurnCompleted:
		c.ended(ctx, p.TurnCompleted.GetTurn())
	case *heddlev1.Event_ItemStarted:
		c.itemStarted(ctx, p.ItemStarted.GetItem())
	case *heddlev1.Event_ItemCompleted:
		c.itemCompleted(ctx, p.ItemCompleted.GetItem())
	case *heddlev1.Event_ItemDelta:
		c.delta(ctx, p.ItemDelta)
	case *heddlev1.Event_OutputAdvanced:
		c.output(ctx, p.OutputAdvanced)
	case *heddlev1.Event_ApprovalRequested:
		c.approval(ctx, p.ApprovalRequested.GetApproval())
	case *heddlev1.Event_PlanUpdated:
		c.plan(ctx, p.PlanUpdated)
	case *heddlev1.Event_DiffUpdated:
		c.emit(ctx, turn, "turn_diff", msg{"unified_diff": clipped(p.DiffUpdated.GetDiff())})
	case *heddlev1.Event_TokenUsageUpdated:
		u := p.TokenUsageUpdated.GetUsage()
		c.emit(ctx, turn, "token_count", msg{"info": msg{
			"total_token_usage": usage(u.GetTotal()), "last_token_usage": usage(u.GetLast()), "model_context_window": windowOf(u),
		}, "rate_limits": nil})
	case *heddlev1.Event_ErrorRaised:
		kind := "error"
		if p.ErrorRaised.GetWillRetry() {
			kind = "stream_error"
		}
		c.emit(ctx, turn, kind, msg{"message": p.ErrorRaised.GetError().GetMessage(), "codex_error_info": p.ErrorRaised.GetError().GetKind()})
		c.step(ctx, p.ErrorRaised.GetError().GetMessage())
	case *heddlev1.Event_WarningRaised:
		c.warn(ctx, p.WarningRaised.GetMessage())
	case *heddlev1.Event_McpServerStatus:
		state := msg{"state": p.McpServerStatus.GetStatus()}
		if e := p.McpServerStatus.GetError(); e != "" {
			state["error"] = e
		}
		c.emit(ctx, "", "mcp_startup_update", msg{"server": p.McpServerStatus.GetName(), "status": state})
	}
}

func (c *call) ended(ctx context.Context, t *heddlev1.Turn) {
	if t.GetStatus() == heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED {
		c.emit(ctx, c.turn, "turn_aborted", msg{"turn_id": c.turn, "reason": "interrupted"})
		return
	}
	var last any
	if c.answer != "" {
		last = c.answer
	}
	c.emit(ctx, c.turn, "task_complete", msg{
		"turn_id": c.turn, "last_agent_message": last, "completed_at": t.GetCompletedAtMs() / 1000, "duration_ms": t.GetDurationMs(),
	})
}

func (c *call) delta(ctx context.Context, d *heddlev1.ItemDelta) {
	of := func(text string) msg {
		return msg{"thread_id": c.thread.GetId(), "turn_id": c.turn, "item_id": d.GetItemId(), "delta": text}
	}
	switch t := d.GetDelta().(type) {
	case *heddlev1.ItemDelta_AgentText:
		c.emit(ctx, c.turn, "agent_message_content_delta", of(t.AgentText))
		c.emit(ctx, c.turn, "agent_message_delta", msg{"delta": t.AgentText})
	case *heddlev1.ItemDelta_PlanText:
		c.emit(ctx, c.turn, "plan_delta", of(t.PlanText))
	case *heddlev1.ItemDelta_SummaryText:
		body := of(t.SummaryText.GetText())
		body["summary_index"] = t.SummaryText.GetIndex()
		c.emit(ctx, c.turn, "reasoning_content_delta", body)
		c.emit(ctx, c.turn, "agent_reasoning_delta", msg{"delta": t.SummaryText.GetText()})
	case *heddlev1.ItemDelta_SummaryPart:
		c.emit(ctx, c.turn, "agent_reasoning_section_break", msg{"item_id": d.GetItemId(), "summary_index": t.SummaryPart})
	case *heddlev1.ItemDelta_ReasoningText:
		body := of(t.ReasoningText.GetText())
		body["content_index"] = t.ReasoningText.GetIndex()
		c.emit(ctx, c.turn, "reasoning_raw_content_delta", body)
		c.emit(ctx, c.turn, "agent_reasoning_raw_content_delta", msg{"delta": t.ReasoningText.GetText()})
	}
}

func (c *call) output(ctx context.Context, a *heddlev1.OutputAdvanced) {
	end := min(a.GetOffset()+a.GetLength(), outputLimit)
	for at := a.GetOffset(); at < end; {
		data, err := c.view.read(ctx, a.GetItemId(), at, min(end-at, outputChunk))
		if err != nil || len(data) == 0 {
			return // the end of the command holds what there was
		}
		at += int64(len(data))
		c.emit(ctx, c.turn, "exec_command_output_delta", msg{"call_id": a.GetItemId(), "stream": "stdout", "chunk": data})
	}
}

func (c *call) plan(ctx context.Context, p *heddlev1.PlanUpdated) {
	steps := []any{}
	for _, s := range p.GetSteps() {
		status := s.GetStatus()
		if status == "inProgress" {
			status = "in_progress"
		}
		steps = append(steps, msg{"step": s.GetStep(), "status": status})
	}
	c.emit(ctx, c.turn, "plan_update", msg{"explanation": p.GetExplanation(), "plan": steps})
}

func (c *call) approval(ctx context.Context, a *heddlev1.Approval) {
	switch {
	case a.GetCommand() != nil:
		cmd := a.GetCommand()
		decisions := []any{"approved"}
		if prefix := cmd.GetProposedAmendment(); len(prefix) > 0 {
			decisions = append(decisions, msg{"approved_execpolicy_amendment": msg{"proposed_execpolicy_amendment": prefix}})
		}
		c.emit(ctx, c.turn, "exec_approval_request", msg{
			"call_id": a.GetItemId(), "turn_id": c.turn, "command": argv(cmd.GetArgv(), cmd.GetCommand()), "cwd": cmd.GetCwd(), "reason": a.GetReason(),
			"proposed_execpolicy_amendment": cmd.GetProposedAmendment(), "available_decisions": append(decisions, "abort"), "parsed_cmd": parsed(cmd.GetActions()),
		})
		c.step(ctx, fmt.Sprintf("asks about %s", cmd.GetCommand()))
	case a.GetFileChange() != nil:
		c.emit(ctx, c.turn, "apply_patch_approval_request", msg{
			"call_id": a.GetItemId(), "turn_id": c.turn, "changes": changes(a.GetFileChange().GetChanges()), "reason": a.GetReason(),
		})
		c.step(ctx, "asks about changes")
	}
}
