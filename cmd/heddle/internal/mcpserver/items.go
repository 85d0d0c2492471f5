package mcpserver

import (
	"context"
	"strings"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (c *call) itemStarted(ctx context.Context, item *heddlev1.Item) {
	id := item.GetId()
	switch p := item.GetContent().(type) {
	case *heddlev1.Item_AgentMessage, *heddlev1.Item_Reasoning:
		c.item(ctx, "item_started", item)
	case *heddlev1.Item_CommandExecution:
		c.emit(ctx, c.turn, "exec_command_begin", c.command(item, p.CommandExecution))
		c.step(ctx, "runs "+p.CommandExecution.GetCommand())
	case *heddlev1.Item_FileChange:
		c.emit(ctx, c.turn, "patch_apply_begin", msg{
			"call_id": id, "turn_id": c.turn, "auto_approved": false, "changes": changes(p.FileChange.GetChanges()),
		})
		c.step(ctx, "edits files")
	case *heddlev1.Item_McpToolCall:
		c.emit(ctx, c.turn, "mcp_tool_call_begin", msg{"call_id": id, "invocation": invocation(p.McpToolCall)})
		c.step(ctx, "calls "+p.McpToolCall.GetServer()+"."+p.McpToolCall.GetTool())
	case *heddlev1.Item_WebSearch:
		c.emit(ctx, c.turn, "web_search_begin", msg{"call_id": id})
	}
}

func (c *call) itemCompleted(ctx context.Context, item *heddlev1.Item) {
	id := item.GetId()
	switch p := item.GetContent().(type) {
	case *heddlev1.Item_UserMessage:
		c.item(ctx, "item_started", item)
		c.item(ctx, "item_completed", item)
		c.emit(ctx, c.turn, "user_message", msg{"message": userText(p.UserMessage), "images": []any{}, "local_images": []any{}, "text_elements": []any{}})
	case *heddlev1.Item_AgentMessage:
		c.item(ctx, "item_completed", item)
		c.emit(ctx, c.turn, "agent_message", msg{"message": clipped(p.AgentMessage.GetText()), "phase": orNull(p.AgentMessage.GetPhase())})
		c.step(ctx, p.AgentMessage.GetText())
	case *heddlev1.Item_Reasoning:
		c.item(ctx, "item_completed", item)
		for _, text := range p.Reasoning.GetSummary() {
			c.emit(ctx, c.turn, "agent_reasoning", msg{"text": clipped(text)})
		}
		for _, text := range p.Reasoning.GetContent() {
			c.emit(ctx, c.turn, "agent_reasoning_raw_content", msg{"text": clipped(text)})
		}
	case *heddlev1.Item_CommandExecution:
		c.emit(ctx, c.turn, "exec_command_end", c.commandEnd(item, p.CommandExecution))
	case *heddlev1.Item_FileChange:
		c.emit(ctx, c.turn, "patch_apply_end", msg{
			"call_id": id, "turn_id": c.turn, "stdout": "", "stderr": p.FileChange.GetError().GetMessage(),
			"success": item.GetStatus() == heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, "changes": changes(p.FileChange.GetChanges()), "status": statusOf(item),
		})
	case *heddlev1.Item_McpToolCall:
		result := msg{"Ok": p.McpToolCall.GetResult().AsMap()}
		if p.McpToolCall.GetResult() == nil {
			result = msg{"Err": p.McpToolCall.GetError()}
		}
		c.emit(ctx, c.turn, "mcp_tool_call_end", msg{
			"call_id": id, "invocation": invocation(p.McpToolCall), "duration": duration(p.McpToolCall.GetDurationMs()), "result": result,
		})
	case *heddlev1.Item_WebSearch:
		c.emit(ctx, c.turn, "web_search_end", msg{"call_id": id, "query": p.WebSearch.GetQuery(), "action": p.WebSearch.GetAction().AsMap()})
	case *heddlev1.Item_ImageView:
		c.emit(ctx, c.turn, "view_image_tool_call", msg{"call_id": id, "path": p.ImageView.GetPath()})
	case *heddlev1.Item_ContextCompaction:
		c.emit(ctx, c.turn, "context_compacted", msg{})
	case *heddlev1.Item_ReviewMode:
		kind := "exited_review_mode"
		if p.ReviewMode.GetEntered() {
			kind = "entered_review_mode"
		}
		c.emit(ctx, c.turn, kind, msg{"review": clipped(p.ReviewMode.GetReview())})
	}
}

// item sends an item of the kinds that earlier releases show as such.
func (c *call) item(ctx context.Context, event string, item *heddlev1.Item) {
	body := msg{"id": item.GetId()}
	switch p := item.GetContent().(type) {
	case *heddlev1.Item_UserMessage:
		body["type"], body["content"] = "UserMessage", []any{msg{"type": "text", "text": userText(p.UserMessage), "text_elements": []any{}}}
	case *heddlev1.Item_AgentMessage:
		body["type"], body["content"] = "AgentMessage", []any{msg{"type": "Text", "text": clipped(p.AgentMessage.GetText())}}
	case *heddlev1.Item_Reasoning:
		body["type"], body["summary_text"], body["raw_content"] = "Reasoning", list(p.Reasoning.GetSummary()), list(p.Reasoning.GetContent())
	}
	c.emit(ctx, c.turn, event, msg{"thread_id": c.thread.GetId(), "turn_id": c.turn, "item": body})
}

func (c *call) command(item *heddlev1.Item, cmd *heddlev1.CommandExecution) msg {
	source := "agent"
	if cmd.GetSource() == "userShell" {
		source = "user_shell"
	} else if cmd.GetSource() == "unifiedExecStartup" {
		source = "unified_exec_startup"
	}
	return msg{
		"call_id": item.GetId(), "process_id": orNull(cmd.GetProcessId()), "turn_id": c.turn, "command": argv(cmd.GetArgv(), cmd.GetCommand()),
		"cwd": cmd.GetCwd(), "parsed_cmd": parsed(cmd.GetActions()), "source": source,
	}
}

func (c *call) commandEnd(item *heddlev1.Item, cmd *heddlev1.CommandExecution) msg {
	out := clipped(strings.ToValidUTF8(string(cmd.GetAggregatedOutput()), "\uFFFD"))
	m := c.command(item, cmd)
	// One stream holds both: they are not told apart, so the others stay empty.
	m["stdout"], m["stderr"], m["aggregated_output"], m["formatted_output"] = "", "", out, ""
	m["exit_code"], m["duration"], m["status"] = -1, duration(cmd.GetDurationMs()), statusOf(item)
	if cmd.ExitCode != nil {
		m["exit_code"] = cmd.GetExitCode()
	}
	if e := cmd.GetError(); e != nil {
		m["stderr"] = e.GetMessage()
	}
	return m
}

func statusOf(item *heddlev1.Item) string {
	switch item.GetStatus() {
	case heddlev1.ItemStatus_ITEM_STATUS_COMPLETED:
		return "completed"
	case heddlev1.ItemStatus_ITEM_STATUS_DECLINED:
		return "declined"
	}
	return "failed"
}

func invocation(m *heddlev1.McpToolCall) msg {
	return msg{"server": m.GetServer(), "tool": m.GetTool(), "arguments": m.GetArguments().AsInterface()}
}

func duration(ms int64) msg { return msg{"secs": ms / 1000, "nanos": ms % 1000 * 1_000_000} }

func userText(m *heddlev1.UserMessage) string {
	var texts []string
	for _, p := range m.GetParts() {
		if t := p.GetText(); t != "" {
			texts = append(texts, t)
		}
	}
	return clipped(strings.Join(texts, "\n\n"))
}

// clipped cuts a text so that no line is longer than 1 MiB.
func clipped(text string) string { return protocol.Clip(text) }

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func list(texts []string) []string {
	if texts == nil {
		return []string{}
	}
	return texts
}

// argv is a command as its words; one that is shown as a line only is one word.
func argv(words []string, line string) []string {
	if len(words) > 0 {
		return words
	}
	return []string{line}
}

func parsed(actions []*heddlev1.CommandAction) []any {
	out := []any{}
	for _, a := range actions {
		m := msg{"type": "unknown", "cmd": a.GetCommand()}
		switch a.GetKind() {
		case "read":
			m["type"], m["name"], m["path"] = "read", a.GetName(), a.GetPath()
		case "listFiles":
			m["type"], m["path"] = "list_files", orNull(a.GetPath())
		case "search":
			m["type"], m["query"], m["path"] = "search", orNull(a.GetQuery()), orNull(a.GetPath())
		}
		out = append(out, m)
	}
	return out
}

func changes(files []*heddlev1.FileUpdate) msg {
	out := msg{}
	for _, f := range files {
		switch f.GetKind() {
		case "update":
			out[f.GetPath()] = msg{"type": "update", "unified_diff": clipped(f.GetDiff()), "move_path": orNull(f.GetMovePath())}
		default:
			out[f.GetPath()] = msg{"type": f.GetKind(), "content": clipped(f.GetDiff())}
		}
	}
	return out
}

func policy(p *heddlev1.SandboxPolicy) msg {
	network := p.GetNetwork() == heddlev1.NetworkMode_NETWORK_MODE_FULL
	switch p.GetLevel() {
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE:
		return msg{
			"type": "workspace-write", "writable_roots": list(p.GetWritableRoots()), "network_access": network,
			"exclude_tmpdir_env_var": p.GetExcludeTmpdirEnvVar(), "exclude_slash_tmp": p.GetExcludeSlashTmp(),
		}
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS:
		return msg{"type": "danger-full-access"}
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL:
		return msg{"type": "external-sandbox", "network_access": "restricted"}
	}
	return msg{"type": "read-only"}
}

func usage(u *heddlev1.TokenUsage) msg {
	return msg{
		"input_tokens": u.GetInputTokens(), "cached_input_tokens": u.GetCachedInputTokens(), "output_tokens": u.GetOutputTokens(),
		"reasoning_output_tokens": u.GetReasoningOutputTokens(), "total_tokens": u.GetTotalTokens(),
	}
}

func windowOf(u *heddlev1.ThreadTokenUsage) any {
	if w := u.GetModelContextWindow(); w > 0 {
		return w
	}
	return nil
}
