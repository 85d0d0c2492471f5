package appserver

import (
	"context"
	"strings"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

// threads runs a call of the thread service that may be repeated.
func threads[T any](ctx context.Context, s *Server, call func(context.Context, heddlev1.ThreadServiceClient) (T, error)) (out T, err error) {
	err = s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		out, err = call(ctx, heddlev1.NewThreadServiceClient(cc))
		return err
	})
	return out, err
}

// named replaces an unknown thread by a refusal with the given text before the
// thread's id.
func named(err error, text, id string) error {
	if errdefs.Is(err, errdefs.ThreadNotFound) {
		return invalid(text + id)
	}
	return err
}

const (
	textNotFound  = "thread not found: "
	textNotLoaded = "thread not loaded: "
	textNoRollout = "no rollout found for thread id "
)

func (s *Server) originatorName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.originator
}

func (s *Server) threadStart(ctx context.Context, r *call, p *protocol.ThreadStartParams) (any, error) {
	for what, name := range map[string]*string{"model": p.Model, "modelProvider": p.ModelProvider} {
		if name != nil && *name == "" {
			return nil, invalid(what + " must not be empty; leave it out for the one of the config")
		}
	}
	settings, err := s.settle(startSettings(p))
	if err != nil {
		return nil, err
	}
	if p.ProjectID != nil && *p.ProjectID == "" {
		return nil, invalid("projectId must not be empty")
	}
	req := &heddlev1.StartThreadRequest{
		ProjectId: text(p.ProjectID), Settings: settings, Ephemeral: p.Ephemeral != nil && *p.Ephemeral, Source: s.cfg.Source,
		ThreadSource: text(p.ThreadSource), Originator: s.originatorName(), Version: s.cfg.Version,
	}
	// Made twice by a lost connection, the first one is a thread without turns
	// that nobody lists.
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.StartThreadResponse, error) {
		return c.StartThread(ctx, req)
	})
	if err != nil {
		return nil, err
	}
	t := resp.GetThread()
	l, _, err := s.load(t, nil)
	if err != nil {
		return nil, err
	}
	release := l.subscribe(r.client, t, nil)
	wire := s.wire(t)
	r.then(func() {
		defer release()
		s.broadcast(note{method: "thread/started", all: true, params: list{"thread": wire}}, nil)
		for _, w := range resp.GetWarnings() {
			r.client.tell("warning", warningParams(t.GetId(), w))
		}
	})
	out := protocol.FromOpened(t, wire)
	if report := t.GetSandboxReport(); report != nil && r.client.isExtended() {
		out.Heddle = &protocol.Place{SandboxReport: protocol.FromSandboxReport(report)}
	}
	return out, nil
}

func (s *Server) threadResume(ctx context.Context, r *call, p *protocol.ThreadResumeParams) (any, error) {
	if !s.itsPath(p.Path, p.ThreadID) {
		return nil, invalid("thread/resume by path is not supported by this server")
	}
	if p.History != nil {
		return s.resumeHistory(ctx, r, p)
	}
	settings, err := s.settle(resumeSettings(p))
	if err != nil {
		return nil, err
	}
	if l := s.thread(p.ThreadID); l != nil {
		r.then(l.hold(r.client))
	}
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.LoadThreadResponse, error) {
		return c.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: p.ThreadID, Settings: settings})
	})
	switch {
	case errdefs.Is(err, errdefs.ThreadArchived):
		return nil, invalid("session " + p.ThreadID + " is archived. Run `heddle unarchive " + p.ThreadID + "` to unarchive it first.")
	case err != nil:
		return nil, named(err, textNoRollout, p.ThreadID)
	}
	t := resp.GetThread()
	out := protocol.Resumed{CollaborationMode: protocol.ModeOf(t.GetSettings())}
	turns, head, err := s.resumeTurns(ctx, r, p, &out)
	if err != nil {
		return nil, err
	}
	pending := resp.GetPendingApprovals()
	if t, pending, err = s.advance(ctx, t, pending, head); err != nil {
		return nil, named(err, textNoRollout, p.ThreadID)
	}
	lastTurn, err := s.pageTokens(ctx, t, &out)
	if err != nil {
		return nil, err
	}
	l, fresh, err := s.load(t, pending)
	if err != nil {
		return nil, err
	}
	release := l.subscribe(r.client, t, pending)
	wire := s.wire(t)
	if fresh {
		s.broadcast(statusNote(t.GetId(), wire.Status), nil)
	}
	if turns != nil {
		wire.Turns = turns
	}
	out.Opened = protocol.FromOpened(t, wire)
	out.Heddle = r.client.place(t)
	r.then(func() {
		defer release()
		s.welcome(r.client, t, lastTurn, pending)
		for _, id := range resp.GetRunningAgents() {
			s.followAgent(r.client.ctx, r.client, id, false)
		}
	})
	return out, nil
}

