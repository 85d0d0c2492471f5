package eventlog

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Create makes a thread from its first row and returns the owner epoch of the
// caller. Its first event is durable on return. A row with forked_from_id is a
// fork: forked_seq (0 means now) and forked_last_turn_id (empty means that no
// turn is shared) say what it shares with its source. It fails with
// errdefs.TurnNotFound when the source has no such turn. An ephemeral thread
// is kept in memory only.
func (l *Log) Create(ctx context.Context, row *heddlev1.Thread) (uint64, error) {
	row = proto.CloneOf(row)
	c := l.durable
	if row.GetEphemeral() {
		c = l.memory
	}
	a := store.Append{ThreadID: row.GetId(), Epoch: 1, Create: true}
	if err := l.fork(ctx, row, &a); err != nil {
		return 0, err
	}
	ev := &heddlev1.Event{
		Seq: 1, ThreadId: row.GetId(), TimeMs: l.cfg.Clock().UnixMilli(),
		Payload: &heddlev1.Event_ThreadCreated{ThreadCreated: &heddlev1.ThreadCreated{Thread: row}},
	}
	state := thread.New()
	state.Epoch, state.BaseOrdinal = 1, a.BaseOrdinal
	if err := state.Fold(ev, &a.Changes); err != nil {
		return 0, errdefs.New(errdefs.InvalidArgument, "create thread: %w", err)
	}
	a.Events = []*heddlev1.Event{ev}

	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return 0, errClosed()
	}
	if l.threads[row.GetId()] != nil {
		l.mu.Unlock()
		return 0, errdefs.New(errdefs.InvalidArgument, "create thread: %s exists already", row.GetId())
	}
	e := l.entryOf(row.GetId(), c)
	e.state, e.epoch = state, 1
	g := c.current
	g.barrier = true
	c.add(e, a, proto.Size(ev))
	l.stats["barriers"]++
	l.mu.Unlock()
	select {
	case <-g.done:
		return 1, g.errs[row.GetId()]
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// fork fills in what a fork takes from its source.
func (l *Log) fork(ctx context.Context, row *heddlev1.Thread, a *store.Append) error {
	source := row.GetForkedFromId()
	if source == "" {
		return nil
	}
	src, err := l.Store().Thread(ctx, source)
	if err != nil {
		return err
	}
	if row.ForkedSeq == 0 || row.ForkedSeq > src.GetLastSeq() {
		row.ForkedSeq = src.GetLastSeq()
	}
	if row.CreatedAtMs == 0 {
		row.CreatedAtMs = l.cfg.Clock().UnixMilli()
	}
	if row.GetForkedLastTurnId() == "" {
		return nil
	}
	t, err := l.Store().Turn(ctx, source, row.GetForkedLastTurnId())
	if err != nil {
		return err
	}
	row.TurnCount = t.GetOrdinal()
	if row.Preview == "" {
		row.Preview = src.GetPreview()
	}
	if l.sameStore(row, source) {
		a.BaseOrdinal = t.GetOrdinal()
		return nil
	}
	// The fork gets its own copy: an ephemeral fork needs no promise of its
	// source then, and a durable fork of an ephemeral thread outlives it.
	a.Changes, err = l.Store().Shared(ctx, row, t.GetOrdinal())
	return err
}

// sameStore reports whether a fork can read its source where it lies.
func (l *Log) sameStore(row *heddlev1.Thread, source string) bool {
	return row.GetEphemeral() == l.mem.Has(source)
}
