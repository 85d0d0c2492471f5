package agent

import (
	"context"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func queueChanged(c *heddlev1.QueueChanged) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_QueueChanged{QueueChanged: c}}
}

// changeQueue lets change decide on the queue as it is and records what it
// returns, durably; nil changes nothing. A thread that nobody holds is let go
// again. then runs with the gate still held.
func (a *Agent) changeQueue(ctx context.Context, threadID string, change func(*heddlev1.Queue) (*heddlev1.QueueChanged, error), then func(*live)) error {
	known := a.Knows(threadID)
	lt, err := a.acquired(ctx, threadID)
	if err != nil {
		return err
	}
	defer func() {
		lt.release()
		if !known && a.cfg.Held != nil && !a.cfg.Held(threadID) {
			a.Unheld(threadID)
		}
	}()
	q, err := lt.queue(ctx)
	if err != nil {
		return err
	}
	c, err := change(q)
	if err != nil || c == nil {
		return err
	}
	if err := lt.persist(ctx, queueChanged(c)); err != nil {
		return err
	}
	lt.mayQueue(true)
	if then != nil {
		then(lt)
	}
	return nil
}

// queue is what waits; the gate must be held.
func (lt *live) queue(ctx context.Context) (*heddlev1.Queue, error) {
	if lt.ephemeral {
		return nil, errdefs.New(errdefs.InvalidArgument, "ephemeral thread does not support queued submissions: %s", lt.id)
	}
	st, err := lt.agent.store.Load(ctx, lt.id)
	if err != nil {
		return nil, err
	}
	return st.Queue, nil
}

func (lt *live) mayQueue(may bool) {
	lt.mu.Lock()
	lt.queued = may
	lt.mu.Unlock()
}

func notQueued(id string) error {
	return errdefs.New(errdefs.InvalidArgument, "queued submission not found: %s", id)
}

// Enqueue adds a message behind what waits, durably. In an idle thread that a
// session holds, whose queue is not held, it is taken up at once as r says.
func (a *Agent) Enqueue(ctx context.Context, r TurnRequest, metadata map[string]string) (*heddlev1.QueuedMessage, error) {
	m := &heddlev1.QueuedMessage{
		Id: newID(), Input: r.Input, ClientMetadata: metadata, SessionId: r.SessionID, OnDisconnect: r.OnDisconnect, CreatedAtMs: a.now(),
	}
	err := a.changeQueue(ctx, r.ThreadID, func(q *heddlev1.Queue) (*heddlev1.QueueChanged, error) {
		switch {
		case len(q.GetMessages()) >= thread.MaxQueued:
			return nil, errdefs.New(errdefs.InvalidArgument, "queue cannot contain more than %d submissions", thread.MaxQueued)
		case proto.Size(q)+proto.Size(m)+queueSlack > thread.MaxQueuedSize:
			return nil, queueTooLarge()
		}
		return &heddlev1.QueueChanged{Change: &heddlev1.QueueChanged_Added{Added: m}}, nil
	}, func(lt *live) {
		if a.cfg.Held == nil || a.cfg.Held(lt.id) {
			if _, err := a.takeQueued(ctx, lt, r, ""); err != nil {
				// It stays in the queue, which is what was promised.
				a.cfg.Logger.Warn("take up a queued message", "thread", lt.id, "error", err)
			}
		}
	})
	return m, err
}

// queueSlack is more than the framing of one message takes.
const queueSlack = 16

func queueTooLarge() error {
	return errdefs.New(errdefs.InvalidArgument, "queue cannot hold more than %d bytes of input", thread.MaxQueuedSize)
}

// UpdateQueued replaces the input of a message that waits.
func (a *Agent) UpdateQueued(ctx context.Context, threadID, id string, in *heddlev1.UserMessage, metadata map[string]string) (*heddlev1.QueuedMessage, error) {
	var next *heddlev1.QueuedMessage
	err := a.changeQueue(ctx, threadID, func(q *heddlev1.Queue) (*heddlev1.QueueChanged, error) {
		i := thread.FindQueued(q, id)
		if i < 0 {
			return nil, notQueued(id)
		}
		old := q.GetMessages()[i]
		next = proto.CloneOf(old)
		next.Input = proto.CloneOf(in)
		next.Input.ClientId = old.GetInput().GetClientId()
		if len(metadata) > 0 {
			next.ClientMetadata = maps.Clone(metadata)
		}
		if proto.Size(q)-proto.Size(old)+proto.Size(next)+queueSlack > thread.MaxQueuedSize {
			return nil, queueTooLarge()
		}
		return &heddlev1.QueueChanged{Change: &heddlev1.QueueChanged_Replaced{Replaced: next}}, nil
	}, nil)
	return next, err
}

// ReorderQueued puts the messages into the order of the ids.
func (a *Agent) ReorderQueued(ctx context.Context, threadID string, ids []string) error {
	return a.changeQueue(ctx, threadID, func(q *heddlev1.Queue) (*heddlev1.QueueChanged, error) {
		if _, ok := thread.Reordered(q, ids); !ok {
			return nil, errdefs.New(errdefs.InvalidArgument, "queue reorder must include every queued submission exactly once")
		}
		return &heddlev1.QueueChanged{Change: &heddlev1.QueueChanged_Ordered{Ordered: &heddlev1.QueueOrder{Ids: ids}}}, nil
	}, nil)
}