// pageTokens sets the cursors from which history is paged backwards, and returns
// the id of the newest turn.
func (s *Server) pageTokens(ctx context.Context, t *heddlev1.Thread, out *protocol.Resumed) (lastTurn string, err error) {
	if t.GetTurnCount() == 0 {
		return "", nil
	}
	turns, err := s.newestTurn(ctx, t.GetId())
	if err != nil || len(turns.GetTurns()) == 0 {
		return "", err
	}
	out.TurnsBackwardsCursor = cursorText(turns.GetPreviousPageToken())
	items, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ListItemsResponse, error) {
		return c.ListItems(ctx, &heddlev1.ListItemsRequest{ThreadId: t.GetId(), PageSize: 1, Descending: true})
	})
	if err != nil {
		return "", err
	}
	out.ItemsBackwardsCursor = cursorText(items.GetPreviousPageToken())
	return turns.GetTurns()[0].GetTurn().GetId(), nil
}

func (s *Server) newestTurn(ctx context.Context, id string) (*heddlev1.ListTurnsResponse, error) {
	return threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ListTurnsResponse, error) {
		return c.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: id, PageSize: 1, View: heddlev1.ItemsView_ITEMS_VIEW_NONE})
	})
}

// welcome tells a connection that resumed a thread what the log does not.
func (s *Server) welcome(c *client, t *heddlev1.Thread, lastTurn string, pending []*heddlev1.Approval) {
	s.tellUsage(c, t, lastTurn)
	goal := goalNote(t.GetId(), "", t.GetGoal(), 0)
	c.tell(goal.method, goal.params)
	for _, a := range pending {
		if a.GetReviewer() != "" {
			continue
		}
		if err := c.ask(c.ctx, a); err != nil {
			s.log.Debug("asking again failed", "thread", t.GetId(), "error", err)
		}
	}
}

// tellUsage sends the last known usage.
func (s *Server) tellUsage(c *client, t *heddlev1.Thread, lastTurn string) {
	if t.GetTokenUsage() == nil || lastTurn == "" {
		return
	}
	n := usageNote(t.GetId(), lastTurn, t.GetTokenUsage(), 0)
	c.tell(n.method, n.params)
}

