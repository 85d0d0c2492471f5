package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/google/uuid"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// inspectBound is how long the start of a thread waits for a look at the
	// workspace; a slower one is done before the first turn.
	inspectBound = 250 * time.Millisecond
	// loadBound is how long a load waits for a turn that is being ended.
	loadBound = 2 * time.Second
	// closeBound is how long the end of a thread's work may take.
	closeBound = 10 * time.Second
)

type threadService struct {
	heddlev1.UnimplementedThreadServiceServer
	*Server
}

func (s *threadService) StartThread(ctx context.Context, r *heddlev1.StartThreadRequest) (*heddlev1.StartThreadResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
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
	id, err := uuid.NewV7()
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "make a thread id: %w", err)
	}
	if err := s.cfg.Agent.Room(id.String()); err != nil {
		return nil, err
	}
	row := &heddlev1.Thread{
		Id: id.String(), Principal: session.Local, Ephemeral: r.GetEphemeral(), Settings: set, State: heddlev1.ThreadState_THREAD_STATE_IDLE,
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
	row, err = s.create(ctx, caller, row)
	if err != nil {
		return nil, err
	}
	return &heddlev1.StartThreadResponse{Thread: row}, nil
}

// create makes the thread durable, with what a short look at its workspace
// finds.
func (s *threadService) create(ctx context.Context, caller string, row *heddlev1.Thread) (*heddlev1.Thread, error) {
	now := s.cfg.Clock().UnixMilli()
	row.CreatedAtMs, row.UpdatedAtMs = now, now
	found := s.look(ctx, row)
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
func (s *threadService) look(ctx context.Context, row *heddlev1.Thread) *executorv1.Inspection {
	there := slices.ContainsFunc(s.cfg.Fleet.Status(), func(e *heddlev1.ExecutorStatus) bool { return e.GetConnected() })
	if !there {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, inspectBound)
	defer cancel()
	found, err := s.cfg.Agent.Look(ctx, row)
	if err != nil {
		s.cfg.Logger.Debug("look at the workspace", "thread", row.GetId(), "error", err)
		return nil
	}
	return found
}

func (s *threadService) GetThread(ctx context.Context, r *heddlev1.GetThreadRequest) (*heddlev1.GetThreadResponse, error) {
	s.settle(ctx, r.GetThreadId())
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	return &heddlev1.GetThreadResponse{Thread: row}, nil
}

// settle lets a turn whose client died come to its end first.
func (s *threadService) settle(ctx context.Context, id string) {
	bound, cancel := context.WithTimeout(ctx, loadBound)
	defer cancel()
	s.cfg.Agent.Settle(bound, id)
}

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

func (s *threadService) ForkThread(ctx context.Context, r *heddlev1.ForkThreadRequest) (*heddlev1.ForkThreadResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
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
	id, err := uuid.NewV7()
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "make a thread id: %w", err)
	}
	if err := s.cfg.Agent.Room(id.String()); err != nil {
		return nil, err
	}
	row := &heddlev1.Thread{
		Id: id.String(), Principal: source.GetPrincipal(), Ephemeral: r.GetEphemeral(), State: heddlev1.ThreadState_THREAD_STATE_IDLE,
		ForkedFromId: source.GetId(), ForkedLastTurnId: last, Preview: source.GetPreview(),
		Settings: agent.MergeSettings(source.GetSettings(), patch), TokenUsage: proto.CloneOf(source.GetTokenUsage()),
		Source: or(r.GetSource(), source.GetSource()), ThreadSource: or(r.GetThreadSource(), source.GetThreadSource()),
		Originator: or(r.GetOriginator(), source.GetOriginator()), Version: or(r.GetVersion(), source.GetVersion()), ClientFields: r.GetClientFields(),
	}
	row.Places = source.GetPlaces()
	if r.GetBeforeTurnId() != "" && last == "" {
		// It has nothing of its source but the settings.
		row.Preview, row.TokenUsage = "", nil
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
	cutsTurn := last != "" && last == source.GetActiveTurnId()
	row, err = s.create(ctx, caller, row)
	if err != nil {
		return nil, err
	}
	if cutsTurn {
		if err := s.cfg.Agent.MarkAborted(ctx, row.GetId()); err != nil {
			return nil, err
		}
	}
	if !row.GetEphemeral() && source.GetAttachmentCount() > 0 {
		if err := s.copyAttachments(ctx, source, row.GetId()); err != nil {
			return nil, err
		}
		if row, err = s.thread(ctx, row.GetId()); err != nil {
			return nil, err
		}
	}
	return &heddlev1.ForkThreadResponse{Thread: row}, nil
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

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
