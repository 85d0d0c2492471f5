// Package memstore is a store.Store in memory, for ephemeral threads and
// tests. It keeps the whole contract except durability: what it holds is gone
// with the process.
package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/chain"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Config holds the options of a store; the zero value is valid.
type Config struct {
	// FirstRequestID is the first approval request id that is handed out.
	FirstRequestID int64
}

// Store implements store.Store.
type Store struct {
	mu      sync.RWMutex
	closed  bool
	threads map[string]*log
	meta    map[string][]byte
	records map[string]map[string][]byte
	nextReq int64
	commits int64
	events  int64
	bytes   int64
}

// log is one thread. Slices are sorted and only ever appended to or replaced.
type log struct {
	state    *thread.State
	events   []*heddlev1.Event
	turns    []*heddlev1.Turn
	items    []thread.ItemRow
	itemByID map[string]thread.ItemKey
	history  []thread.HistoryRow
	floors   []thread.Floor
	approval map[string]*heddlev1.Approval
	attached map[thread.AttachmentKey]*heddlev1.Attachment
	forks    int
}

// New returns an empty store.
func New(cfg Config) *Store {
	return &Store{threads: map[string]*log{}, meta: map[string][]byte{}, records: map[string]map[string][]byte{}, nextReq: cfg.FirstRequestID}
}

// Close makes every later call fail.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func errClosed() error {
	return errdefs.New(errdefs.StoreUnavailable, "the store is closed")
}

// Has reports whether the store holds the thread.
func (s *Store) Has(threadID string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.threads[threadID] != nil
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, appends []store.Append) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed()
	}
	for i := range appends {
		if err := s.check(&appends[i]); err != nil {
			return err
		}
	}
	for i := range appends {
		s.apply(&appends[i])
	}
	s.commits++
	return nil
}

func (s *Store) check(a *store.Append) error {
	var head *store.Head
	if l := s.threads[a.ThreadID]; l != nil {
		head = &store.Head{Seq: l.state.LastSeq, Epoch: l.state.Epoch}
	}
	return a.Check(head)
}

func (s *Store) apply(a *store.Append) {
	l := s.threads[a.ThreadID]
	if l == nil {
		l = &log{state: thread.New(), itemByID: map[string]thread.ItemKey{}, approval: map[string]*heddlev1.Approval{},
			attached: map[thread.AttachmentKey]*heddlev1.Attachment{}}
		l.state.BaseOrdinal = a.BaseOrdinal
		s.threads[a.ThreadID] = l
		if source := s.threads[a.Changes.Row.GetForkedFromId()]; source != nil {
			source.forks++
		}
	}
	l.apply(a)
	s.nextReq = max(s.nextReq, a.Changes.NextRequestID)
	s.events += int64(len(a.Events))
	for _, ev := range a.Events {
		s.bytes += int64(proto.Size(ev))
	}
}

func (l *log) apply(a *store.Append) {
	c := &a.Changes
	l.events = append(l.events, a.Events...)
	l.state.LastSeq, l.state.Epoch = a.LastSeq(), a.Epoch
	if c.Row != nil {
		l.state.Row = c.Row
	}
	for _, t := range c.Turns {
		l.putTurn(t)
	}
	for _, it := range c.Items {
		it.ThreadID = cmp.Or(it.ThreadID, a.ThreadID)
		l.putItem(it)
	}
	for id, intent := range c.Actions {
		if intent == nil {
			delete(l.state.Actions, id)
		} else {
			l.state.Actions[id] = intent
		}
	}
	for id, ap := range c.Approvals {
		l.approval[id] = ap
		if ap.GetDecision() == heddlev1.Decision_DECISION_UNSPECIFIED {
			l.state.Approvals[id] = ap
		} else {
			delete(l.state.Approvals, id)
		}
	}
	if c.Queue != nil {
		l.state.Queue = c.Queue
	}
	for key, row := range c.Attachments {
		if row.Removed {
			delete(l.attached, key)
		} else {
			l.attached[key] = row.Attachment
		}
	}
	l.history = append(l.history, c.History...)
	l.floors = append(l.floors, c.Floors...)
	for _, span := range a.Compact {
		l.events = store.DropIncrements(l.events, span)
	}
}

func (l *log) putTurn(t *heddlev1.Turn) {
	if thread.PhaseOf(t).Ended() {
		delete(l.state.Turns, t.GetId())
	} else {
		l.state.Turns[t.GetId()] = t
	}
	i, found := slices.BinarySearchFunc(l.turns, t.GetOrdinal(), func(t *heddlev1.Turn, ord int64) int { return int(t.GetOrdinal() - ord) })
	if found {
		l.turns[i] = t
		return
	}
	l.turns = slices.Insert(l.turns, i, t)
}

func (l *log) putItem(it thread.ItemRow) {
	if it.Open() {
		l.state.Items[it.Item.GetId()] = thread.OpenItem{ItemRow: it}
	} else {
		delete(l.state.Items, it.Item.GetId())
	}
	l.itemByID[it.Item.GetId()] = it.ItemKey
	i, found := l.findItem(it.ItemKey)
	if found {
		l.items[i] = it
		return
	}
	l.items = slices.Insert(l.items, i, it)
}

func (l *log) findItem(k thread.ItemKey) (int, bool) {
	return slices.BinarySearchFunc(l.items, k, func(r thread.ItemRow, k thread.ItemKey) int {
		switch {
		case r.Less(k):
			return -1
		case k.Less(r.ItemKey):
			return 1
		}
		return 0
	})
}

// DeleteThread implements store.Store.
func (s *Store) DeleteThread(_ context.Context, threadID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.get(threadID)
	if err != nil {
		return err
	}
	if l.forks > 0 {
		return store.HasForks(threadID)
	}
	delete(s.threads, threadID)
	if source := s.threads[l.state.Row.GetForkedFromId()]; source != nil {
		source.forks--
	}
	s.commits++
	return nil
}

// SetMeta implements store.Store.
func (s *Store) SetMeta(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed()
	}
	if value == nil {
		delete(s.meta, key)
	} else {
		s.meta[key] = bytes.Clone(value)
	}
	s.commits++
	return nil
}

// get returns a thread's log; the lock must be held.
func (s *Store) get(threadID string) (*log, error) {
	if s.closed {
		return nil, errClosed()
	}
	l := s.threads[threadID]
	if l == nil {
		return nil, store.NotFound(threadID)
	}
	return l, nil
}

var (
	_ store.Store = (*Store)(nil)
	_ chain.Rows  = rows{}
)
