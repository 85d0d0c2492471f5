package server

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxInjected bounds the entries of one injection.
	maxInjected = 1000
	// maxReadItems bounds the items that are read by id at a time.
	maxReadItems = 200
)

func (s *threadService) RevertThread(ctx context.Context, r *heddlev1.RevertThreadRequest) (*heddlev1.RevertThreadResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, closeBound)
	defer cancel()
	if err := s.cfg.Agent.Revert(ctx, row.GetId(), r.GetBeforeTurnId()); err != nil {
		return nil, err
	}
	if row, err = s.thread(ctx, row.GetId()); err != nil {
		return nil, err
	}
	return &heddlev1.RevertThreadResponse{Thread: row}, nil
}

func (s *threadService) SetGoal(ctx context.Context, r *heddlev1.SetGoalRequest) (*heddlev1.SetGoalResponse, error) {
	req, err := s.turnRequest(ctx, r.GetThreadId(), heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED)
	if err != nil {
		return nil, err
	}
	g, err := s.cfg.Agent.SetGoal(ctx, req, agent.GoalPatch{Objective: r.GetObjective(), Status: r.GetStatus(), Budget: r.TokenBudget})
	if err != nil {
		return nil, err
	}
	return &heddlev1.SetGoalResponse{Goal: g}, nil
}

func (s *threadService) ClearGoal(ctx context.Context, r *heddlev1.ClearGoalRequest) (*heddlev1.ClearGoalResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	cleared, err := s.cfg.Agent.ClearGoal(ctx, row.GetId())
	if err != nil {
		return nil, err
	}
	return &heddlev1.ClearGoalResponse{Cleared: cleared}, nil
}

func (s *threadService) InjectItems(ctx context.Context, r *heddlev1.InjectItemsRequest) (*heddlev1.InjectItemsResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	n := len(r.GetEntries())
	if n == 0 || n > maxInjected {
		return nil, errdefs.New(errdefs.InvalidArgument, "%d items were given, expected 1 to %d", n, maxInjected)
	}
	for i, e := range r.GetEntries() {
		if e.GetEntry() == nil {
			return nil, errdefs.New(errdefs.InvalidArgument, "item %d is empty", i)
		}
	}
	if size := proto.Size(r); size > maxInjectedBytes {
		return nil, errdefs.New(errdefs.InvalidArgument, "the items have %d bytes, the limit is %d", size, maxInjectedBytes)
	}
	if err := s.cfg.Agent.Inject(ctx, row.GetId(), r.GetEntries()); err != nil {
		return nil, err
	}
	return &heddlev1.InjectItemsResponse{}, nil
}

// maxInjectedBytes bounds the encoded size of one injection.
const maxInjectedBytes = 8 << 20

func (s *threadService) UpdateGit(ctx context.Context, r *heddlev1.UpdateGitRequest) (*heddlev1.UpdateGitResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	git := &heddlev1.GitInfo{}
	if row.GetGit() != nil {
		git = proto.CloneOf(row.GetGit())
	}
	for _, f := range []struct {
		to   *string
		from *string
	}{{&git.Sha, r.Sha}, {&git.Branch, r.Branch}, {&git.OriginUrl, r.OriginUrl}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if err := s.record(ctx, row.GetId(), &heddlev1.Event{Payload: &heddlev1.Event_GitChanged{GitChanged: &heddlev1.GitChanged{Git: git}}}); err != nil {
		return nil, err
	}
	if row, err = s.thread(ctx, row.GetId()); err != nil {
		return nil, err
	}
	return &heddlev1.UpdateGitResponse{Thread: row}, nil
}

func (s *threadService) UpdateReadState(ctx context.Context, r *heddlev1.UpdateReadStateRequest) (*heddlev1.UpdateReadStateResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	now := row.GetReadState()
	if now.GetRevision() != r.GetExpectedRevision() {
		return nil, errdefs.New(errdefs.InvalidArgument, "the read state of thread %s has revision %d, not %d", row.GetId(), now.GetRevision(), r.GetExpectedRevision()).
			With("revision", fmt.Sprint(now.GetRevision()))
	}
	next := &heddlev1.ReadState{}
	if !r.GetRead() {
		last, err := s.lastTurn(ctx, row, "")
		if err != nil {
			return nil, err
		}
		next.FirstUnreadTurnId, next.FromStart = last, last == ""
	}
	if now != nil && next.GetFirstUnreadTurnId() == now.GetFirstUnreadTurnId() && next.GetFromStart() == now.GetFromStart() {
		return &heddlev1.UpdateReadStateResponse{ReadState: now}, nil
	}
	if err := s.record(ctx, row.GetId(), &heddlev1.Event{Payload: &heddlev1.Event_ReadStateChanged{ReadStateChanged: &heddlev1.ReadStateChanged{ReadState: next}}}); err != nil {
		return nil, err
	}
	if row, err = s.thread(ctx, row.GetId()); err != nil {
		return nil, err
	}
	return &heddlev1.UpdateReadStateResponse{ReadState: row.GetReadState()}, nil
}

func (s *threadService) ReadItems(ctx context.Context, r *heddlev1.ReadItemsRequest) (*heddlev1.ReadItemsResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	if len(r.GetItemIds()) > maxReadItems {
		return nil, errdefs.New(errdefs.InvalidArgument, "%d items were asked for, the limit is %d", len(r.GetItemIds()), maxReadItems)
	}
	if _, err := s.store.Turn(ctx, row.GetId(), r.GetTurnId()); err != nil {
		return nil, err
	}
	resp := &heddlev1.ReadItemsResponse{}
	for _, id := range r.GetItemIds() {
		it, err := s.store.Item(ctx, row.GetId(), id)
		if err != nil {
			return nil, err
		}
		if it.Item.GetTurnId() != r.GetTurnId() {
			return nil, errdefs.New(errdefs.ItemNotFound, "item not found: %s", id).With("item_id", id)
		}
		resp.Items = append(resp.Items, it.Item)
	}
	return resp, nil
}
