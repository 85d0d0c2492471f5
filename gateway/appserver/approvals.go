package appserver

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

// approvalRequest makes the question that an approval puts to a client.
func approvalRequest(a *heddlev1.Approval, extended bool) (method string, params any) {
	out := map[string]any{
		"threadId": a.GetThreadId(), "turnId": a.GetTurnId(), "itemId": a.GetItemId(), "startedAtMs": startedAt(a),
	}
	if a.GetReason() != "" {
		out["reason"] = a.GetReason()
	}
	if extended {
		out["risk"] = riskName(a.GetRisk())
		out["actionHash"] = hex.EncodeToString(a.GetActionHash())
		out["expiresAtMs"] = a.GetExpiresAtMs()
	}
	if method, params := toolRequest(a); method != "" {
		return method, params
	}
	if _, given := out["reason"]; !given && a.GetCommand() == nil {
		out["reason"] = nil
	}
	if p := a.GetPermissions(); p != nil {
		out["environmentId"], out["cwd"], out["permissions"] = localEnvironment, p.GetCwd(), protocol.PermissionsAsked(p)
		return "item/permissions/requestApproval", out
	}
	if f := a.GetFileChange(); f != nil {
		out["grantRoot"] = nil
		if f.GetGrantRoot() != "" {
			out["grantRoot"] = f.GetGrantRoot()
		}
		return "item/fileChange/requestApproval", out
	}
	c := a.GetCommand()
	out["kind"], out["environmentId"] = "command", localEnvironment
	out["command"], out["cwd"] = protocol.Clip(c.GetCommand()), c.GetCwd()
	out["commandActions"] = protocol.FromActions(c.GetActions())
	if n := c.GetNetwork(); n != nil {
		askAboutHost(out, a.GetId(), n)
		return "item/commandExecution/requestApproval", out
	}
	decisions := []any{"accept"}
	if prefix := c.GetProposedAmendment(); len(prefix) > 0 {
		out["proposedExecpolicyAmendment"] = prefix
		decisions = append(decisions, amendment(prefix))
	}
	out["availableDecisions"] = append(decisions, "cancel")
	return "item/commandExecution/requestApproval", out
}

func amendment(prefix []string) any {
	return map[string]any{"acceptWithExecpolicyAmendment": map[string]any{"execpolicy_amendment": prefix}}
}

func startedAt(a *heddlev1.Approval) int64 {
	if a.GetItemStartedAtMs() != 0 {
		return a.GetItemStartedAtMs()
	}
	return a.GetRequestedAtMs()
}

func riskName(r heddlev1.Risk) string {
	switch r {
	case heddlev1.Risk_RISK_LOW:
		return "low"
	case heddlev1.Risk_RISK_MEDIUM:
		return "medium"
	case heddlev1.Risk_RISK_HIGH:
		return "high"
	}
	return "unknown"
}

// decisionOf reads the answer to an approval. Everything that is not one of the
// protocol's decisions is unusable.
func decisionOf(result json.RawMessage, file bool) (heddlev1.Decision, []string) {
	const unusable = heddlev1.Decision_DECISION_UNUSABLE
	decision := member(result, "decision")
	var name string
	if json.Unmarshal(decision, &name) == nil {
		switch name {
		case "accept":
			return heddlev1.Decision_DECISION_ACCEPT, nil
		case "acceptForSession":
			return heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION, nil
		case "decline":
			return heddlev1.Decision_DECISION_DECLINE, nil
		case "cancel":
			return heddlev1.Decision_DECISION_CANCEL, nil
		}
		return unusable, nil
	}
	var prefix []string
	amendment := member(member(decision, "acceptWithExecpolicyAmendment"), "execpolicy_amendment")
	if file || json.Unmarshal(amendment, &prefix) != nil || len(prefix) == 0 {
		return unusable, nil
	}
	return heddlev1.Decision_DECISION_ACCEPT_WITH_AMENDMENT, prefix
}

// member is one member of an object by its exact name, null when there is none.
// What permits something is not taken from a name that only looks like it, as
// decoding into a struct would.
func member(object json.RawMessage, name string) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil || all[name] == nil {
		return json.RawMessage("null")
	}
	return all[name]
}

// answer takes a client's answer to a question. Answers to questions that were
// never put or are closed are ignored.
func (c *client) answer(m jsonrpc.Message) {
	id, ok := m.ID.Int()
	if !ok {
		return
	}
	c.mu.Lock()
	a := c.asked[id]
	if a == nil {
		c.mu.Unlock()
		return
	}
	delete(c.asked, id)
	c.tasks.Add(1)
	c.mu.Unlock()
	decision, prefix := heddlev1.Decision_DECISION_UNUSABLE, []string(nil)
	given, isTool := toolAnswer(a, m)
	switch {
	case given != nil:
		decision = heddlev1.Decision_DECISION_ACCEPT
	case a.GetElicitation() != nil && m.Kind == jsonrpc.Response:
		decision, given = elicited(m.Result)
	case m.Kind == jsonrpc.Response && !isTool:
		decision, prefix = decisionOf(m.Result, a.GetFileChange() != nil)
		if d, ok := decisionOnHost(m.Result, a.GetCommand().GetNetwork()); ok {
			decision = d
		}
	}
	go func() {
		defer c.tasks.Done()
		// An answer that was given counts, even if the client leaves right after.
		err := c.srv.session.Do(context.WithoutCancel(c.ctx), func(ctx context.Context, cc grpc.ClientConnInterface) error {
			_, err := heddlev1.NewApprovalServiceClient(cc).ResolveApproval(ctx, &heddlev1.ResolveApprovalRequest{
				ThreadId: a.GetThreadId(), ApprovalId: a.GetId(), Decision: decision, Amendment: prefix, Answer: given,
			})
			return err
		})
		if err != nil {
			c.srv.log.Warn("passing a decision on failed", "thread", a.GetThreadId(), "request", id, "error", err)
		}
	}()
}