func (s *Server) threadFork(ctx context.Context, r *call, p *protocol.ThreadForkParams) (any, error) {
	if !s.itsPath(p.Path, p.ThreadID) || p.AttachToSource || p.PredictionMode {
		return nil, invalid("this form of thread/fork is not supported by this server")
	}
	if p.Ephemeral && !p.ExcludeTurns {
		return nil, invalid("ephemeral paginated thread/fork requires `excludeTurns: true`")
	}
	switch {
	case p.BeforeTurnID != nil && p.LastTurnID != nil:
		return nil, invalid("`beforeTurnId` cannot be combined with `lastTurnId`")
	case p.BeforeTurnID != nil && *p.BeforeTurnID == "":
		return nil, invalid("turn not found: ")
	}
	settings, err := s.settle(forkSettings(p))
	if err != nil {
		return nil, err
	}
	var resp *heddlev1.ForkThreadResponse
	err = s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		resp, err = heddlev1.NewThreadServiceClient(cc).ForkThread(ctx, &heddlev1.ForkThreadRequest{
			ThreadId: p.ThreadID, LastTurnId: text(p.LastTurnID), BeforeTurnId: text(p.BeforeTurnID), Settings: settings, Ephemeral: p.Ephemeral,
			Source: s.cfg.Source, ThreadSource: text(p.ThreadSource), Originator: s.originatorName(), Version: s.cfg.Version,
		})
		return err
	})
	switch {
	case errdefs.Is(err, errdefs.TurnNotFound):
		return nil, invalid("turn not found: " + text(p.LastTurnID) + text(p.BeforeTurnID))
	case err != nil:
		return nil, named(err, textNoRollout, p.ThreadID)
	}
	t := resp.GetThread()
	l, _, err := s.load(t, nil)
	if err != nil {
		return nil, err
	}
	release := l.subscribe(r.client, t, nil)
	wire := s.wire(t)
	started := wire
	var lastTurn string
	if turns, err := s.newestTurn(ctx, t.GetId()); err == nil && len(turns.GetTurns()) > 0 {
		lastTurn = turns.GetTurns()[0].GetTurn().GetId()
	}
	r.then(func() {
		defer release()
		s.tellUsage(r.client, t, lastTurn)
		s.broadcast(note{method: "thread/started", all: true, params: list{"thread": started}}, nil)
	})
	if !p.ExcludeTurns {
		s.deprecated(r.client, "thread/fork")
		if wire.Turns, _, err = s.allTurns(ctx, t.GetId()); err != nil {
			return nil, err
		}
	}
	return protocol.FromOpened(t, wire), nil
}

// deprecated warns of the form of a request that carries whole histories.
func (s *Server) deprecated(c *client, method string) {
	c.tell("deprecationNotice", list{
		"summary": method + " with turns is deprecated",
		"details": "Page the history with thread/turns/list. Of a long history only the newest turns fit into the answer.",
	})
}

func (s *Server) threadRead(ctx context.Context, r *call, p *protocol.ThreadReadParams) (any, error) {
	t, err := s.getThread(ctx, p.ThreadID)
	if err != nil {
		return nil, named(err, textNotLoaded, p.ThreadID)
	}
	wire := s.wire(t)
	if p.IncludeTurns {
		if t.GetTurnCount() == 0 {
			return nil, methodNotFound("list_turns is not supported yet")
		}
		s.deprecated(r.client, "thread/read")
		if wire.Turns, _, err = s.allTurns(ctx, p.ThreadID); err != nil {
			return nil, err
		}
	}
	return list{"thread": wire, "readState": protocol.FromReadState(t.GetReadState())}, nil
}

func (s *Server) getThread(ctx context.Context, id string) (*heddlev1.Thread, error) {
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.GetThreadResponse, error) {
		return c.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: id})
	})
	return resp.GetThread(), err
}

func (s *Server) threadArchive(ctx context.Context, r *call, p *protocol.ThreadParams) (any, error) {
	err := s.takeAway(r, p.ThreadID, "thread/archived", func() error {
		_, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ArchiveThreadResponse, error) {
			return c.ArchiveThread(ctx, &heddlev1.ArchiveThreadRequest{ThreadId: p.ThreadID})
		})
		return err
	})
	if errdefs.Is(err, errdefs.ThreadArchived) {
		return nil, invalid(textNoRollout + p.ThreadID)
	}
	if err != nil {
		return nil, named(err, textNoRollout, p.ThreadID)
	}
	return list{}, nil
}

