package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/controlplane/mcp"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const mcpNever = "MCP tool call requires approval, but approval policy is never"

// awaitServers starts the thread's MCP servers where that was not done, and
// waits for those that start, bounded.
func (t *turn) awaitServers() {
	if t.private {
		return
	}
	set, err := t.lt.startServers(t.ctx, t.row.GetSessionId())
	if err != nil {
		if t.ctx.Err() == nil {
			t.agent.cfg.Logger.Warn("start MCP servers", "thread", t.lt.id, "error", err)
		}
		return
	}
	if set != nil {
		set.Await(t.ctx, serversWait)
	}
}

// mcpTools are the tools of the thread's MCP servers, for the model.
func (t *turn) mcpTools() []model.Tool {
	set := t.lt.mcpSet()
	if set == nil || t.private {
		return nil
	}
	var list []model.Tool
	for _, m := range set.Tools() {
		list = append(list, model.Tool{Kind: model.ToolFunction, Name: m.Alias, Namespace: m.Namespace, Description: m.Description, Parameters: m.Schema})
	}
	return list
}

// mcpTool is the tool that a call names; nil for none.
func (t *turn) mcpTool(c *heddlev1.ToolCall) *mcp.Tool {
	set := t.lt.mcpSet()
	if set == nil || t.private || c.GetFreeform() || c.GetNamespace() == "" {
		return nil
	}
	return set.Find(c.GetNamespace(), c.GetName())
}

// mcpRun is one call of an MCP server's tool.
type mcpRun struct {
	t     *turn
	item  *heddlev1.Item
	args  map[string]any
	asked *approval.Pending
	began time.Time
}

// mcpCall decides whether the person is asked before a tool is called.
func (t *turn) mcpCall(c *heddlev1.ToolCall, m *mcp.Tool) *call {
	var args map[string]any
	if err := json.Unmarshal([]byte(cmp.Or(strings.TrimSpace(c.GetArguments()), "{}")), &args); err != nil {
		return said(c, "failed to parse function arguments: "+err.Error())
	}
	value, err := structpb.NewValue(args)
	if err == nil {
		err = mcp.CheckArguments(args)
	}
	if err != nil {
		return said(c, "failed to parse function arguments: "+err.Error())
	}
	r := &mcpRun{t: t, args: args, item: t.begunItem(c.GetCallId())}
	r.item.Content = &heddlev1.Item_McpToolCall{McpToolCall: &heddlev1.McpToolCall{Server: m.Server, Tool: m.Name, Arguments: value, ReadOnlyHint: m.ReadOnly}}
	k := &call{req: c, events: []*heddlev1.Event{itemStarted(r.item)}, do: r.run, skip: func() { r.fail("the turn was interrupted before the call was made") }}
	switch {
	case !m.Asks || t.lt.mcpAllowed(m.Server, m.Name) || t.lt.remembered().ActionAllowed(mcpHash(r.item.GetMcpToolCall())) || fullyTrusted(t.settings()):
		return k
	case t.settings().GetApprovalPolicy() == approval.Never:
		k.do = func(context.Context) result { return r.fail(mcpNever) }
		return k
	case !asksElicitations(t.settings()):
		k.do = func(context.Context) result {
			return r.fail("MCP tool call requires approval, but the approval policy lets none be asked for")
		}
		return k
	}
	a, err := t.newApproval(r.item, "", heddlev1.Risk_RISK_MEDIUM, mcpHash(r.item.GetMcpToolCall()))
	if err != nil {
		return said(c, "MCP tool call failed: "+err.Error())
	}
	a.Subject = &heddlev1.Approval_Elicitation{Elicitation: toolQuestion(m, value)}
	r.asked = t.open(a)
	k.events = append(k.events, approvalRequested(a))
	k.undo = r.asked.Suspend
	k.skip = func() {
		t.cancelQuestion(r.asked)
		r.fail("the turn was interrupted before the call was made")
	}
	return k
}

// fullyTrusted is true where nothing is contained and nothing is asked.
func fullyTrusted(s *heddlev1.ThreadSettings) bool {
	return s.GetApprovalPolicy() == approval.Never && s.GetSandbox().GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
}

// asksElicitations reports whether questions of MCP servers reach the person.
func asksElicitations(s *heddlev1.ThreadSettings) bool {
	switch s.GetApprovalPolicy() {
	case approval.Never:
		return false
	case approval.Granular:
		return s.GetGranularApproval().GetFields()["mcp_elicitations"].GetBoolValue()
	}
	return true
}

