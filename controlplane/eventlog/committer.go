package eventlog

import (
	"context"
	"errors"
	"time"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	"github.com/heddle-dev/heddle/proto/failpoint"
)

const (
	// compactAfter is how long a store must have been idle before increments
	// of completed items are dropped in a commit of their own.
	compactAfter = 250 * time.Millisecond
	// compactSpan bounds the seqs of one dropping, so that no commit grows
	// long.
	compactSpan = 1024
	// maxCompactions bounds the remembered spans; what is over it stays.
	maxCompactions = 4096
	// unknownRetries is how often a commit with an unknown outcome is looked
	// at and tried again.
	unknownRetries = 3
)

// group is everything that one commit holds.
type group struct {
	appends []*store.Append
	entries []*entry
	index   map[string]int
	events  int
	bytes   int
	since   time.Time
	barrier bool
	// done is closed after the commit; errs, set before, says which threads'
	// appends failed.
	done chan struct{}
	errs map[string]error
}

func newGroup() *group {
	return &group{index: map[string]int{}, done: make(chan struct{}), errs: map[string]error{}}
}

// committer is the one writer of a store. Log.mu guards current, inFlight and
// spans.
type committer struct {
	log      *Log
	store    store.Store
	current  *group
	inFlight *group
	spans    []span
	wake     chan struct{}
	stopped  chan struct{}
}

// span is a remembered compaction.
type span struct {
	entry *entry
	thread.Compaction
}

func newCommitter(l *Log, s store.Store) *committer {
	return &committer{log: l, store: s, current: newGroup(), wake: make(chan struct{}, 1), stopped: make(chan struct{})}
}

func (c *committer) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// add queues an append behind what the thread has queued; Log.mu is held.
func (c *committer) add(e *entry, a store.Append, size int) {
	g := c.current
	if len(g.appends) == 0 {
		g.since = time.Now()
		c.signal()
	} else if g.barrier {
		c.signal()
	}
	g.events += len(a.Events)
	g.bytes += size
	if i, ok := g.index[e.id]; ok {
		queued := g.appends[i]
		queued.Events = append(queued.Events, a.Events...)
		queued.Changes.Merge(&a.Changes)
		return
	}
	g.index[e.id] = len(g.appends)
	g.appends = append(g.appends, &a)
	g.entries = append(g.entries, e)
	e.uncommitted++
}

// holding returns the group that holds an append of the entry, the newest
// first; Log.mu is held.
func (c *committer) holding(e *entry) *group {
	for _, g := range []*group{c.current, c.inFlight} {
		if g != nil {
			if _, ok := g.index[e.id]; ok {
				return g
			}
		}
	}
	return nil
}

// run commits until the log is closed and nothing is pending.
func (c *committer) run() {
	defer close(c.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		g, delay, stop := c.next()
		if stop {
			return
		}
		if g != nil {
			c.commit(g)
			continue
		}
		timer.Reset(delay)
		select {
		case <-c.wake:
		case <-timer.C:
			c.expire()
		}
	}
}

// next takes the current group when it is due, or says how long to wait.
func (c *committer) next() (g *group, delay time.Duration, stop bool) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	g = c.current
	switch {
	case len(g.appends) == 0 && c.log.closed:
		return nil, 0, true
	case len(g.appends) == 0 && len(c.spans) > 0:
		return nil, compactAfter, false
	case len(g.appends) == 0:
		return nil, time.Hour, false
	case !g.barrier && !c.log.closed:
		if rest := c.log.cfg.Lazy - time.Since(g.since); rest > 0 {
			return nil, rest, false
		}
	}
	c.current = newGroup()
	c.inFlight = g
	c.attachSpan(g)
	return g, 0, false
}

// expire handles the end of a wait: an idle store drops a span of increments.
func (c *committer) expire() {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	if len(c.current.appends) > 0 || len(c.spans) == 0 {
		return
	}
	e := c.spans[0].entry
	if c.log.threads[e.id] != e || e.state == nil || e.fenced || e.broken != nil {
		c.spans = c.spans[1:]
		return
	}
	c.add(e, store.Append{ThreadID: e.id, ExpectedSeq: e.state.LastSeq, Epoch: e.epoch}, 0)
	c.current.barrier = true
}

// attachSpan lets a span ride in the group when nobody waits for the group, or
// when it is small; Log.mu is held.
func (c *committer) attachSpan(g *group) {
	for i, s := range c.spans {
		at, ok := g.index[s.entry.id]
		idle := len(g.appends) == 1 && len(g.appends[0].Events) == 0
		if !ok || g.appends[at].Claim || (g.barrier && !idle && s.Last-s.First >= compactSpan/4) {
			continue
		}
		chunk := s.Compaction
		if s.Last-s.First < compactSpan {
			c.spans = append(c.spans[:i], c.spans[i+1:]...)
		} else {
			chunk.Last = s.First + compactSpan - 1
			c.spans[i].First = chunk.Last + 1
		}
		g.appends[at].Compact = append(g.appends[at].Compact, chunk)
		c.log.stats["compactions"]++
		return
	}
}

