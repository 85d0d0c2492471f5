package server

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// inspectBound is how long the start of a thread waits for a look at the
// workspace; a slower one is done before the first turn.
const inspectBound = 250 * time.Millisecond

func (s *threadService) StartThread(ctx context.Context, r *heddlev1.StartThreadRequest) (*heddlev1.StartThreadResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	row, err := s.start(ctx, caller, r)
	if err != nil {
		return nil, err
	}
	if err := s.requireServers(ctx, caller, row.GetId()); err != nil {
		return nil, err
	}
	return &heddlev1.StartThreadResponse{Thread: row, Warnings: config.UnknownOverrides(r.GetSettings().GetConfig().AsMap())}, nil
}

// requireServers deletes a new thread again that lacks an MCP server which it must
// have.
func (s *threadService) requireServers(ctx context.Context, caller, id string) error {
	missing := s.cfg.Agent.RequireServers(ctx, id, caller)
	if missing == nil {
		return nil
	}
	if _, err := s.DeleteThread(context.WithoutCancel(ctx), &heddlev1.DeleteThreadRequest{ThreadId: id}); err != nil {
		s.cfg.Logger.Error("delete a thread that did not start", "thread", id, "error", err)
	}
	return missing
}

// start makes the thread durable.
func (s *threadService) start(ctx context.Context, caller string, r *heddlev1.StartThreadRequest) (*heddlev1.Thread, error) {
	set, err := s.cfg.Settings.Complete(ctx, caller, r.GetSettings())
	if err != nil {
		return nil, err
	}
	if _, err := agent.DynamicTools(set.GetDynamicTools()); err != nil {
		return nil, err
	}
	if r.GetSettings().GetModelProvider() != "" {
		if err := s.cfg.Settings.KnownProvider(ctx, caller, set); err != nil {
			return nil, err
		}
	}
	id, err := s.newThreadID()
	if err != nil {
		return nil, err
	}
	row := &heddlev1.Thread{
		Id: id, Principal: session.Local, Ephemeral: r.GetEphemeral(), Settings: set, State: heddlev1.ThreadState_THREAD_STATE_IDLE,
		Source: r.GetSource(), ThreadSource: r.GetThreadSource(), Originator: r.GetOriginator(), Version: r.GetVersion(), ClientFields: r.GetClientFields(),
	}
	if r.GetProjectId() != "" {
		// A project that is deleted meanwhile takes the thread with it.
		s.organizing.Lock()
		defer s.organizing.Unlock()
		if _, err := s.mustProject(ctx, r.GetProjectId()); err != nil {
			return nil, err
		}
		row.ProjectId = r.GetProjectId()
	}
	return s.create(ctx, caller, row)
}

// newThreadID makes an id for a thread if there is room for another one.
func (s *threadService) newThreadID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", errdefs.New(errdefs.Internal, "make a thread id: %w", err)
	}
	return id.String(), s.cfg.Agent.Room(id.String())
}

// create makes the thread durable, with what a short look at its workspace
// finds.
func (s *threadService) create(ctx context.Context, caller string, row *heddlev1.Thread) (*heddlev1.Thread, error) {
	now := s.cfg.Clock().UnixMilli()
	row.CreatedAtMs, row.UpdatedAtMs = now, now
	found := s.look(ctx, caller, row)
	if found != nil {
		row.Git = found.GetGit()
		row.Places = thread.MergePlaces(row.GetPlaces(), found.GetPlaces())
		for _, f := range found.GetInstructions() {
			row.InstructionSources = append(row.InstructionSources, f.GetPath())
		}
	}
	if row.GetEphemeral() {
		s.cfg.Outputs.Ephemeral(row.GetId())
	}
	epoch, err := s.cfg.Log.Create(ctx, row)
	if err != nil {
		return nil, err
	}
	stored, err := s.store.Thread(ctx, row.GetId())
	if err != nil {
		return nil, err
	}
	s.cfg.Agent.Adopt(stored, epoch, found)
	if caller != "" {
		s.cfg.Sessions.Hold(caller, row.GetId())
	}
	if err := s.cfg.Agent.Prewarm(ctx, row.GetId(), caller); err != nil {
		s.cfg.Logger.Warn("prewarm", "thread", row.GetId(), "error", err)
	}
	return stored, nil
}

// CreateThread makes a thread for an agent of a session.
func (s *Server) CreateThread(ctx context.Context, sessionID string, row *heddlev1.Thread) (*heddlev1.Thread, error) {
	return (&threadService{Server: s}).create(ctx, sessionID, row)
}

// look looks at the workspace where an executor is there to do it at once.
func (s *threadService) look(ctx context.Context, caller string, row *heddlev1.Thread) *executorv1.Inspection {
	there := slices.ContainsFunc(s.cfg.Fleet.Status(), func(e *heddlev1.ExecutorStatus) bool { return e.GetConnected() })
	if !there {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, inspectBound)
	defer cancel()
	found, err := s.cfg.Agent.Look(ctx, row, caller)
	if err != nil {
		s.cfg.Logger.Debug("look at the workspace", "thread", row.GetId(), "error", err)
		return nil
	}
	return found
}