func (s *Server) threadDelete(ctx context.Context, r *call, p *protocol.ThreadParams) (any, error) {
	err := s.takeAway(r, p.ThreadID, "thread/deleted", func() error {
		_, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.DeleteThreadResponse, error) {
			return c.DeleteThread(ctx, &heddlev1.DeleteThreadRequest{ThreadId: p.ThreadID})
		})
		return err
	})
	if errdefs.Is(err, errdefs.ThreadHasForks) {
		return nil, invalid("cannot delete thread " + p.ThreadID + ": forked history still references it")
	}
	if err != nil {
		return nil, named(err, textNoRollout, p.ThreadID)
	}
	return list{}, nil
}

// takeAway runs a request that removes a thread from those that are loaded, and
// announces it: what ended with the thread and the status before the answer, the
// method after it. A subscriber that does not read is not waited for.
func (s *Server) takeAway(r *call, id, method string, do func() error) error {
	l := s.thread(id)
	if l != nil {
		l.depart(true)
	}
	if err := do(); err != nil {
		if l != nil {
			l.depart(false)
		}
		return err
	}
	told := l == nil || l.parted(partingTime)
	if l := s.forget(id); l != nil {
		if told {
			l.close()
		} else {
			go func() {
				l.parted(goneTime)
				l.close()
			}()
		}
		s.broadcast(statusNote(id, notLoaded), nil)
	}
	r.then(func() { s.broadcast(note{method: method, all: true, params: threadID{id}}, nil) })
	return nil
}

func (s *Server) threadUnarchive(ctx context.Context, r *call, p *protocol.ThreadParams) (any, error) {
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.UnarchiveThreadResponse, error) {
		return c.UnarchiveThread(ctx, &heddlev1.UnarchiveThreadRequest{ThreadId: p.ThreadID})
	})
	switch {
	case errdefs.Is(err, errdefs.ThreadNotArchived), errdefs.Is(err, errdefs.ThreadNotFound):
		return nil, invalid("no archived rollout found for thread id " + p.ThreadID)
	case err != nil:
		return nil, err
	}
	r.then(func() {
		s.broadcast(note{method: "thread/unarchived", all: true, params: threadID{p.ThreadID}}, nil)
	})
	return list{"thread": s.wire(resp.GetThread())}, nil
}

func (s *Server) threadNameSet(ctx context.Context, r *call, p *protocol.ThreadSetNameParams) (any, error) {
	name := strings.TrimSpace(p.Name)
	if name == "" {
		return nil, invalid("thread name must not be empty")
	}
	l := s.thread(p.ThreadID)
	if l != nil {
		r.then(l.hold(r.client))
	}
	_, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.SetThreadNameResponse, error) {
		return c.SetThreadName(ctx, &heddlev1.SetThreadNameRequest{ThreadId: p.ThreadID, Name: name})
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	if l == nil {
		// A loaded thread announces its name from the log.
		r.then(func() { s.broadcast(nameNote(p.ThreadID, name, 0), nil) })
	}
	return list{}, nil
}

func (s *Server) threadUnsubscribe(_ context.Context, r *call, p *protocol.ThreadParams) (any, error) {
	l := s.thread(p.ThreadID)
	switch {
	case l == nil:
		return list{"status": "notLoaded"}, nil
	case l.unsubscribe(r.client):
		return list{"status": "unsubscribed"}, nil
	}
	return list{"status": "notSubscribed"}, nil
}

func (s *Server) settingsUpdate(ctx context.Context, r *call, p *protocol.SettingsUpdateParams) (any, error) {
	l := s.thread(p.ThreadID)
	if l == nil {
		return nil, invalid(textNotFound + p.ThreadID)
	}
	settings, err := s.settle(updateSettings(p))
	if err != nil {
		return nil, err
	}
	r.then(l.hold(r.client))
	_, err = threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.UpdateSettingsResponse, error) {
		return c.UpdateSettings(ctx, &heddlev1.UpdateSettingsRequest{ThreadId: p.ThreadID, Settings: settings})
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	return list{}, nil
}
