package server

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type threadService struct {
	heddlev1.UnimplementedThreadServiceServer
	*Server
}

func (s *threadService) GetThread(ctx context.Context, r *heddlev1.GetThreadRequest) (*heddlev1.GetThreadResponse, error) {
	s.settle(ctx, r.GetThreadId())
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	return &heddlev1.GetThreadResponse{Thread: row}, nil
}

func (s *threadService) ListThreads(ctx context.Context, r *heddlev1.ListThreadsRequest) (*heddlev1.ListThreadsResponse, error) {
	return s.store.ListThreads(ctx, session.Local, r)
}

func (s *threadService) ListTurns(ctx context.Context, r *heddlev1.ListTurnsRequest) (*heddlev1.ListTurnsResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	s.settle(ctx, r.GetThreadId())
	resp, err := s.store.ListTurns(ctx, r)
	if err != nil || r.GetView() != heddlev1.ItemsView_ITEMS_VIEW_FULL {
		return resp, err
	}
	return s.showOpen(ctx, r.GetThreadId(), resp)
}

func (s *threadService) ListItems(ctx context.Context, r *heddlev1.ListItemsRequest) (*heddlev1.ListItemsResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	s.settle(ctx, r.GetThreadId())
	if r.GetAfterItemId() != "" {
		token, err := s.itemToken(ctx, r)
		if err != nil {
			return nil, err
		}
		r = proto.CloneOf(r)
		r.PageToken = token
	}
	return s.store.ListItems(ctx, r)
}

// itemToken is the position of the item behind which a page begins.
func (s *threadService) itemToken(ctx context.Context, r *heddlev1.ListItemsRequest) (string, error) {
	it, err := s.store.Item(ctx, r.GetThreadId(), r.GetAfterItemId())
	if err != nil && !errdefs.Is(err, errdefs.ItemNotFound) {
		return "", err
	}
	if err != nil || r.GetTurnId() == "" || it.Item.GetTurnId() != r.GetTurnId() {
		return "", errdefs.New(errdefs.ItemNotFound, "item %s is not one of turn %s", r.GetAfterItemId(), r.GetTurnId())
	}
	return store.Token{Kind: store.TokenItems, Major: it.Ordinal, Minor: it.StartSeq}.Encode(), nil
}

func (s *threadService) SetThreadName(ctx context.Context, r *heddlev1.SetThreadNameRequest) (*heddlev1.SetThreadNameResponse, error) {
	name := strings.TrimSpace(r.GetName())
	if name == "" {
		return nil, errdefs.New(errdefs.InvalidArgument, "thread name must not be empty")
	}
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	if err := s.record(ctx, row.GetId(), &heddlev1.Event{Payload: &heddlev1.Event_ThreadNamed{ThreadNamed: &heddlev1.ThreadNamed{Name: name}}}); err != nil {
		return nil, err
	}
	if row, err = s.thread(ctx, row.GetId()); err != nil {
		return nil, err
	}
	return &heddlev1.SetThreadNameResponse{Thread: row}, nil
}

func (s *threadService) UpdateSettings(ctx context.Context, r *heddlev1.UpdateSettingsRequest) (*heddlev1.UpdateSettingsResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	patch, err := s.cfg.Settings.Patch(ctx, caller, r.GetSettings())
	if err != nil {
		return nil, err
	}
	if _, err := s.cfg.Agent.UpdateSettings(ctx, row.GetId(), patch); err != nil {
		return nil, err
	}
	if row, err = s.thread(ctx, row.GetId()); err != nil {
		return nil, err
	}
	return &heddlev1.UpdateSettingsResponse{Thread: row}, nil
}

func (s *threadService) ListBackgroundTerminals(ctx context.Context, r *heddlev1.ListBackgroundTerminalsRequest) (*heddlev1.ListBackgroundTerminalsResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	return &heddlev1.ListBackgroundTerminalsResponse{Terminals: s.cfg.Agent.Terminals(r.GetThreadId())}, nil
}

func (s *threadService) TerminateBackgroundTerminal(ctx context.Context, r *heddlev1.TerminateBackgroundTerminalRequest) (*heddlev1.TerminateBackgroundTerminalResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	return &heddlev1.TerminateBackgroundTerminalResponse{Terminated: int32(s.cfg.Agent.Terminate(r.GetThreadId(), r.GetProcessId()))}, nil
}

// record appends an event of the thread itself. A thread that is not at work is
// claimed only for this.
func (s *Server) record(ctx context.Context, id string, ev *heddlev1.Event) error {
	if s.cfg.Agent.Knows(id) {
		return s.cfg.Agent.Record(ctx, id, ev)
	}
	epoch, err := s.cfg.Log.Claim(ctx, id)
	if err != nil {
		return err
	}
	if err := s.cfg.Log.Append(id, epoch, ev).Wait(ctx); err != nil {
		return errors.Join(errdefs.New(errdefs.StoreUnavailable, "record a change of thread %s", id), err)
	}
	return nil
}
