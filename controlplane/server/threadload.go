package server

import (
	"context"
	"time"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// loadBound is how long a load waits for a turn that is being ended.
const loadBound = 2 * time.Second

func (s *threadService) LoadThread(ctx context.Context, r *heddlev1.LoadThreadRequest) (*heddlev1.LoadThreadResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	id := r.GetThreadId()
	row, err := s.thread(ctx, id)
	if err != nil {
		return nil, err
	}
	if row.GetArchived() {
		return nil, errdefs.New(errdefs.ThreadArchived, "thread %s is archived", id).With("thread", id)
	}
	if err := s.cfg.Agent.Room(id); err != nil {
		return nil, err
	}
	if caller != "" {
		s.cfg.Sessions.Hold(caller, id)
	}
	bound, cancel := context.WithTimeout(ctx, loadBound)
	defer cancel()
	active := s.cfg.Agent.AwaitEnd(bound, id)
	if patch := r.GetSettings(); patch != nil {
		if patch, err = s.cfg.Settings.Patch(ctx, caller, patch); err != nil {
			return nil, err
		}
		if _, err = s.cfg.Agent.UpdateSettings(ctx, id, patch); err != nil {
			return nil, err
		}
	}
	if active == nil {
		if err := s.cfg.Agent.Prewarm(ctx, id, caller); err != nil {
			return nil, err
		}
		if err := s.cfg.Agent.RequireServers(ctx, id, caller); err != nil {
			return nil, err
		}
	}
	if caller != "" && active == nil {
		if err := s.takeQueued(ctx, id); err != nil {
			return nil, err
		}
	}
	resp := &heddlev1.LoadThreadResponse{ActiveTurn: active}
	resp.RunningAgents = s.cfg.Agent.RunningAgents(id)
	// The row is read after the pending approvals, so that its seq covers them.
	if resp.PendingApprovals, err = s.store.PendingApprovals(ctx, id); err != nil {
		return nil, err
	}
	if resp.Thread, err = s.thread(ctx, id); err != nil {
		return nil, err
	}
	return resp, nil
}

// settle lets a turn whose client died come to its end first.
func (s *threadService) settle(ctx context.Context, id string) {
	bound, cancel := context.WithTimeout(ctx, loadBound)
	defer cancel()
	s.cfg.Agent.Settle(bound, id)
}

// takeQueued lets a thread go on whose next message was not taken up before it
// was last let go.
func (s *threadService) takeQueued(ctx context.Context, id string) error {
	r, err := s.standing(ctx, id, heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED)
	if err != nil {
		return err
	}
	if err := s.cfg.Agent.TakeQueued(ctx, r); err != nil && !errdefs.Is(err, errdefs.Overloaded) {
		return err
	}
	return nil
}

func (s *threadService) UnloadThread(ctx context.Context, r *heddlev1.UnloadThreadRequest) (*heddlev1.UnloadThreadResponse, error) {
	if id := sessionID(ctx); id != "" {
		s.cfg.Sessions.Release(id, r.GetThreadId())
	} else if !s.cfg.Sessions.Held(r.GetThreadId()) {
		s.cfg.Agent.Unheld(r.GetThreadId())
	}
	return &heddlev1.UnloadThreadResponse{}, nil
}
