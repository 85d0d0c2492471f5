// Package eventlog is the one log of every thread: it numbers events, folds
// them into rows, commits both together and shows them to watchers.
//
// Guarantees:
//   - The events of a thread have the seqs 1, 2, 3 ... in the order of the
//     calls of Append. A seq that a watcher has seen is never given to another
//     event: watchers see events only after the commit that holds them.
//   - There is one committer per store. It takes everything that is pending,
//     commits it as one transaction, publishes it and starts again: at once
//     when somebody waits for a Pending, within Config.Lazy otherwise.
//   - Append never waits for a commit. What is pending is bounded; past the
//     bound Append fails with errdefs.Overloaded.
//   - An append under an epoch that was superseded fails with
//     errdefs.StaleEpoch, in memory or, for another replica's claim, in the
//     commit. After a failed commit its threads take no append until they are
//     claimed again, so that no event follows one that was lost.
//   - A watcher that is slow is served from the store. It is never dropped and
//     never makes an append wait.
//
// Ephemeral threads live in a memory store of the log's own and never touch
// Config.Store. All methods are safe for concurrent use.
package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/memstore"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Defaults of Config.
const (
	DefaultLazy       = 5 * time.Millisecond
	DefaultMaxPending = 1 << 16
	DefaultMaxBytes   = 64 << 20
	DefaultMaxLoaded  = 1024
)

// Config holds the parts and limits of a log.
type Config struct {
	// Store holds the durable threads. The log does not close it.
	Store store.Store
	// Clock gives events their time; nil means time.Now.
	Clock func() time.Time
	// Logger may be nil.
	Logger *slog.Logger
	// Lazy is how long events may wait for a commit when nobody waits for
	// them; 0 means DefaultLazy.
	Lazy time.Duration
	// MaxPending and MaxBytes bound the events that are not yet committed; 0
	// means the defaults.
	MaxPending int
	MaxBytes   int
	// MaxLoaded bounds the idle threads whose state is kept in memory; 0 means
	// DefaultMaxLoaded.
	MaxLoaded int
	// Committed, when set, is called with the events of each thread after
	// their commit, in commit order, before the waiters of the commit return.
	// It must not block and must not change the events.
	Committed func(threadID string, events []*heddlev1.Event)
}

func (c *Config) validate() error {
	if c.Store == nil {
		return errors.New("open event log: no store")
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Lazy = defaulted(c.Lazy, DefaultLazy)
	c.MaxPending = defaulted(c.MaxPending, DefaultMaxPending)
	c.MaxBytes = defaulted(c.MaxBytes, DefaultMaxBytes)
	c.MaxLoaded = defaulted(c.MaxLoaded, DefaultMaxLoaded)
	return nil
}

func defaulted[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Log is the event log of one home.
type Log struct {
	cfg     Config
	mem     *memstore.Store
	durable *committer
	memory  *committer

	// mu guards the fields below and the groups of both committers.
	mu      sync.Mutex
	closed  bool
	threads map[string]*entry
	feeds   map[string]*feed
	stats   map[string]int64
}

// entry is the state of one thread in memory.
type entry struct {
	id        string
	committer *committer
	// claim is held while a claim is under way.
	claim chan struct{}
	// state is nil until it is loaded and after a failed commit.
	state  *thread.State
	epoch  uint64
	fenced bool
	broken error
	// uncommitted counts the groups that hold an append of the thread.
	uncommitted int
}

// requestIDBase keeps the approval request ids of ephemeral threads apart from
// the durable ones. It fits a 32-bit integer together with what is added.
const requestIDBase = 1 << 30

// Open starts the committers of a log.
func Open(_ context.Context, cfg Config) (*Log, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	// The seconds make a reuse of an id after a restart unlikely, when a
	// client may still answer a question of an ephemeral thread that is gone.
	first := requestIDBase + cfg.Clock().Unix()%(1<<22)*64
	l := &Log{
		cfg:     cfg,
		mem:     memstore.New(memstore.Config{FirstRequestID: first}),
		threads: map[string]*entry{},
		feeds:   map[string]*feed{},
		stats:   map[string]int64{},
	}
	l.durable = newCommitter(l, cfg.Store)
	l.memory = newCommitter(l, l.mem)
	go l.durable.run()
	go l.memory.run()
	return l, nil
}

// Close commits what is pending and stops the committers. Later appends fail.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, c := range []*committer{l.durable, l.memory} {
		c.signal()
		select {
		case <-c.stopped:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.feeds {
		f.end(errClosed())
	}
	return nil
}

func errClosed() error {
	return errdefs.New(errdefs.StoreUnavailable, "the event log is closed")
}

// Store returns the reading side of the home: ephemeral threads come from
// memory, all others from Config.Store.
func (l *Log) Store() store.Reader { return router{durable: l.cfg.Store, mem: l.mem} }

// SetMeta writes a key of the home durably; nil removes it.
func (l *Log) SetMeta(ctx context.Context, key string, value []byte) error {
	return l.cfg.Store.SetMeta(ctx, key, value)
}

// PutRecords writes and removes records of a principal durably.
func (l *Log) PutRecords(ctx context.Context, principal, kind string, records ...store.Record) error {
	return l.cfg.Store.PutRecords(ctx, principal, kind, records...)
}

// Stats returns the counters of the log and of Config.Store. "barriers" counts
// the calls of Wait, "groups" the commits of both stores, "commit_micros" the
// time they took in microseconds, "compactions" the spans of increments that
// were dropped.
func (l *Log) Stats() map[string]int64 {
	out := l.cfg.Store.Stats()
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, v := range l.stats {
		out[k] = v
	}
	return out
}

// committerOf returns the committer of the store that holds a thread.
func (l *Log) committerOf(threadID string) *committer {
	if l.mem.Has(threadID) {
		return l.memory
	}
	return l.durable
}

// entryOf returns the thread's entry, making an empty one; mu must be held.
func (l *Log) entryOf(threadID string, c *committer) *entry {
	e := l.threads[threadID]
	if e == nil {
		l.evict()
		e = &entry{id: threadID, committer: c, claim: make(chan struct{}, 1)}
		l.threads[threadID] = e
	}
	return e
}

// evict forgets some idle threads when there are too many; mu must be held.
func (l *Log) evict() {
	if len(l.threads) < l.cfg.MaxLoaded {
		return
	}
	dropped := 0
	for id, e := range l.threads {
		if e.uncommitted > 0 || len(e.claim) > 0 || e.fenced || e.broken != nil || e.state == nil || e.state.Busy() {
			continue
		}
		delete(l.threads, id)
		if dropped++; dropped >= 1+l.cfg.MaxLoaded/16 {
			return
		}
	}
}