// mcpHash is the digest of what is asked for and then called.
func mcpHash(m *heddlev1.McpToolCall) []byte {
	h := sha256.New()
	args, err := json.Marshal(m.GetArguments().AsInterface())
	if err != nil {
		args = []byte(err.Error())
	}
	fmt.Fprintf(h, "mcp\x00%d\x00%s\x00%d\x00%s\x00%s", len(m.GetServer()), m.GetServer(), len(m.GetTool()), m.GetTool(), args)
	return h.Sum(nil)
}

func toolQuestion(m *mcp.Tool, args *structpb.Value) *heddlev1.ElicitationRequest {
	meta := map[string]*structpb.Value{
		"codex_approval_kind": structpb.NewStringValue("mcp_tool_call"),
		"persist":             structpb.NewStringValue("session"),
		"tool_name":           structpb.NewStringValue(m.Name),
		"tool_params":         args,
	}
	if m.Title != "" {
		meta["tool_title"] = structpb.NewStringValue(m.Title)
	}
	if m.Description != "" {
		meta["tool_description"] = structpb.NewStringValue(m.Description)
	}
	return &heddlev1.ElicitationRequest{
		Server: m.Server, Tool: m.Name, Mode: "form", Message: fmt.Sprintf("Allow the MCP server %s to run its tool %q?", m.Server, m.Name),
		RequestedSchema: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"type": structpb.NewStringValue("object"), "properties": structpb.NewStructValue(&structpb.Struct{}),
		}}),
		Meta: &structpb.Struct{Fields: meta},
	}
}

func (lt *live) mcpAllowed(server, name string) bool {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.servers.allowed[server+"\x00"+name]
}

// run waits for the approval, if there is one to wait for, and calls the tool.
func (r *mcpRun) run(ctx context.Context) result {
	t, m := r.t, r.item.GetMcpToolCall()
	if r.asked != nil {
		a, _, ok := t.awaitDecision(ctx, r.asked)
		if suspended(ctx) {
			return result{}
		}
		if !ok {
			r.fail("the turn was interrupted before an answer")
			return result{}
		}
		if why := refusal(a); why != "" {
			return r.fail(why)
		}
		if a.GetDecision() == heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION {
			t.lt.mu.Lock()
			t.lt.servers.allowed[m.GetServer()+"\x00"+m.GetTool()] = true
			t.lt.mu.Unlock()
		}
	}
	set := t.lt.mcpSet()
	if set == nil {
		return r.fail(fmt.Sprintf("MCP server `%s` is not there any more", m.GetServer()))
	}
	r.began = time.Now()
	res, err := set.Call(ctx, m.GetServer(), &mcp.Call{Tool: m.GetTool(), Arguments: r.args, Ask: r.elicit, Progress: func(message string) {
		t.record(&heddlev1.Event{TurnId: t.id(), Payload: &heddlev1.Event_McpProgress{McpProgress: &heddlev1.McpProgress{ItemId: r.item.GetId(), Message: message}}})
	}})
	switch {
	case suspended(ctx):
		return result{}
	case err != nil && ctx.Err() != nil:
		r.fail("the turn was interrupted")
		return result{}
	case err != nil:
		return r.fail(err.Error())
	}
	m.Result = res
	return r.finish(!res.GetFields()["isError"].GetBoolValue())
}

// refusal is why a call that was asked for is not made; empty when it is.
func refusal(a *heddlev1.Approval) string {
	switch {
	case accepts(a.GetDecision()):
		return ""
	case a.GetDecidedBy() == approval.ByDeadline:
		return "the approval of the MCP tool call was not given in time"
	case a.GetDecidedBy() == approval.ByReviewer:
		return "MCP tool call " + refusedBy(a)
	case a.GetDecision() == heddlev1.Decision_DECISION_CANCEL:
		return "user cancelled MCP tool call"
	}
	return "user rejected MCP tool call"
}

// fail completes the item without a result.
func (r *mcpRun) fail(why string) result {
	r.item.GetMcpToolCall().Error = why
	return r.finish(false)
}

func (r *mcpRun) finish(success bool) result {
	m := r.item.GetMcpToolCall()
	r.item.CompletedAtMs = r.t.agent.now()
	if !r.began.IsZero() {
		m.DurationMs = time.Since(r.began).Milliseconds()
	}
	r.item.Status = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
	if !success {
		r.item.Status = heddlev1.ItemStatus_ITEM_STATUS_FAILED
	}
	r.t.record(itemCompleted(r.item))
	return mcpResult(m)
}

