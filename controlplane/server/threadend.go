package server

import (
	"context"
	"time"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// closeBound is how long the end of a thread's work may take.
const closeBound = 10 * time.Second

func (s *threadService) ArchiveThread(ctx context.Context, r *heddlev1.ArchiveThreadRequest) (*heddlev1.ArchiveThreadResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	if row.GetArchived() {
		return nil, errdefs.New(errdefs.ThreadArchived, "thread %s is archived", row.GetId()).With("thread", row.GetId())
	}
	ctx, cancel := context.WithTimeout(ctx, closeBound)
	defer cancel()
	archived := &heddlev1.Event{Payload: &heddlev1.Event_ThreadArchived{ThreadArchived: &heddlev1.ThreadArchived{}}}
	if err := s.cfg.Agent.EndThread(ctx, row.GetId(), []*heddlev1.Event{archived}, nil); err != nil {
		return nil, err
	}
	return &heddlev1.ArchiveThreadResponse{}, nil
}

func (s *threadService) UnarchiveThread(ctx context.Context, r *heddlev1.UnarchiveThreadRequest) (*heddlev1.UnarchiveThreadResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	if !row.GetArchived() {
		return nil, errdefs.New(errdefs.ThreadNotArchived, "thread %s is not archived", row.GetId()).With("thread", row.GetId())
	}
	if err := s.record(ctx, row.GetId(), &heddlev1.Event{Payload: &heddlev1.Event_ThreadUnarchived{ThreadUnarchived: &heddlev1.ThreadUnarchived{}}}); err != nil {
		return nil, err
	}
	if row, err = s.thread(ctx, row.GetId()); err != nil {
		return nil, err
	}
	return &heddlev1.UnarchiveThreadResponse{Thread: row}, nil
}

func (s *threadService) DeleteThread(ctx context.Context, r *heddlev1.DeleteThreadRequest) (*heddlev1.DeleteThreadResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	id := row.GetId()
	if row.GetHasForks() {
		return nil, errdefs.New(errdefs.ThreadHasForks, "cannot delete thread %s: forked history still references it", id).With("thread", id)
	}
	ctx, cancel := context.WithTimeout(ctx, closeBound)
	defer cancel()
	if row.GetArchived() {
		err = s.cfg.Log.Delete(ctx, id)
	} else {
		err = s.cfg.Agent.EndThread(ctx, id, nil, func() error { return s.cfg.Log.Delete(ctx, id) })
	}
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Outputs.DeleteThread(id); err != nil {
		s.cfg.Logger.Error("delete output of a thread", "thread", id, "error", err)
	}
	if err := s.cfg.Agent.Forget(ctx, id); err != nil {
		s.cfg.Logger.Error("forget what was accepted in a thread", "thread", id, "error", err)
	}
	return &heddlev1.DeleteThreadResponse{}, nil
}
