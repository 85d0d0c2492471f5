package eventlog

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Pending is an append that may not be durable yet.
type Pending struct {
	log      *Log
	c        *committer
	group    *group
	threadID string
	first    uint64
	err      error
}

// FirstSeq returns the seq of the append's first event, 0 when it was refused.
func (p *Pending) FirstSeq() uint64 { return p.first }

// Err returns why the append was refused, nil when it was queued. It does not
// wait.
func (p *Pending) Err() error { return p.err }

// Wait makes the commit start at once and returns nil when the append is
// durable. With an ended ctx it returns early; the append stays queued.
func (p *Pending) Wait(ctx context.Context) error {
	if p.err != nil {
		return p.err
	}
	p.log.barrier(p.c, p.group)
	select {
	case <-p.group.done:
		return p.group.errs[p.threadID]
	case <-ctx.Done():
		return ctx.Err()
	}
}

// barrier makes the group's commit start at once.
func (l *Log) barrier(c *committer, g *group) {
	l.mu.Lock()
	l.stats["barriers"]++
	if g == c.current && !g.barrier {
		g.barrier = true
		c.signal()
	}
	l.mu.Unlock()
}

func refused(err error) *Pending { return &Pending{err: err} }

// Append adds events to a thread's log, all or none. It gives them seq, thread
// id and, where it is 0, time; turns within them get what the fold knows. The
// events and the messages they point to belong to the log from then on and
// must not be changed. An append that the fold refuses (see thread.State.Fold) or
// that comes under a superseded epoch returns a Pending whose Wait fails.
func (l *Log) Append(threadID string, epoch uint64, events ...*heddlev1.Event) *Pending {
	if len(events) == 0 {
		return refused(errdefs.New(errdefs.InvalidArgument, "append to thread %s: no events", threadID))
	}
	size := 0
	for _, ev := range events {
		size += proto.Size(ev)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e, err := l.writable(threadID, epoch)
	if err != nil {
		return refused(err)
	}
	g := e.committer.current
	if g.events+len(events) > l.cfg.MaxPending || g.bytes+size > max(l.cfg.MaxBytes, size) {
		return refused(errdefs.New(errdefs.Overloaded, "append to thread %s: %d events (%d bytes) wait for the store", threadID, g.events, g.bytes))
	}
	first := e.state.LastSeq + 1
	ch, state, err := l.fold(e, events)
	if err != nil {
		return refused(errdefs.New(errdefs.Internal, "append to thread %s: %w", threadID, err))
	}
	e.state = state
	e.committer.add(e, store.Append{ThreadID: threadID, ExpectedSeq: first - 1, Epoch: epoch, Events: events, Changes: ch}, size)
	return &Pending{log: l, c: e.committer, group: g, threadID: threadID, first: first}
}

// writable returns the thread's entry if the epoch may write to it; mu is held.
func (l *Log) writable(threadID string, epoch uint64) (*entry, error) {
	if l.closed {
		return nil, errClosed()
	}
	e := l.threads[threadID]
	if e == nil || e.state == nil && e.broken == nil && !e.fenced {
		var err error
		if e, err = l.load(threadID); err != nil {
			return nil, err
		}
	}
	switch {
	case e.fenced || e.epoch != epoch:
		return nil, errdefs.New(errdefs.StaleEpoch, "thread %s is no longer owned under epoch %d", threadID, epoch)
	case e.broken != nil:
		return nil, e.broken
	}
	return e, nil
}

// load reads the state of a thread that was evicted. It reads the store under
// the lock: rare, and never a wait for a commit.
func (l *Log) load(threadID string) (*entry, error) {
	c := l.committerOf(threadID)
	state, err := c.store.Load(context.Background(), threadID)
	if err != nil {
		return nil, err
	}
	e := l.entryOf(threadID, c)
	e.state, e.epoch = state, state.Epoch
	return e, nil
}

// fold numbers the events and applies them to the entry's state. It returns
// the state after them; the entry's own is as it was when it fails.
func (l *Log) fold(e *entry, events []*heddlev1.Event) (thread.Changes, *thread.State, error) {
	var ch thread.Changes
	state := e.state
	if len(events) > 1 {
		state = state.Clone()
	}
	now := l.cfg.Clock().UnixMilli()
	for _, ev := range events {
		ev.Seq, ev.ThreadId = state.LastSeq+1, e.id
		if ev.TimeMs == 0 {
			ev.TimeMs = now
		}
		if err := state.Fold(ev, &ch); err != nil {
			return ch, nil, err
		}
	}
	return ch, state, nil
}

// Claim takes the thread: it raises the owner epoch durably and returns it.
// Appends under an older epoch fail from then on; those that were queued
// before are committed first.
func (l *Log) Claim(ctx context.Context, threadID string) (uint64, error) {
	e, err := l.lockClaim(ctx, threadID)
	if err != nil {
		return 0, err
	}
	defer func() { <-e.claim }()
	if err := l.drain(ctx, e); err != nil {
		l.unfence(e)
		return 0, err
	}
	for attempt := 0; ; attempt++ {
		epoch, err := l.tryClaim(ctx, e)
		if err == nil || attempt == 3 || !errdefs.Is(err, errdefs.StaleEpoch) {
			if err != nil {
				l.unfence(e)
			}
			return epoch, err
		}
	}
}

// lockClaim takes the entry's claim and fences the older owner.
func (l *Log) lockClaim(ctx context.Context, threadID string) (*entry, error) {
	c := l.committerOf(threadID)
	if _, err := c.store.Thread(ctx, threadID); err != nil && !errdefs.Is(err, errdefs.Internal) {
		return nil, err
	}
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil, errClosed()
		}
		e := l.entryOf(threadID, c)
		l.mu.Unlock()
		select {
		case e.claim <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		l.mu.Lock()
		current := l.threads[threadID] == e
		e.fenced = true
		l.mu.Unlock()
		if current {
			return e, nil
		}
		// It was evicted or deleted meanwhile.
		<-e.claim
	}
}

