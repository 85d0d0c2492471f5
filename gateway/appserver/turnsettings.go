package appserver

import (
	"context"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

// turnSettingsUpdate changes settings of a running turn for its next steps. A
// turn stays in its environment and its folder.
func (s *Server) turnSettingsUpdate(ctx context.Context, _ *call, p *protocol.TurnSettingsParams) (any, error) {
	cwd, err := placeOf("turn/settings/update", p.Environments)
	if err != nil {
		return nil, err
	}
	if s.thread(p.ThreadID) == nil {
		return nil, invalid(textNotFound + p.ThreadID)
	}
	o := &heddlev1.TurnOverrides{
		Model: text(p.Model), ReasoningEffort: text(p.Effort), ReasoningSummary: text(p.Summary), ApprovalsReviewer: reviewerOf(p.ApprovalsReviewer),
	}
	if p.ServiceTier.Given {
		tier := tierOf(p.ServiceTier)
		o.ServiceTier = &tier
	}
	var resp *heddlev1.UpdateTurnSettingsResponse
	err = s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		resp, err = heddlev1.NewTurnSettingsServiceClient(cc).UpdateTurnSettings(ctx, &heddlev1.UpdateTurnSettingsRequest{
			ThreadId: p.ThreadID, TurnId: p.TurnID, Overrides: o, Cwd: cwd,
		})
		return err
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	status := "targetUnavailable"
	if resp.GetApplied() {
		status = "applied"
	}
	return list{"status": status}, nil
}
