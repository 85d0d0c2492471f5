package appserver

import (
	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

// toolRequest makes the request of a question that asks for no approval: one to
// the person, or to run a tool of the client. method is empty for an approval.
func toolRequest(a *heddlev1.Approval) (method string, params any) {
	if q := a.GetUserInput(); q != nil {
		return "item/tool/requestUserInput", list{
			"threadId": a.GetThreadId(), "turnId": a.GetTurnId(), "itemId": a.GetItemId(),
			"questions": protocol.InputQuestions(q.GetQuestions()), "isBlocking": true, "autoResolutionMs": nil,
		}
	}
	if e := a.GetElicitation(); e != nil {
		return "mcpServer/elicitation/request", elicitation(a, e)
	}
	t := a.GetDynamicTool()
	if t == nil {
		return "", nil
	}
	var namespace *string
	if t.GetNamespace() != "" {
		namespace = &t.Namespace
	}
	return "item/tool/call", list{
		"threadId": a.GetThreadId(), "turnId": a.GetTurnId(), "callId": t.GetCallId(), "namespace": namespace,
		"tool": t.GetTool(), "arguments": t.GetArguments().AsInterface(),
	}
}

// toolAnswer reads the answer to such a request; nil when it is unusable.
func toolAnswer(a *heddlev1.Approval, m jsonrpc.Message) (answer *structpb.Value, isTool bool) {
	input, tool, more := a.GetUserInput() != nil, a.GetDynamicTool() != nil, a.GetPermissions() != nil
	switch {
	case m.Kind != jsonrpc.Response:
	case input:
		answer = protocol.ToAnswers(m.Result)
	case tool:
		answer = protocol.ToToolResult(m.Result)
	case more:
		answer = protocol.ToGranted(m.Result)
	}
	return answer, input || tool || more
}
