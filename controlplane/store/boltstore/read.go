package boltstore

import (
	"bytes"
	"context"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/chain"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func damagedThread(threadID string) error {
	return errdefs.New(errdefs.Internal, "the record of thread %s is damaged; other threads are not affected", threadID).With("thread_id", threadID)
}

// read runs f in a read transaction.
func read[T any](ctx context.Context, s *Store, f func(rows) (T, error)) (T, error) {
	var out T
	if err := ctx.Err(); err != nil {
		return out, err
	}
	err := s.view(func(tx *bolt.Tx) (err error) {
		out, err = f(rows{store: s, tx: tx})
		return err
	})
	return out, err
}

// headOf returns a thread's bucket and head.
func (s *Store) headOf(tx *bolt.Tx, threadID string) (*bolt.Bucket, head, error) {
	b := threadBucket(tx, threadID)
	if b == nil {
		return nil, head{}, store.NotFound(threadID)
	}
	h, err := decodeHead(b.Get(keyHead))
	if err != nil {
		s.skip("head", threadID, keyHead)
		return nil, head{}, damagedThread(threadID)
	}
	return b, h, nil
}

func threadBucket(tx *bolt.Tx, threadID string) *bolt.Bucket {
	if threadID == "" {
		return nil
	}
	return tx.Bucket(bucketThreads).Bucket([]byte(threadID))
}

// rowOf returns a thread's row with the fields that are not stored in it.
func (s *Store) rowOf(tx *bolt.Tx, threadID string) (*heddlev1.Thread, error) {
	_, h, err := s.headOf(tx, threadID)
	if err != nil {
		return nil, err
	}
	row, err := decode[heddlev1.Thread](tx.Bucket(bucketRows).Get([]byte(threadID)))
	if err != nil {
		s.skip("row", threadID, []byte(threadID))
		return nil, damagedThread(threadID)
	}
	row.LastSeq, row.Epoch, row.HasForks = h.seq, h.epoch, hasForks(tx, threadID)
	return row, nil
}

func hasForks(tx *bolt.Tx, threadID string) bool {
	prefix := forkKey(threadID, "")
	k, _ := tx.Bucket(bucketForks).Cursor().Seek(prefix)
	return bytes.HasPrefix(k, prefix)
}

// Thread implements store.Reader.
func (s *Store) Thread(ctx context.Context, threadID string) (*heddlev1.Thread, error) {
	return read(ctx, s, func(r rows) (*heddlev1.Thread, error) { return s.rowOf(r.tx, threadID) })
}

// Load implements store.Reader.
func (s *Store) Load(ctx context.Context, threadID string) (*thread.State, error) {
	return read(ctx, s, func(r rows) (*thread.State, error) { return r.load(threadID) })
}

// load reads the row and what is open. An open record that is damaged is
// replaced by what its index says, so that it can still be ended.
func (r rows) load(threadID string) (*thread.State, error) {
	b, h, err := r.store.headOf(r.tx, threadID)
	if err != nil {
		return nil, err
	}
	row, err := r.store.rowOf(r.tx, threadID)
	if err != nil {
		return nil, err
	}
	row.LastSeq, row.Epoch, row.HasForks = 0, 0, false
	st := thread.New()
	st.Row, st.LastSeq, st.Epoch, st.BaseOrdinal = row, h.seq, h.epoch, h.base
	st.Queue = r.queue(b, threadID)
	open := b.Bucket(subOpen)
	if open == nil {
		return st, nil
	}
	return st, open.ForEach(func(k, v []byte) error {
		if len(k) < 2 {
			return nil
		}
		id := string(k[1:])
		switch k[0] {
		case openTurn:
			st.Turns[id] = r.openTurn(b, threadID, id, v)
		case openItem:
			st.Items[id] = thread.OpenItem{ItemRow: r.openItem(b, threadID, id, v)}
		case openAction:
			intent, err := decode[heddlev1.ActionIntent](v)
			if err != nil {
				r.store.skip("action", threadID, k)
				intent = &heddlev1.ActionIntent{ActionId: id}
			}
			st.Actions[id] = intent
		case openApproval:
			if a := r.approval(b, threadID, id); a != nil {
				st.Approvals[id] = a
			}
		}
		return nil
	})
}

func (r rows) openTurn(b *bolt.Bucket, threadID, id string, at []byte) *heddlev1.Turn {
	if turns := b.Bucket(subTurns); turns != nil {
		if t, err := decode[heddlev1.Turn](turns.Get(at)); err == nil {
			return t
		}
	}
	r.store.skip("turn", threadID, at)
	n, _ := readU64(at)
	return &heddlev1.Turn{Id: id, ThreadId: threadID, Ordinal: int64(n), Status: heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS, StartedAtMs: 1}
}

func (r rows) openItem(b *bolt.Bucket, threadID, id string, at []byte) thread.ItemRow {
	key, _ := parseItemKey(at)
	if items := b.Bucket(subItems); items != nil {
		if it, err := decodeItem(threadID, at, items.Get(at)); err == nil {
			return it
		}
	}
	r.store.skip("item", threadID, at)
	return thread.ItemRow{Item: &heddlev1.Item{Id: id}, ItemKey: key, ThreadID: threadID}
}

func (r rows) approval(b *bolt.Bucket, threadID, id string) *heddlev1.Approval {
	approvals := b.Bucket(subApprovals)
	if approvals == nil {
		return nil
	}
	v := approvals.Get([]byte(id))
	if v == nil {
		return nil
	}
	a, err := decode[heddlev1.Approval](v)
	if err != nil {
		r.store.skip("approval", threadID, []byte(id))
		return &heddlev1.Approval{Id: id, ThreadId: threadID}
	}
	return a
}

