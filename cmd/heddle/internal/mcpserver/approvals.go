package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// ask puts an approval to the client, in the background. A client that cannot be
// asked gets the approval's declared default.
func (c *call) ask(ctx context.Context, a *heddlev1.Approval) {
	if _, open := c.asks[a.GetId()]; open || a.GetReviewer() != "" {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	c.asks[a.GetId()] = cancel
	c.srv.calls.Add(1)
	go func() {
		defer c.srv.calls.Done()
		decision, answer, prefix := c.decide(ctx, a)
		if ctx.Err() != nil {
			return // decided elsewhere, or the call was cancelled
		}
		err := c.srv.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
			_, err := heddlev1.NewApprovalServiceClient(cc).ResolveApproval(ctx, &heddlev1.ResolveApprovalRequest{
				ThreadId: a.GetThreadId(), ApprovalId: a.GetId(), Decision: decision, Answer: answer, Amendment: prefix,
			})
			return err
		})
		if err != nil && ctx.Err() == nil {
			c.srv.cfg.Logger.Warn("pass a decision on", "thread", a.GetThreadId(), "approval", a.GetId(), "error", err)
		}
	}()
}

func (c *call) decide(ctx context.Context, a *heddlev1.Approval) (heddlev1.Decision, *structpb.Value, []string) {
	params := c.question(a)
	if params == nil {
		return heddlev1.Decision_DECISION_UNUSABLE, nil, nil
	}
	result, err := c.req.Session.Elicit(ctx, params)
	if err != nil {
		c.srv.cfg.Logger.Debug("ask the client", "approval", a.GetId(), "error", err)
		return byDefault(a), nil, nil
	}
	if a.GetElicitation() != nil {
		return elicited(result)
	}
	decision, prefix := decisionOf(result, a.GetCommand() != nil)
	return decision, nil, prefix
}

// byDefault is what holds where nobody answers.
func byDefault(a *heddlev1.Approval) heddlev1.Decision {
	if d := a.GetDefaultDecision(); d != heddlev1.Decision_DECISION_UNSPECIFIED {
		return d
	}
	return heddlev1.Decision_DECISION_DECLINE
}

// question is an approval as an elicitation: a yes or no, without a form; nil
// for what has no such form.
func (c *call) question(a *heddlev1.Approval) *mcp.ElicitParams {
	fields := map[string]any{
		"threadId": a.GetThreadId(), "codex_mcp_tool_call_id": fmt.Sprint(c.view.requestID), "codex_event_id": a.GetTurnId(), "codex_call_id": a.GetItemId(),
	}
	p := &mcp.ElicitParams{
		Mode: "form", Meta: mcp.Meta{metaFields: fields},
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
	}
	switch {
	case a.GetCommand() != nil:
		cmd := a.GetCommand()
		fields["codex_elicitation"] = "exec-approval"
		fields["codex_command"], fields["codex_cwd"], fields["codex_parsed_cmd"] = argv(cmd.GetArgv(), cmd.GetCommand()), cmd.GetCwd(), parsed(cmd.GetActions())
		if n := cmd.GetNetwork(); n != nil {
			fields["codex_network"] = map[string]any{"host": n.GetHost(), "port": n.GetPort(), "protocol": n.GetProtocol()}
			p.Message = fmt.Sprintf("Allow `%s` to reach %s:%d?", clip(cmd.GetCommand()), n.GetHost(), n.GetPort())
			break
		}
		how := ""
		if cmd.GetEscalated() {
			how = " without the sandbox"
		}
		p.Message = fmt.Sprintf("Allow heddle to run `%s` in `%s`%s?", clip(cmd.GetCommand()), cmd.GetCwd(), how)
	case a.GetFileChange() != nil:
		f := a.GetFileChange()
		fields["codex_elicitation"], fields["codex_changes"] = "patch-approval", changes(f.GetChanges())
		p.Message = "Allow heddle to apply these changes?"
		for i, u := range f.GetChanges() {
			if i == 20 {
				p.Message += fmt.Sprintf("\n... and %d more files", len(f.GetChanges())-i)
				break
			}
			p.Message += "\n" + u.GetKind() + " " + u.GetPath()
		}
		if f.GetGrantRoot() != "" {
			fields["codex_grant_root"] = f.GetGrantRoot()
		}
	case a.GetElicitation() != nil:
		return relayed(a.GetElicitation(), p)
	default:
		return nil
	}
	if a.GetReason() != "" {
		fields["codex_reason"] = a.GetReason()
		p.Message += "\nReason: " + clip(a.GetReason())
	}
	return p
}

