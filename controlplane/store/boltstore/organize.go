package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Kinds of groups.
const (
	groupSection = 's'
	groupProject = 'p'
)

// text appends a string with its length, so that what follows stays apart.
func text(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(min(len(s), 1<<16-1)))
	return append(b, s...)
}

// groupPrefix is what the keys of a group's threads begin with.
func groupPrefix(principal string, kind byte, id string, archived bool) []byte {
	b := text(append(text(nil, principal), kind), id)
	if archived {
		return append(b, 1)
	}
	return append(b, 0)
}

// groupKeys are a thread's keys in the groups it is in.
func groupKeys(t *heddlev1.Thread) [][]byte {
	var keys [][]byte
	if id := t.GetSection().GetSectionId(); id != "" {
		keys = append(keys, append(groupPrefix(t.GetPrincipal(), groupSection, id, t.GetArchived()), store.Place(t)...))
	}
	if id := t.GetProjectId(); id != "" {
		keys = append(keys, slices.Concat(groupPrefix(t.GetPrincipal(), groupProject, id, t.GetArchived()), ord(t.GetUpdatedAtMs()), []byte(t.GetId())))
	}
	return keys
}

// groups keeps the groups in step with a row; old is nil when there was none.
func (w *writer) groups(old, row *heddlev1.Thread) error {
	b := w.tx.Bucket(bucketGroups)
	keys, v := groupKeys(row), filterOf(row)
	if old != nil {
		for _, k := range groupKeys(old) {
			if slices.ContainsFunc(keys, func(n []byte) bool { return bytes.Equal(n, k) }) {
				continue
			}
			if err := b.Delete(k); err != nil {
				return err
			}
		}
	}
	for _, k := range keys {
		if bytes.Equal(b.Get(k), v) {
			continue
		}
		if err := w.put(b, k, v); err != nil {
			return err
		}
	}
	return nil
}

