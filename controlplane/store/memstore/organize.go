package memstore

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Attachment implements store.Reader.
func (s *Store) Attachment(_ context.Context, threadID string, key thread.AttachmentKey) (*heddlev1.Attachment, error) {
	return read(s, threadID, func(l *log) (*heddlev1.Attachment, error) { return l.attached[key], nil })
}

// Attachments implements store.Reader.
func (s *Store) Attachments(_ context.Context, threadID, after string, limit int) ([]*heddlev1.Attachment, error) {
	return read(s, threadID, func(l *log) ([]*heddlev1.Attachment, error) {
		all := slices.SortedFunc(maps.Values(l.attached), func(a, b *heddlev1.Attachment) int { return cmp.Compare(a.GetId(), b.GetId()) })
		all = slices.DeleteFunc(all, func(a *heddlev1.Attachment) bool { return a.GetId() <= after })
		all = all[:min(len(all), limit)]
		return all[:store.Fit(all, func(a *heddlev1.Attachment) int { return len(a.GetPayload()) })], nil
	})
}

// AttachmentOwners implements store.Reader.
func (s *Store) AttachmentOwners(_ context.Context, q store.AttachmentOwners) ([]store.AttachmentOwner, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, errClosed()
	}
	var found []store.AttachmentOwner
	for id, l := range s.threads {
		row := l.state.Row
		if l.attached[q.AttachmentKey] == nil || row.GetPrincipal() != q.Principal || id <= q.After || q.Archived != nil && *q.Archived != row.GetArchived() {
			continue
		}
		found = append(found, store.AttachmentOwner{ThreadID: id, Archived: row.GetArchived()})
	}
	slices.SortFunc(found, func(a, b store.AttachmentOwner) int { return cmp.Compare(a.ThreadID, b.ThreadID) })
	return found[:min(len(found), q.Limit)], nil
}

func recordsOf(principal, kind string) string { return kind + "\x00" + principal }

// Records implements store.Reader.
func (s *Store) Records(_ context.Context, principal, kind string) ([]store.Record, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, errClosed()
	}
	var out []store.Record
	have := s.records[recordsOf(principal, kind)]
	for _, id := range slices.Sorted(maps.Keys(have)) {
		out = append(out, store.Record{ID: id, Value: bytes.Clone(have[id])})
	}
	return out, nil
}

// Record implements store.Reader.
func (s *Store) Record(_ context.Context, principal, kind, id string) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, errClosed()
	}
	return bytes.Clone(s.records[recordsOf(principal, kind)][id]), nil
}

// PutRecords implements store.Store.
func (s *Store) PutRecords(_ context.Context, principal, kind string, records ...store.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed()
	}
	at := recordsOf(principal, kind)
	if s.records[at] == nil {
		s.records[at] = map[string][]byte{}
	}
	for _, r := range records {
		if r.Value == nil {
			delete(s.records[at], r.ID)
		} else {
			s.records[at][r.ID] = bytes.Clone(r.Value)
		}
	}
	s.commits++
	return nil
}