func (l *Log) unfence(e *entry) {
	l.mu.Lock()
	e.fenced = false
	l.mu.Unlock()
}

// drain waits until nothing of the thread is uncommitted.
func (l *Log) drain(ctx context.Context, e *entry) error {
	for {
		l.mu.Lock()
		g := e.committer.holding(e)
		if g == nil {
			l.mu.Unlock()
			return nil
		}
		if g == e.committer.current && !g.barrier {
			g.barrier = true
			e.committer.signal()
		}
		l.mu.Unlock()
		select {
		case <-g.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Log) tryClaim(ctx context.Context, e *entry) (uint64, error) {
	state, err := e.committer.store.Load(ctx, e.id)
	if err != nil {
		return 0, err
	}
	epoch := state.Epoch + 1
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return 0, errClosed()
	}
	g := e.committer.current
	g.barrier = true
	e.committer.add(e, store.Append{ThreadID: e.id, ExpectedSeq: state.LastSeq, Epoch: epoch, Claim: true}, 0)
	l.mu.Unlock()
	// The claim is queued: its outcome is awaited whatever the caller's ctx
	// does, so that the entry never disagrees with the store.
	<-g.done
	if err := g.errs[e.id]; err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	state.Epoch = epoch
	e.state, e.epoch, e.fenced, e.broken = state, epoch, false, nil
	return epoch, nil
}

// Delete removes a thread for ever, after what is queued for it. It fails with
// errdefs.ThreadHasForks while a fork refers to it. Watchers of the thread end
// with errdefs.ThreadNotFound.
func (l *Log) Delete(ctx context.Context, threadID string) error {
	e, err := l.lockClaim(ctx, threadID)
	if err != nil {
		return err
	}
	defer func() { <-e.claim }()
	defer l.unfence(e)
	if err := l.drain(ctx, e); err != nil {
		return err
	}
	if err := e.committer.store.DeleteThread(ctx, threadID); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.threads, threadID)
	if f := l.feeds[threadID]; f != nil {
		f.end(store.NotFound(threadID))
	}
	return nil
}