// ungroup removes a thread that is deleted from its groups.
func ungroup(tx *bolt.Tx, row *heddlev1.Thread) error {
	for _, k := range groupKeys(row) {
		if err := tx.Bucket(bucketGroups).Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// queue writes what waits in the thread and notes whether it is to be taken up.
func (w *writer) queue() error {
	q := w.a.Changes.Queue
	if q == nil {
		return nil
	}
	if err := w.open(openQueue, "queue", none, thread.Waiting(q) == nil); err != nil {
		return err
	}
	if len(q.GetMessages()) == 0 && !q.GetHeld() {
		return w.bucket.Delete(keyQueue)
	}
	v, err := frameMessage(nil, q)
	if err != nil {
		return err
	}
	return w.put(w.bucket, keyQueue, v)
}

// queue returns what waits in a thread, nil for nothing.
func (r rows) queue(b *bolt.Bucket, threadID string) *heddlev1.Queue {
	v := b.Get(keyQueue)
	if v == nil {
		return nil
	}
	q, err := decode[heddlev1.Queue](v)
	if err != nil {
		r.store.skip("queue", threadID, keyQueue)
		return nil
	}
	return q
}

func attachKey(k thread.AttachmentKey) []byte { return append(text(nil, k.Type), k.Key...) }

func ownerPrefix(principal string, k thread.AttachmentKey) []byte {
	return text(text(text(nil, principal), k.Type), k.Key)
}

func (w *writer) attachments() error {
	if len(w.a.Changes.Attachments) == 0 {
		return nil
	}
	row, err := decode[heddlev1.Thread](w.tx.Bucket(bucketRows).Get([]byte(w.a.ThreadID)))
	if err != nil {
		return &store.ConflictError{ThreadID: w.a.ThreadID, Err: damagedThread(w.a.ThreadID)}
	}
	rows, err := w.sub(subAttached, true)
	if err != nil {
		return err
	}
	ids, err := w.sub(subAttachIDs, false)
	if err != nil {
		return err
	}
	owners := w.tx.Bucket(bucketOwners)
	for key, a := range w.a.Changes.Attachments {
		owner := append(ownerPrefix(row.GetPrincipal(), key), w.a.ThreadID...)
		if a.Removed {
			for b, k := range map[*bolt.Bucket][]byte{rows: []byte(a.GetId()), ids: attachKey(key), owners: owner} {
				if err := b.Delete(k); err != nil {
					return err
				}
			}
			continue
		}
		v, err := frameMessage(nil, a.Attachment)
		if err != nil {
			return err
		}
		if err := w.put(rows, []byte(a.GetId()), v); err != nil {
			return err
		}
		if err := w.put(ids, attachKey(key), []byte(a.GetId())); err != nil {
			return err
		}
		if err := w.put(owners, owner, none); err != nil {
			return err
		}
	}
	return nil
}

// disown removes a thread that is deleted from the owners of its attachments.
func disown(tx *bolt.Tx, row *heddlev1.Thread) error {
	b := threadBucket(tx, row.GetId()).Bucket(subAttached)
	if b == nil {
		return nil
	}
	return b.ForEach(func(_, v []byte) error {
		a, err := decode[heddlev1.Attachment](v)
		if err != nil {
			return nil // Readers pass over owners that do not fit.
		}
		return tx.Bucket(bucketOwners).Delete(append(ownerPrefix(row.GetPrincipal(), thread.KeyOf(a)), row.GetId()...))
	})
}

// Attachment implements store.Reader.
func (s *Store) Attachment(ctx context.Context, threadID string, key thread.AttachmentKey) (*heddlev1.Attachment, error) {
	return read(ctx, s, func(r rows) (*heddlev1.Attachment, error) {
		if _, _, err := s.headOf(r.tx, threadID); err != nil {
			return nil, err
		}
		return r.attachment(threadID, key), nil
	})
}

func (r rows) attachment(threadID string, key thread.AttachmentKey) *heddlev1.Attachment {
	ids, attached := r.sub(threadID, subAttachIDs), r.sub(threadID, subAttached)
	if ids == nil || attached == nil {
		return nil
	}
	id := ids.Get(attachKey(key))
	if id == nil {
		return nil
	}
	a, err := decode[heddlev1.Attachment](attached.Get(id))
	if err != nil {
		r.store.skip("attachment", threadID, id)
		return nil
	}
	return a
}

// Attachments implements store.Reader.
func (s *Store) Attachments(ctx context.Context, threadID, after string, limit int) ([]*heddlev1.Attachment, error) {
	return read(ctx, s, func(r rows) ([]*heddlev1.Attachment, error) {
		if _, _, err := s.headOf(r.tx, threadID); err != nil {
			return nil, err
		}
		var out []*heddlev1.Attachment
		size := 0
		b := r.sub(threadID, subAttached)
		if b == nil {
			return nil, nil
		}
		c := b.Cursor()
		for k, v := c.Seek([]byte(after)); k != nil && len(out) < limit; k, v = c.Next() {
			if string(k) <= after {
				continue
			}
			a, err := decode[heddlev1.Attachment](v)
			if err != nil {
				s.skip("attachment", threadID, k)
				continue
			}
			if size += len(v); size > store.PageBytes && len(out) > 0 {
				break
			}
			out = append(out, a)
		}
		return out, nil
	})
}

// AttachmentOwners implements store.Reader.
func (s *Store) AttachmentOwners(ctx context.Context, q store.AttachmentOwners) ([]store.AttachmentOwner, error) {
	return read(ctx, s, func(r rows) ([]store.AttachmentOwner, error) {
		var out []store.AttachmentOwner
		prefix := ownerPrefix(q.Principal, q.AttachmentKey)
		c := r.tx.Bucket(bucketOwners).Cursor()
		for k, _ := c.Seek(append(bytes.Clone(prefix), q.After...)); bytes.HasPrefix(k, prefix) && len(out) < q.Limit; k, _ = c.Next() {
			id := string(k[len(prefix):])
			if id <= q.After {
				continue
			}
			row, err := s.rowOf(r.tx, id)
			if err != nil || q.Archived != nil && *q.Archived != row.GetArchived() {
				continue
			}
			out = append(out, store.AttachmentOwner{ThreadID: id, Archived: row.GetArchived()})
		}
		return out, nil
	})
}

func recordPrefix(principal, kind string) []byte { return text(text(nil, principal), kind) }

// Records implements store.Reader.
func (s *Store) Records(ctx context.Context, principal, kind string) ([]store.Record, error) {
	return read(ctx, s, func(r rows) ([]store.Record, error) {
		var out []store.Record
		prefix := recordPrefix(principal, kind)
		c := r.tx.Bucket(bucketRecords).Cursor()
		for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
			body, err := unframe(v)
			if err != nil {
				s.skip("record", "", k)
				continue
			}
			out = append(out, store.Record{ID: string(k[len(prefix):]), Value: bytes.Clone(body)})
		}
		return out, nil
	})
}

// Record implements store.Reader.
func (s *Store) Record(ctx context.Context, principal, kind, id string) ([]byte, error) {
	return read(ctx, s, func(r rows) ([]byte, error) {
		v := r.tx.Bucket(bucketRecords).Get(append(recordPrefix(principal, kind), id...))
		if v == nil {
			return nil, nil
		}
		body, err := unframe(v)
		if err != nil {
			s.skip("record", "", []byte(id))
			return nil, errdefs.New(errdefs.Internal, "the record %q is damaged", id)
		}
		return bytes.Clone(body), nil
	})
}

// PutRecords implements store.Store.
func (s *Store) PutRecords(ctx context.Context, principal, kind string, records ...store.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketRecords)
		for _, r := range records {
			k := append(recordPrefix(principal, kind), r.ID...)
			var err error
			if r.Value == nil {
				err = b.Delete(k)
			} else {
				err = b.Put(k, frame(r.Value))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
