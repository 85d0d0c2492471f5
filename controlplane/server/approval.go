package server

import (
	"context"

	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type approvalService struct {
	heddlev1.UnimplementedApprovalServiceServer
	*Server
}

func (s *approvalService) ResolveApproval(ctx context.Context, r *heddlev1.ResolveApprovalRequest) (*heddlev1.ResolveApprovalResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	p, ok := s.cfg.Broker.Lookup(r.GetThreadId(), r.GetApprovalId())
	if !ok {
		a, err := s.store.Approval(ctx, r.GetThreadId(), r.GetApprovalId())
		if err != nil {
			return nil, err
		}
		if a.GetDecision() == heddlev1.Decision_DECISION_UNSPECIFIED {
			return nil, errdefs.New(errdefs.Busy, "the turn of approval %s is not at work yet; ask again", a.GetId())
		}
		return &heddlev1.ResolveApprovalResponse{Approval: a}, nil
	}
	a, won, err := p.Answer(ctx, r.GetDecision(), r.GetAmendment(), r.GetAnswer(), approval.ByClient)
	if err != nil {
		return nil, err
	}
	return &heddlev1.ResolveApprovalResponse{Approval: a, Accepted: won}, nil
}

func (s *approvalService) ListPendingApprovals(ctx context.Context, r *heddlev1.ListPendingApprovalsRequest) (*heddlev1.ListPendingApprovalsResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	list, err := s.store.PendingApprovals(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	return &heddlev1.ListPendingApprovalsResponse{Approvals: list}, nil
}

func (s *approvalService) OverrideDenial(ctx context.Context, r *heddlev1.OverrideDenialRequest) (*heddlev1.OverrideDenialResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	if err := s.cfg.Agent.OverrideDenial(ctx, r.GetThreadId(), r.GetApprovalId()); err != nil {
		return nil, err
	}
	return &heddlev1.OverrideDenialResponse{}, nil
}