// DeleteQueued takes a message back and reports whether it still waited.
func (a *Agent) DeleteQueued(ctx context.Context, threadID, id string) (bool, error) {
	deleted := false
	err := a.changeQueue(ctx, threadID, func(q *heddlev1.Queue) (*heddlev1.QueueChanged, error) {
		if deleted = thread.FindQueued(q, id) >= 0; !deleted {
			return nil, nil
		}
		return &heddlev1.QueueChanged{Change: &heddlev1.QueueChanged_RemovedId{RemovedId: id}}, nil
	}, nil)
	return deleted, err
}

// StartQueued takes a message up now, the first one with an empty id, also from
// a queue that is held.
func (a *Agent) StartQueued(ctx context.Context, r TurnRequest, id string) (*heddlev1.Turn, error) {
	if a.cfg.Held != nil && !a.cfg.Held(r.ThreadID) {
		return nil, errdefs.New(errdefs.InvalidArgument, "resume the thread before starting a queued message")
	}
	lt, err := a.acquired(ctx, r.ThreadID)
	if err != nil {
		return nil, err
	}
	defer lt.release()
	t := lt.current()
	busy := t != nil && !t.ending()
	if !busy {
		if err := lt.idle(ctx); err != nil {
			return nil, err
		}
	}
	q, err := lt.queue(ctx)
	switch {
	case err != nil:
		return nil, err
	case id != "" && thread.FindQueued(q, id) < 0:
		return nil, notQueued(id)
	case busy:
		return nil, errdefs.New(errdefs.Busy, "thread already has an active or pending turn")
	case len(q.GetMessages()) == 0:
		return nil, errdefs.New(errdefs.InvalidArgument, "queue is empty")
	case id == "":
		id = q.GetMessages()[0].GetId()
	}
	return a.takeQueued(ctx, lt, r, id)
}

// TakeQueued takes the first message up in a thread that was just loaded, where
// a stop came between a turn and the next one.
func (a *Agent) TakeQueued(ctx context.Context, r TurnRequest) error {
	lt := a.peek(r.ThreadID)
	if lt == nil || !lt.goesOn() {
		return nil
	}
	if err := lt.acquire(ctx); err != nil {
		return err
	}
	defer lt.release()
	if a.peek(lt.id) != lt {
		return nil
	}
	_, err := a.takeQueued(ctx, lt, r, "")
	return err
}

// takeQueued begins the turn of a message, or with an empty id of the one that
// is next by itself; nil where there is none or a turn runs. The gate is held.
func (a *Agent) takeQueued(ctx context.Context, lt *live, r TurnRequest, id string) (*heddlev1.Turn, error) {
	if lt.ephemeral || lt.current() != nil {
		return nil, nil
	}
	q, err := lt.queue(ctx)
	if err != nil {
		return nil, err
	}
	m := thread.Waiting(q)
	if i := thread.FindQueued(q, id); i >= 0 {
		m = q.GetMessages()[i]
	}
	lt.mayQueue(len(q.GetMessages()) > 0)
	if m == nil {
		return nil, nil
	}
	r.Input, r.queued = m.GetInput(), m.GetId()
	ans, err := a.begin(ctx, lt, r)
	if err != nil {
		return nil, err
	}
	return ans.Turn, nil
}

// goesOn reports whether something may follow the turn that ended by itself.
func (lt *live) goesOn() bool {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.queued && !lt.ephemeral
}

// follow lets the thread go on after the end of a turn: with the next queued
// message, else with its goal.
func (a *Agent) follow(lt *live, last *turn) {
	if !a.followQueue(lt, last) {
		a.pursue(lt, last)
	}
	a.turnEnded(lt)
}

func (a *Agent) followQueue(lt *live, last *turn) bool {
	row := last.snapshot()
	if !lt.goesOn() || row.GetStatus() == heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED {
		return false
	}
	if err := lt.acquire(a.ctx); err != nil {
		return false
	}
	defer lt.release()
	if a.peek(lt.id) != lt || lt.current() != nil {
		return false
	}
	stays := row.GetOnDisconnect() == heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE
	if !stays && a.cfg.Held != nil && !a.cfg.Held(lt.id) {
		return false
	}
	r := TurnRequest{ThreadID: lt.id, SessionID: row.GetSessionId(), OnDisconnect: row.GetOnDisconnect()}
	t, err := a.takeQueued(a.ctx, lt, r, "")
	if err != nil {
		a.cfg.Logger.Warn("take up a queued message", "thread", lt.id, "error", err)
	}
	return t != nil
}

// resumeQueue takes up what waited when the last control plane stopped, unless
// its client is gone and was to be waited for.
func (a *Agent) resumeQueue(lt *live) {
	st, err := a.store.Load(a.ctx, lt.id)
	if err != nil {
		a.cfg.Logger.Error("read the queue", "thread", lt.id, "error", err)
		return
	}
	m := thread.Waiting(st.Queue)
	if m == nil || st.Row.GetArchived() || st.Row.GetActiveTurnId() != "" {
		return
	}
	if m.GetOnDisconnect() != heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE && !a.back(a.ctx, m.GetSessionId()) {
		return
	}
	r := TurnRequest{ThreadID: lt.id, SessionID: m.GetSessionId(), OnDisconnect: m.GetOnDisconnect()}
	if err := a.TakeQueued(a.ctx, r); err != nil {
		a.cfg.Logger.Warn("take up a queued message", "thread", lt.id, "error", err)
	}
}
