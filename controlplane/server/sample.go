package server

import (
	"context"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxSamplePrompt bounds the prompt of a sample, in bytes.
const maxSamplePrompt = 4000

type sampleService struct {
	heddlev1.UnimplementedSampleServiceServer
	*Server
}

func (s *sampleService) Sample(ctx context.Context, r *heddlev1.SampleRequest) (*heddlev1.SampleResponse, error) {
	if r.GetExpectedTurnId() == "" || r.GetPrompt() == "" || len(r.GetPrompt()) > maxSamplePrompt {
		return nil, errdefs.New(errdefs.InvalidArgument, "thread/sample requires expectedTurnId and a prompt of at most %d bytes", maxSamplePrompt)
	}
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	page, err := s.store.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: row.GetId(), PageSize: 1, View: heddlev1.ItemsView_ITEMS_VIEW_NONE})
	if err != nil {
		return nil, err
	}
	var newest *heddlev1.Turn
	for _, t := range page.GetTurns() {
		newest = t.GetTurn()
	}
	runs := newest.GetStatus() == heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS
	if newest.GetId() != r.GetExpectedTurnId() || runs && !r.GetAllowInProgress() {
		return nil, errdefs.New(errdefs.InvalidArgument, "sample source turn must be the latest finished turn")
	}
	return s.cfg.Agent.Sample(ctx, agent.SampleRequest{Thread: row, Prompt: r.GetPrompt(), Effort: r.GetReasoningEffort(), SessionID: caller})
}
