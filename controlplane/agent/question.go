package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/approval"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// inputCall asks the person the model's questions.
func (t *turn) inputCall(c *heddlev1.ToolCall, args *tool.RequestUserInput) *call {
	if !planning(t.settings()) {
		return said(c, "request_user_input is unavailable in Default mode")
	}
	asked := &heddlev1.UserInputRequest{}
	for _, q := range args.Questions {
		out := &heddlev1.UserInputRequest_Question{Id: q.ID, Header: q.Header, Question: q.Question}
		for _, o := range q.Options {
			out.Options = append(out.Options, &heddlev1.UserInputRequest_Option{Label: o.Label, Description: o.Description})
		}
		asked.Questions = append(asked.Questions, out)
	}
	a, err := t.newApproval(&heddlev1.Item{Id: c.GetCallId(), StartedAtMs: t.agent.now()}, "", heddlev1.Risk_RISK_UNSPECIFIED, nil)
	if err != nil {
		return said(c, "request_user_input failed: "+err.Error())
	}
	a.Subject = &heddlev1.Approval_UserInput{UserInput: asked}
	p := t.open(a)
	return &call{req: c, events: []*heddlev1.Event{approvalRequested(a)}, undo: p.Suspend,
		do:   func(ctx context.Context) result { return t.awaitInput(ctx, p) },
		skip: func() { t.cancelQuestion(p) },
	}
}

func (t *turn) awaitInput(ctx context.Context, p *approval.Pending) result {
	return t.answered(ctx, p, inputResult)
}

// answered waits for a question's answer and makes the call's result of it.
func (t *turn) answered(ctx context.Context, p *approval.Pending, use func(*heddlev1.Approval) result) result {
	began := time.Now()
	a, _, ok := t.awaitDecision(ctx, p)
	if !ok {
		if suspended(ctx) {
			return result{}
		}
		return text(abortedText(time.Since(began)))
	}
	return use(a)
}

// inputResult is the answer as JSON.
func inputResult(a *heddlev1.Approval) result {
	switch {
	case a.GetDecidedBy() == approval.ByDeadline:
		return text("request_user_input was not answered in time")
	case a.GetDecision() != heddlev1.Decision_DECISION_ACCEPT || a.GetAnswer() == nil:
		return text("request_user_input was cancelled before receiving a response")
	}
	raw, err := json.Marshal(a.GetAnswer().AsInterface())
	if err != nil {
		return text("request_user_input failed: " + err.Error())
	}
	return text(string(raw))
}

// resumeAsked goes on with a call that put a question to the client before a
// restart; nil for any other call.
func (t *turn) resumeAsked(c *pastCall) *call {
	k := &call{req: c.req}
	if d := c.item.GetDynamicToolCall(); d != nil {
		r := &dynamicRun{t: t, item: c.item, asked: t.resume.asked[c.item.GetId()]}
		k.do = func(ctx context.Context) result {
			switch {
			case c.ended:
				return contentResult(d.GetContentItems())
			case r.asked == nil:
				return r.finish(c.decided)
			}
			return r.run(ctx)
		}
		return k
	}
	if c.item.GetAgentCall() != nil {
		return t.resumeAgents(c)
	}
	if c.item.GetMcpToolCall() != nil {
		k.do = func(ctx context.Context) result { return t.resumeMCP(ctx, c) }
		return k
	}
	p := t.resume.asked[c.req.GetCallId()]
	if p.Approval().GetPermissions() != nil || c.decided.GetPermissions() != nil {
		return t.resumePermissions(c, p)
	}
	if p.Approval().GetUserInput() == nil && c.decided.GetUserInput() == nil {
		return nil
	}
	k.do = func(ctx context.Context) result {
		if p == nil {
			return inputResult(c.decided)
		}
		return t.awaitInput(ctx, p)
	}
	return k
}
