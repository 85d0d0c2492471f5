package server

import (
	"context"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxOverrideBytes bounds each text among the settings of a turn.
const maxOverrideBytes = 512

type turnSettingsService struct {
	heddlev1.UnimplementedTurnSettingsServiceServer
	*Server
}

func (s *turnSettingsService) UpdateTurnSettings(ctx context.Context, r *heddlev1.UpdateTurnSettingsRequest) (*heddlev1.UpdateTurnSettingsResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	o := r.GetOverrides()
	for _, text := range []string{o.GetModel(), o.GetReasoningEffort(), o.GetReasoningSummary(), o.GetServiceTier(), o.GetApprovalsReviewer()} {
		if len(text) > maxOverrideBytes {
			return nil, errdefs.New(errdefs.InvalidArgument, "a setting of %d bytes was given, the limit is %d", len(text), maxOverrideBytes)
		}
	}
	applied, err := s.cfg.Agent.UpdateTurnSettings(ctx, row.GetId(), r.GetTurnId(), r.GetCwd(), o)
	if err != nil {
		return nil, err
	}
	return &heddlev1.UpdateTurnSettingsResponse{Applied: applied}, nil
}
