package boltstore

import (
	"context"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Events implements store.Reader.
func (s *Store) Events(ctx context.Context, threadID string, after uint64, maxBytes int) ([]*heddlev1.Event, uint64, error) {
	type result struct {
		events []*heddlev1.Event
		head   uint64
	}
	out, err := read(ctx, s, func(r rows) (result, error) {
		b, h, err := s.headOf(r.tx, threadID)
		if err != nil {
			return result{}, err
		}
		rd := reader{store: s, threadID: threadID, next: after + 1, head: h.seq, limit: store.ReadBytes(maxBytes)}
		if events := b.Bucket(subEvents); events != nil && after < h.seq {
			rd.run(events.Cursor())
		}
		return result{rd.out, h.seq}, nil
	})
	return out.events, out.head, err
}

// reader collects events from a seq on and stands in for what is missing.
type reader struct {
	store    *Store
	threadID string
	// next is the first seq that has not been accounted for.
	next, head  uint64
	limit, size int
	out         []*heddlev1.Event
}

func (r *reader) run(c *bolt.Cursor) {
	full := false
	for k, v := seekBatch(c, r.next); k != nil && !full; k, v = c.Next() {
		bt, err := decodeBatch(k, v)
		if err != nil {
			r.store.skip("events", r.threadID, k)
			continue
		}
		if bt.last < r.next {
			continue
		}
		if bt.first > r.head {
			break
		}
		full = r.batch(bt)
	}
	if !full && r.next <= r.head {
		r.gap(r.head)
	}
}

// batch adds the events of a record; true means that the limit is reached.
func (r *reader) batch(bt batch) bool {
	full := false
	err := bt.each(func(raw []byte) bool {
		if r.size > 0 && r.size+len(raw) > r.limit {
			full = true
			return false
		}
		ev, err := unmarshal[heddlev1.Event](raw)
		end := store.EndOf(ev)
		if err != nil || end < r.next || ev.GetSeq() > r.head || end > bt.last {
			return true // unreadable, or with numbers that are not its own: a gap
		}
		if ev.GetSeq() > r.next {
			r.gap(ev.GetSeq() - 1)
		}
		r.out = append(r.out, ev)
		r.size += len(raw)
		r.next = store.EndOf(ev) + 1
		return true
	})
	if err != nil {
		r.store.skip("events", r.threadID, u64(bt.first))
	}
	if last := min(bt.last, r.head); !full && r.next <= last {
		r.gap(last)
	}
	return full
}

func (r *reader) gap(last uint64) {
	r.out = append(r.out, store.Gap(r.threadID, "", r.next, last))
	r.size++
	r.next = last + 1
}
