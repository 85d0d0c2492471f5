package appserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"

	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// reviewNote is the params of the notifications about a review of an action.
type reviewNote struct {
	turnRef
	ReviewID     string         `json:"reviewId"`
	TargetItemID *string        `json:"targetItemId"`
	StartedAtMs  int64          `json:"startedAtMs"`
	Review       reviewState    `json:"review"`
	Action       map[string]any `json:"action"`
	// The rest is set at the end.
	CompletedAtMs  int64  `json:"completedAtMs,omitempty"`
	DecisionSource string `json:"decisionSource,omitempty"`
}

type reviewState struct {
	Status            string  `json:"status"`
	RiskLevel         *string `json:"riskLevel"`
	UserAuthorization *string `json:"userAuthorization"`
	Rationale         *string `json:"rationale"`
}

type reviewerWarning struct {
	ThreadID string `json:"threadId"`
	Message  string `json:"message"`
}

func reviewStarted(e *heddlev1.Event, a *heddlev1.Approval) note {
	return note{method: "item/autoApprovalReview/started", seq: e.GetSeq(), params: reviewOf(a, reviewState{Status: "inProgress"})}
}

func reviewCompleted(e *heddlev1.Event, a *heddlev1.Approval) note {
	v := a.GetReview()
	s := reviewState{Status: v.GetStatus(), RiskLevel: filled(v.GetRiskLevel()), UserAuthorization: filled(v.GetUserAuthorization()), Rationale: filled(v.GetRationale())}
	if v == nil {
		// It was not the reviewer who decided.
		s.Status = map[string]string{"deadline": "timedOut"}[a.GetDecidedBy()]
		if s.Status == "" {
			s.Status = "aborted"
		}
	}
	n := reviewOf(a, s)
	n.CompletedAtMs, n.DecisionSource = a.GetDecidedAtMs(), "agent"
	return note{method: "item/autoApprovalReview/completed", seq: e.GetSeq(), params: n}
}

func reviewOf(a *heddlev1.Approval, s reviewState) reviewNote {
	n := reviewNote{turnRef: turnRef{a.GetThreadId(), a.GetTurnId()}, ReviewID: a.GetId(), StartedAtMs: a.GetRequestedAtMs(), Review: s, Action: reviewedAction(a)}
	// A connection is no item; the command that wants it is another matter.
	if a.GetCommand().GetNetwork() == nil {
		n.TargetItemID = filled(a.GetItemId())
	}
	return n
}

func filled(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// reviewedAction is what is judged, in the protocol's shape.
func reviewedAction(a *heddlev1.Approval) map[string]any {
	c := a.GetCommand()
	switch {
	case c.GetNetwork() != nil:
		n := c.GetNetwork()
		return map[string]any{
			"type": "networkAccess", "host": n.GetHost(), "port": n.GetPort(), "protocol": n.GetProtocol(),
			"target": fmt.Sprintf("%s://%s", n.GetProtocol(), net.JoinHostPort(n.GetHost(), strconv.Itoa(int(n.GetPort())))),
		}
	case c.GetStdin() != nil:
		return map[string]any{
			"type": "writeStdin", "approvalId": a.GetId(), "cwd": c.GetCwd(), "processId": c.GetStdin().GetProcessId(), "stdin": protocol.Clip(c.GetStdin().GetText()),
		}
	case c != nil:
		return map[string]any{"type": "command", "source": "unifiedExec", "command": protocol.Clip(c.GetCommand()), "cwd": c.GetCwd()}
	case a.GetFileChange() != nil:
		files := []string{}
		for _, f := range a.GetFileChange().GetChanges() {
			files = append(files, f.GetPath())
			if f.GetMovePath() != "" {
				files = append(files, f.GetMovePath())
			}
		}
		return map[string]any{"type": "applyPatch", "cwd": a.GetFileChange().GetCwd(), "files": files}
	}
	e := a.GetElicitation()
	title := e.GetMeta().GetFields()["tool_title"].GetStringValue()
	return map[string]any{"type": "mcpToolCall", "server": e.GetServer(), "toolName": e.GetTool(), "toolTitle": filled(title), "connectorId": nil, "connectorName": nil}
}

// overrideDenial lets the person allow what the reviewer denied. The event names
// the review: its id is reviewId of the notifications.
func (s *Server) overrideDenial(ctx context.Context, _ *call, p *protocol.ApproveDeniedParams) (any, error) {
	var event struct {
		ID       string `json:"id"`
		ReviewID string `json:"reviewId"`
	}
	if err := json.Unmarshal(p.Event, &event); err != nil {
		return nil, invalid("invalid Guardian denial event: " + err.Error())
	}
	if event.ID == "" {
		event.ID = event.ReviewID
	}
	if event.ID == "" {
		return nil, invalid("invalid Guardian denial event: missing field `id`")
	}
	err := s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		_, err := heddlev1.NewApprovalServiceClient(cc).OverrideDenial(ctx, &heddlev1.OverrideDenialRequest{ThreadId: p.ThreadID, ApprovalId: event.ID})
		return err
	})
	switch {
	case errdefs.Is(err, errdefs.ApprovalNotFound):
		return nil, invalid("there is no denied action " + event.ID + " in this thread")
	case err != nil:
		return nil, named(err, textNotFound, p.ThreadID)
	}
	return list{}, nil
}