// commit makes the group durable, publishes it and releases its waiters.
func (c *committer) commit(g *group) {
	began := time.Now()
	for {
		err := c.tryCommit(g)
		if err == nil {
			break
		}
		if conflict, ok := errors.AsType[*store.ConflictError](err); ok && g.live(conflict.ThreadID) {
			c.fail(g, conflict.ThreadID, conflict.Err)
			continue
		}
		for _, a := range g.appends {
			if g.live(a.ThreadID) {
				c.fail(g, a.ThreadID, storeError(err))
			}
		}
		break
	}
	c.log.mu.Lock()
	c.log.stats["commit_micros"] += time.Since(began).Microseconds()
	c.log.mu.Unlock()
	c.publish(g)
}

func storeError(err error) error {
	if errdefs.From(err) != nil {
		return err
	}
	if errors.Is(err, store.ErrUnknownOutcome) {
		return errdefs.New(errdefs.UnknownOutcome, "commit: %w", err)
	}
	return errdefs.New(errdefs.StoreUnavailable, "commit: %w", err)
}

// live reports whether the thread's append has not failed.
func (g *group) live(threadID string) bool {
	_, ok := g.index[threadID]
	return ok && g.errs[threadID] == nil
}

// tryCommit commits the appends that have not failed. When the store cannot
// tell what happened the head tells.
func (c *committer) tryCommit(g *group) error {
	var batch []store.Append
	for _, a := range g.appends {
		if g.live(a.ThreadID) {
			batch = append(batch, *a)
		}
	}
	if len(batch) == 0 {
		return nil
	}
	ctx := context.Background()
	failpoint.Hit("log/before-commit")
	err := c.store.Commit(ctx, batch)
	failpoint.Hit("log/after-commit")
	for try := 0; errors.Is(err, store.ErrUnknownOutcome) && try < unknownRetries; try++ {
		c.log.cfg.Logger.Warn("commit with unknown outcome", "error", err)
		done, lookErr := c.happened(ctx, telling(batch))
		switch {
		case lookErr != nil:
			continue
		case done:
			return nil
		}
		err = c.store.Commit(ctx, batch)
	}
	return err
}

// telling is an append of a commit that moves its thread's head, so that the head
// tells what happened; one that only compacts moves nothing.
func telling(batch []store.Append) *store.Append {
	for i := range batch {
		if a := &batch[i]; len(a.Events) > 0 || a.Create || a.Claim {
			return a
		}
	}
	return &batch[0]
}

// happened reads the head of one thread of a commit: as the commit is one
// transaction, it stands for all.
func (c *committer) happened(ctx context.Context, a *store.Append) (bool, error) {
	state, err := c.store.Load(ctx, a.ThreadID)
	if a.Create && errdefs.Is(err, errdefs.ThreadNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return state.LastSeq == a.LastSeq() && state.Epoch == a.Epoch, nil
}

// fail records that a thread's append is lost, together with everything that
// was queued behind it, and breaks the thread until it is claimed again.
func (c *committer) fail(g *group, threadID string, err error) {
	c.log.cfg.Logger.Error("append lost", "thread_id", threadID, "error", err)
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	g.errs[threadID] = err
	e := g.entries[g.index[threadID]]
	if g.appends[g.index[threadID]].Create {
		delete(c.log.threads, threadID)
	}
	e.state, e.broken = nil, err
	if _, ok := c.current.index[threadID]; ok {
		c.current.errs[threadID] = err
	}
}

// publish shows the committed events to watchers and releases the waiters.
func (c *committer) publish(g *group) {
	l := c.log
	l.mu.Lock()
	l.stats["groups"]++
	for i, a := range g.appends {
		g.entries[i].uncommitted--
		if !g.live(a.ThreadID) {
			continue
		}
		if f := l.feeds[a.ThreadID]; f != nil {
			f.publish(a.Events)
		}
		for _, s := range a.Changes.Compactable {
			if len(c.spans) < maxCompactions {
				c.spans = append(c.spans, span{entry: g.entries[i], Compaction: s})
			}
		}
	}
	c.inFlight = nil
	l.mu.Unlock()
	if l.cfg.Committed != nil {
		for _, a := range g.appends {
			if g.live(a.ThreadID) && len(a.Events) > 0 {
				l.cfg.Committed(a.ThreadID, a.Events)
			}
		}
	}
	close(g.done)
}