// mcpResult is what the model is told of a call that ended.
func mcpResult(m *heddlev1.McpToolCall) result {
	if m.GetResult() == nil {
		return text(m.GetError())
	}
	said := fmt.Sprintf("Wall time: %.4f seconds\nOutput:\n", float64(m.GetDurationMs())/1000)
	fields := m.GetResult().GetFields()
	if v := fields["structuredContent"]; v != nil {
		if _, null := v.GetKind().(*structpb.Value_NullValue); !null {
			return text(said + clipped(asJSON(v)))
		}
	}
	out := text(said)
	first := out.parts[0].GetPart().(*heddlev1.HistoryPart_Text)
	room := tool.DefaultMaxTokens * 4
	for i, v := range fields["content"].GetListValue().GetValues() {
		f := v.GetStructValue().GetFields()
		if f["type"].GetStringValue() == "image" {
			url := "data:" + f["mimeType"].GetStringValue() + ";base64," + f["data"].GetStringValue()
			out.parts = append(out.parts, &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_ImageUrl{ImageUrl: url}})
			continue
		}
		piece := asJSON(v)
		if f["type"].GetStringValue() == "text" {
			piece = f["text"].GetStringValue()
		}
		if room <= 0 {
			continue
		}
		piece = clipped(piece)
		room -= len(piece)
		if i == 0 {
			first.Text += piece
			continue
		}
		out.parts = append(out.parts, text(piece).parts...)
	}
	return out
}

func clipped(s string) string {
	out, _ := tool.Truncate([]byte(s), tool.DefaultMaxTokens)
	return out
}

func asJSON(v *structpb.Value) string {
	raw, err := json.Marshal(v.AsInterface())
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// elicit puts a question that the server has in the middle of the call to the
// person. ctx is that of the server's request.
func (r *mcpRun) elicit(ctx context.Context, q *mcp.Question) (*mcp.Answer, error) {
	t := r.t
	if !asksElicitations(t.settings()) {
		return &mcp.Answer{Action: "decline"}, nil
	}
	schema, err := structpb.NewValue(q.Schema)
	if err != nil {
		return nil, err
	}
	var meta *structpb.Struct
	if len(q.Meta) > 0 && mcp.CheckArguments(q.Meta) == nil {
		if meta, err = structpb.NewStruct(q.Meta); err != nil {
			meta = nil
		}
	}
	a, err := t.newApproval(r.item, "", heddlev1.Risk_RISK_UNSPECIFIED, nil)
	if err != nil {
		return nil, err
	}
	a.Subject = &heddlev1.Approval_Elicitation{Elicitation: &heddlev1.ElicitationRequest{
		Server: q.Server, Mode: q.Mode, Message: q.Message, RequestedSchema: schema, Url: q.URL, ElicitationId: q.ElicitationID, Meta: meta,
	}}
	p := t.open(a)
	if err := t.commit(approvalRequested(a)); err != nil {
		p.Suspend()
		return nil, err
	}
	// The question ends with the turn, or with the server's request.
	wait, cancel := context.WithCancel(t.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	decided, _, ok := t.awaitDecision(wait, p)
	if !ok {
		return &mcp.Answer{Action: "cancel"}, nil
	}
	return serverAnswer(decided), nil
}

func serverAnswer(a *heddlev1.Approval) *mcp.Answer {
	switch {
	case accepts(a.GetDecision()):
		return &mcp.Answer{Action: "accept", Content: a.GetAnswer().GetStructValue().GetFields()["content"].GetStructValue().AsMap()}
	case a.GetDecision() == heddlev1.Decision_DECISION_CANCEL:
		return &mcp.Answer{Action: "cancel"}
	}
	return &mcp.Answer{Action: "decline"}
}

// resumeMCP goes on with a call that was open at a restart. A call that may have
// been made is not made again (I3).
func (t *turn) resumeMCP(ctx context.Context, c *pastCall) result {
	m := c.item.GetMcpToolCall()
	if c.ended {
		return mcpResult(m)
	}
	args, _ := m.GetArguments().AsInterface().(map[string]any)
	r := &mcpRun{t: t, item: c.item, args: args}
	asked := t.resume.asked[c.item.GetId()]
	if asked != nil && asked.Approval().GetElicitation().GetTool() != "" {
		r.asked = asked
		t.awaitServers()
		return r.run(ctx)
	}
	t.cancelQuestion(asked)
	if e := c.decided.GetElicitation(); e.GetTool() != "" {
		if why := refusal(c.decided); why != "" {
			return r.fail(why)
		}
	}
	return r.fail("MCP tool call failed: " + unknownText)
}