// Turn implements store.Reader.
func (s *Store) Turn(ctx context.Context, threadID, turnID string) (*heddlev1.Turn, error) {
	return read(ctx, s, func(r rows) (*heddlev1.Turn, error) { return chain.Turn(r, threadID, turnID) })
}

// ListTurns implements store.Reader.
func (s *Store) ListTurns(ctx context.Context, req *heddlev1.ListTurnsRequest) (*heddlev1.ListTurnsResponse, error) {
	return read(ctx, s, func(r rows) (*heddlev1.ListTurnsResponse, error) { return chain.ListTurns(r, req) })
}

// Item implements store.Reader.
func (s *Store) Item(ctx context.Context, threadID, itemID string) (thread.ItemRow, error) {
	return read(ctx, s, func(r rows) (thread.ItemRow, error) { return chain.Item(r, threadID, itemID) })
}

// ListItems implements store.Reader.
func (s *Store) ListItems(ctx context.Context, req *heddlev1.ListItemsRequest) (*heddlev1.ListItemsResponse, error) {
	return read(ctx, s, func(r rows) (*heddlev1.ListItemsResponse, error) { return chain.ListItems(r, req) })
}

// History implements store.Reader.
func (s *Store) History(ctx context.Context, threadID string) ([]*heddlev1.HistoryEntry, error) {
	return read(ctx, s, func(r rows) ([]*heddlev1.HistoryEntry, error) { return chain.History(r, threadID) })
}

// Shared implements store.Reader.
func (s *Store) Shared(ctx context.Context, fork *heddlev1.Thread, base int64) (thread.Changes, error) {
	return read(ctx, s, func(r rows) (thread.Changes, error) { return chain.Shared(r, fork, base) })
}

// OpenThreads implements store.Reader.
func (s *Store) OpenThreads(ctx context.Context) ([]string, error) {
	return read(ctx, s, func(r rows) ([]string, error) { return r.openThreads(), nil })
}

func (r rows) openThreads() []string {
	var ids []string
	c := r.tx.Bucket(bucketOpen).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		ids = append(ids, string(k))
	}
	return ids
}

// OpenTurns implements store.Reader.
func (s *Store) OpenTurns(ctx context.Context) ([]*heddlev1.Turn, error) {
	return read(ctx, s, func(r rows) ([]*heddlev1.Turn, error) {
		var turns []*heddlev1.Turn
		for _, id := range r.openThreads() {
			st, err := r.load(id)
			if errdefs.Is(err, errdefs.Internal) || errdefs.Is(err, errdefs.ThreadNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			turns = append(turns, st.OpenTurns()...)
		}
		return turns, nil
	})
}

// OpenItems implements store.Reader.
func (s *Store) OpenItems(ctx context.Context, threadID string) ([]*heddlev1.Item, error) {
	st, err := s.Load(ctx, threadID)
	if err != nil {
		return nil, err
	}
	return st.OpenItems(), nil
}

// OpenActions implements store.Reader.
func (s *Store) OpenActions(ctx context.Context, threadID string) ([]*heddlev1.ActionIntent, error) {
	st, err := s.Load(ctx, threadID)
	if err != nil {
		return nil, err
	}
	return st.OpenActions(), nil
}

// PendingApprovals implements store.Reader.
func (s *Store) PendingApprovals(ctx context.Context, threadID string) ([]*heddlev1.Approval, error) {
	st, err := s.Load(ctx, threadID)
	if err != nil {
		return nil, err
	}
	return st.PendingApprovals(), nil
}

// Approval implements store.Reader.
func (s *Store) Approval(ctx context.Context, threadID, approvalID string) (*heddlev1.Approval, error) {
	return read(ctx, s, func(r rows) (*heddlev1.Approval, error) {
		b, _, err := s.headOf(r.tx, threadID)
		if err != nil {
			return nil, err
		}
		if a := r.approval(b, threadID, approvalID); a != nil {
			return a, nil
		}
		return nil, errdefs.New(errdefs.ApprovalNotFound, "approval not found: %s", approvalID)
	})
}

// NextRequestID implements store.Reader. Ids become durable with the approval
// that uses them; one that was handed out and never committed was never seen.
func (s *Store) NextRequestID(ctx context.Context, _ string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return s.nextRequest.Add(1) - 1, nil
}

// Meta implements store.Reader.
func (s *Store) Meta(ctx context.Context, key string) ([]byte, error) {
	return read(ctx, s, func(r rows) ([]byte, error) {
		v := r.tx.Bucket(bucketMeta).Get([]byte("u/" + key))
		if v == nil {
			return nil, nil
		}
		body, err := unframe(v)
		if err != nil {
			s.skip("meta", "", []byte(key))
			return nil, errdefs.New(errdefs.Internal, "the value of %q is damaged", key)
		}
		return bytes.Clone(body), nil
	})
}

// SetMeta implements store.Store. What is there already is not written again: a
// commit of nothing would change the file too.
func (s *Store) SetMeta(ctx context.Context, key string, value []byte) error {
	if have, err := s.Meta(ctx, key); err == nil && (have == nil) == (value == nil) && bytes.Equal(have, value) {
		return nil
	} else if cause := ctx.Err(); cause != nil {
		return cause
	}
	return s.update(func(tx *bolt.Tx) error {
		k := []byte("u/" + key)
		if value == nil {
			return tx.Bucket(bucketMeta).Delete(k)
		}
		return tx.Bucket(bucketMeta).Put(k, frame(value))
	})
}
