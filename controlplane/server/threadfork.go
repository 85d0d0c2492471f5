package server

import (
	"cmp"
	"context"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (s *threadService) ForkThread(ctx context.Context, r *heddlev1.ForkThreadRequest) (*heddlev1.ForkThreadResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	row, err := s.fork(ctx, caller, r)
	if err != nil {
		return nil, err
	}
	if err := s.requireServers(ctx, caller, row.GetId()); err != nil {
		return nil, err
	}
	return &heddlev1.ForkThreadResponse{Thread: row}, nil
}

// fork makes the fork durable.
func (s *threadService) fork(ctx context.Context, caller string, r *heddlev1.ForkThreadRequest) (*heddlev1.Thread, error) {
	source, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	patch, err := s.cfg.Settings.Patch(ctx, caller, r.GetSettings())
	if err != nil {
		return nil, err
	}
	last, err := s.forkCut(ctx, source, r)
	if err != nil {
		return nil, err
	}
	usage, err := s.usageAt(ctx, source, last)
	if err != nil {
		return nil, err
	}
	id, err := s.newThreadID()
	if err != nil {
		return nil, err
	}
	row := &heddlev1.Thread{
		Id: id, Principal: source.GetPrincipal(), Ephemeral: r.GetEphemeral(), State: heddlev1.ThreadState_THREAD_STATE_IDLE,
		ForkedFromId: source.GetId(), ForkedLastTurnId: last, Preview: source.GetPreview(),
		Settings: agent.MergeSettings(source.GetSettings(), patch), Places: source.GetPlaces(), TokenUsage: usage,
		Source: cmp.Or(r.GetSource(), source.GetSource()), ThreadSource: cmp.Or(r.GetThreadSource(), source.GetThreadSource()),
		Originator: cmp.Or(r.GetOriginator(), source.GetOriginator()), Version: cmp.Or(r.GetVersion(), source.GetVersion()), ClientFields: r.GetClientFields(),
	}
	if r.GetBeforeTurnId() != "" && last == "" {
		// It has nothing of its source but the settings.
		row.Preview = ""
	}
	if source.GetProjectId() != "" {
		s.organizing.Lock()
		defer s.organizing.Unlock()
		p, err := s.project(ctx, source.GetProjectId())
		if err != nil {
			return nil, err
		}
		row.ProjectId = p.GetId()
	}
	if row, err = s.create(ctx, caller, row); err != nil {
		return nil, err
	}
	return s.finishFork(ctx, source, row, last)
}

// finishFork gives a new fork what is not in its row: the mark of a turn that was
// cut in two, and copies of the attachments.
func (s *threadService) finishFork(ctx context.Context, source, fork *heddlev1.Thread, last string) (*heddlev1.Thread, error) {
	if last != "" && last == source.GetActiveTurnId() {
		if err := s.cfg.Agent.MarkAborted(ctx, fork.GetId()); err != nil {
			return nil, err
		}
	}
	if fork.GetEphemeral() || source.GetAttachmentCount() == 0 {
		return fork, nil
	}
	if err := s.copyAttachments(ctx, source, fork.GetId()); err != nil {
		return nil, err
	}
	return s.thread(ctx, fork.GetId())
}

// forkCut is the last turn that a fork shares; empty for none.
func (s *threadService) forkCut(ctx context.Context, source *heddlev1.Thread, r *heddlev1.ForkThreadRequest) (string, error) {
	before := r.GetBeforeTurnId()
	switch {
	case before == "":
		return s.lastTurn(ctx, source, r.GetLastTurnId())
	case r.GetLastTurnId() != "":
		return "", errdefs.New(errdefs.InvalidArgument, "`beforeTurnId` cannot be combined with `lastTurnId`")
	}
	t, err := s.store.Turn(ctx, source.GetId(), before)
	if err != nil {
		return "", err
	}
	page, err := s.store.ListTurns(ctx, &heddlev1.ListTurnsRequest{
		ThreadId: source.GetId(), PageSize: 1, View: heddlev1.ItemsView_ITEMS_VIEW_NONE, PageToken: store.Token{Kind: store.TokenTurns, Major: t.GetOrdinal()}.Encode(),
	})
	if err != nil || len(page.GetTurns()) == 0 {
		return "", err
	}
	return page.GetTurns()[0].GetTurn().GetId(), nil
}

// lastTurn is the cut of a fork: the named turn, or the source's last one.
func (s *threadService) lastTurn(ctx context.Context, source *heddlev1.Thread, named string) (string, error) {
	if named != "" {
		t, err := s.store.Turn(ctx, source.GetId(), named)
		return t.GetId(), err
	}
	page, err := s.store.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: source.GetId(), PageSize: 1, View: heddlev1.ItemsView_ITEMS_VIEW_NONE})
	if err != nil || len(page.GetTurns()) == 0 {
		return "", err
	}
	return page.GetTurns()[0].GetTurn().GetId(), nil
}