// relayed passes the question of an MCP server on which the turn uses, or the
// one whether a tool of such a server may be called.
func relayed(e *heddlev1.ElicitationRequest, p *mcp.ElicitParams) *mcp.ElicitParams {
	fields, _ := p.Meta[metaFields].(map[string]any)
	fields["codex_elicitation"], fields["codex_mcp_server"] = "mcp-elicitation", e.GetServer()
	if e.GetTool() != "" {
		fields["codex_elicitation"], fields["codex_mcp_tool"] = "mcp-tool-approval", e.GetTool()
	}
	for k, v := range e.GetMeta().AsMap() {
		p.Meta[k] = v
	}
	p.Meta[metaFields] = fields
	p.Message = e.GetMessage()
	if e.GetMode() == "url" {
		p.Mode, p.RequestedSchema, p.URL, p.ElicitationID = "url", nil, e.GetUrl(), e.GetElicitationId()
	} else if e.GetRequestedSchema() != nil {
		p.RequestedSchema = e.GetRequestedSchema().AsInterface()
	}
	return p
}

// elicited reads the answer to a relayed question.
func elicited(r *mcp.ElicitResult) (heddlev1.Decision, *structpb.Value, []string) {
	switch r.Action {
	case "accept":
		answer := map[string]any{}
		if r.Content != nil {
			answer["content"] = r.Content
		}
		v, err := structpb.NewValue(answer)
		if err != nil {
			return heddlev1.Decision_DECISION_UNUSABLE, nil, nil
		}
		if persist := r.Meta["persist"]; persist == "session" || persist == "always" {
			return heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION, v, nil
		}
		return heddlev1.Decision_DECISION_ACCEPT, v, nil
	case "decline":
		return heddlev1.Decision_DECISION_DECLINE, nil, nil
	case "cancel":
		return heddlev1.Decision_DECISION_CANCEL, nil, nil
	}
	return heddlev1.Decision_DECISION_UNUSABLE, nil, nil
}

// decisions are the names of earlier releases and of the app-server protocol.
var decisions = map[string]heddlev1.Decision{
	"approved": heddlev1.Decision_DECISION_ACCEPT, "accept": heddlev1.Decision_DECISION_ACCEPT,
	"approved_for_session": heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION, "acceptForSession": heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION,
	"denied": heddlev1.Decision_DECISION_DECLINE, "decline": heddlev1.Decision_DECISION_DECLINE, "timed_out": heddlev1.Decision_DECISION_DECLINE,
	"abort": heddlev1.Decision_DECISION_CANCEL, "cancel": heddlev1.Decision_DECISION_CANCEL,
}

// decisionOf reads the answer to an approval: the protocol's action, and a
// decision beside it or in its content, which older clients give. The action
// alone is enough; a decision makes an accepted one more precise. An answer whose
// parts contradict each other does not allow anything.
func decisionOf(r *mcp.ElicitResult, command bool) (heddlev1.Decision, []string) {
	given, prefix, ok := named(r, command)
	if !ok {
		return heddlev1.Decision_DECISION_UNUSABLE, nil
	}
	switch r.Action {
	case "accept":
		if given == heddlev1.Decision_DECISION_UNSPECIFIED {
			return heddlev1.Decision_DECISION_ACCEPT, nil
		}
		return given, prefix
	case "decline", "cancel":
		if given == heddlev1.Decision_DECISION_CANCEL {
			return given, nil
		}
		return heddlev1.Decision_DECISION_DECLINE, nil
	case "":
		if given != heddlev1.Decision_DECISION_UNSPECIFIED {
			return given, prefix
		}
	}
	return heddlev1.Decision_DECISION_UNUSABLE, nil
}

// named reads a decision that is given by name; unspecified when there is none.
func named(r *mcp.ElicitResult, command bool) (_ heddlev1.Decision, prefix []string, ok bool) {
	value, given := r.Meta[metaDecision]
	if !given {
		value, given = r.Content["decision"]
	}
	if !given {
		return heddlev1.Decision_DECISION_UNSPECIFIED, nil, true
	}
	switch v := value.(type) {
	case string:
		d, known := decisions[v]
		return d, nil, known
	case map[string]any:
		raw, err := json.Marshal(v)
		var rule struct {
			Amendment struct {
				Prefix []string `json:"proposed_execpolicy_amendment"`
			} `json:"approved_execpolicy_amendment"`
		}
		if err == nil && command && json.Unmarshal(raw, &rule) == nil && len(rule.Amendment.Prefix) > 0 {
			return heddlev1.Decision_DECISION_ACCEPT_WITH_AMENDMENT, rule.Amendment.Prefix, true
		}
	}
	return heddlev1.Decision_DECISION_UNUSABLE, nil, false
}

// clip bounds a text that a person is shown in a question.
func clip(text string) string {
	const most = 4000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
