package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/chain"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// read runs f on a thread's log under the read lock.
func read[T any](s *Store, threadID string, f func(*log) (T, error)) (T, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l, err := s.get(threadID)
	if err != nil {
		var zero T
		return zero, err
	}
	return f(l)
}

// row returns the thread's row with the fields that are not stored in it.
func (l *log) row() *heddlev1.Thread {
	r := proto.CloneOf(l.state.Row)
	r.LastSeq, r.Epoch, r.HasForks = l.state.LastSeq, l.state.Epoch, l.forks > 0
	return r
}

// Load implements store.Reader.
func (s *Store) Load(_ context.Context, threadID string) (*thread.State, error) {
	return read(s, threadID, func(l *log) (*thread.State, error) { return l.state.Clone(), nil })
}

// Thread implements store.Reader.
func (s *Store) Thread(_ context.Context, threadID string) (*heddlev1.Thread, error) {
	return read(s, threadID, func(l *log) (*heddlev1.Thread, error) { return l.row(), nil })
}

// ListThreads implements store.Reader by sorting all threads: the store holds
// few.
func (s *Store) ListThreads(_ context.Context, principal string, req *heddlev1.ListThreadsRequest) (*heddlev1.ListThreadsResponse, error) {
	q, err := store.ParseThreadQuery(principal, req)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, errClosed()
	}
	var found []*heddlev1.Thread
	for _, l := range s.threads {
		if q.Match(l.state.Row) && after(q, l.state.Row) {
			found = append(found, l.row())
		}
	}
	slices.SortFunc(found, func(a, b *heddlev1.Thread) int { return order(q, at(q, a), at(q, b)) })
	if len(found) > q.Size+1 {
		found = found[:q.Size+1]
	}
	return q.Respond(found), nil
}

// position is where a thread stands in a listing.
type position struct {
	major int64
	id    string
}

func at(q *store.ThreadQuery, t *heddlev1.Thread) position {
	if q.Placed {
		return position{id: store.Place(t)}
	}
	return position{q.Key(t), t.GetId()}
}

// order compares two positions in the direction of reading.
func order(q *store.ThreadQuery, a, b position) int {
	c := cmp.Or(cmp.Compare(a.major, b.major), cmp.Compare(a.id, b.id))
	if q.Ascending {
		return c
	}
	return -c
}

func after(q *store.ThreadQuery, t *heddlev1.Thread) bool {
	if q.Start == nil {
		return true
	}
	c := order(q, at(q, t), position{q.Start.Major, q.Start.ID})
	return c > 0 || c == 0 && q.Start.Inclusive
}

// Events implements store.Reader.
func (s *Store) Events(_ context.Context, threadID string, after uint64, maxBytes int) ([]*heddlev1.Event, uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l, err := s.get(threadID)
	if err != nil {
		return nil, 0, err
	}
	i, _ := slices.BinarySearchFunc(l.events, after+1, func(ev *heddlev1.Event, seq uint64) int {
		if store.EndOf(ev) < seq {
			return -1
		}
		return 1
	})
	end, size := i, 0
	for limit := store.ReadBytes(maxBytes); end < len(l.events) && size < limit; end++ {
		size += proto.Size(l.events[end])
	}
	return slices.Clone(l.events[i:end]), l.state.LastSeq, nil
}

// Turn implements store.Reader.
func (s *Store) Turn(_ context.Context, threadID, turnID string) (*heddlev1.Turn, error) {
	return locked(s, func(r rows) (*heddlev1.Turn, error) { return chain.Turn(r, threadID, turnID) })
}

// ListTurns implements store.Reader.
func (s *Store) ListTurns(_ context.Context, req *heddlev1.ListTurnsRequest) (*heddlev1.ListTurnsResponse, error) {
	return locked(s, func(r rows) (*heddlev1.ListTurnsResponse, error) { return chain.ListTurns(r, req) })
}

// Item implements store.Reader.
func (s *Store) Item(_ context.Context, threadID, itemID string) (thread.ItemRow, error) {
	return locked(s, func(r rows) (thread.ItemRow, error) { return chain.Item(r, threadID, itemID) })
}

// ListItems implements store.Reader.
func (s *Store) ListItems(_ context.Context, req *heddlev1.ListItemsRequest) (*heddlev1.ListItemsResponse, error) {
	return locked(s, func(r rows) (*heddlev1.ListItemsResponse, error) { return chain.ListItems(r, req) })
}

// History implements store.Reader.
func (s *Store) History(_ context.Context, threadID string) ([]*heddlev1.HistoryEntry, error) {
	return locked(s, func(r rows) ([]*heddlev1.HistoryEntry, error) { return chain.History(r, threadID) })
}

// Shared implements store.Reader.
func (s *Store) Shared(_ context.Context, fork *heddlev1.Thread, base int64) (thread.Changes, error) {
	return locked(s, func(r rows) (thread.Changes, error) { return chain.Shared(r, fork, base) })
}

func locked[T any](s *Store, f func(rows) (T, error)) (T, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return f(rows{s})
}

// OpenThreads implements store.Reader.
func (s *Store) OpenThreads(context.Context) ([]string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var ids []string
	for id, l := range s.threads {
		if l.state.Busy() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// OpenTurns implements store.Reader.
func (s *Store) OpenTurns(context.Context) ([]*heddlev1.Turn, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var turns []*heddlev1.Turn
	for _, l := range s.threads {
		for _, t := range l.state.Turns {
			turns = append(turns, t)
		}
	}
	slices.SortFunc(turns, func(a, b *heddlev1.Turn) int { return cmp.Compare(a.GetThreadId(), b.GetThreadId()) })
	return turns, nil
}

// OpenItems implements store.Reader.
func (s *Store) OpenItems(_ context.Context, threadID string) ([]*heddlev1.Item, error) {
	return read(s, threadID, func(l *log) ([]*heddlev1.Item, error) { return l.state.OpenItems(), nil })
}

// OpenActions implements store.Reader.
func (s *Store) OpenActions(_ context.Context, threadID string) ([]*heddlev1.ActionIntent, error) {
	return read(s, threadID, func(l *log) ([]*heddlev1.ActionIntent, error) { return l.state.OpenActions(), nil })
}

// PendingApprovals implements store.Reader.
func (s *Store) PendingApprovals(_ context.Context, threadID string) ([]*heddlev1.Approval, error) {
	return read(s, threadID, func(l *log) ([]*heddlev1.Approval, error) { return l.state.PendingApprovals(), nil })
}

// Approval implements store.Reader.
func (s *Store) Approval(_ context.Context, threadID, approvalID string) (*heddlev1.Approval, error) {
	return read(s, threadID, func(l *log) (*heddlev1.Approval, error) {
		if a := l.approval[approvalID]; a != nil {
			return a, nil
		}
		return nil, errdefs.New(errdefs.ApprovalNotFound, "approval not found: %s", approvalID)
	})
}

// NextRequestID implements store.Reader.
func (s *Store) NextRequestID(context.Context, string) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.nextReq
	s.nextReq++
	return id, nil
}

// Meta implements store.Reader.
func (s *Store) Meta(_ context.Context, key string) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return bytes.Clone(s.meta[key]), nil
}

// Stats implements store.Reader.
func (s *Store) Stats() map[string]int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return map[string]int64{"commits": s.commits, "fsyncs": 0, "events": s.events, "bytes": s.bytes}
}
