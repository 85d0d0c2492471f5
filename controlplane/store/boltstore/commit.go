package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// tailFill is the fill of pages in buckets that grow at their end.
const tailFill = 0.9

// none is the value of keys that stand for themselves. bbolt shows a nil value
// like a bucket within its transaction.
var none = []byte{}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, appends []store.Append) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var events, written int64
	var next uint64
	err := s.update(func(tx *bolt.Tx) error {
		for i := range appends {
			w := writer{store: s, tx: tx, a: &appends[i]}
			if err := w.run(); err != nil {
				return err
			}
			events += int64(len(appends[i].Events))
			written += w.written
			next = max(next, uint64(appends[i].Changes.NextRequestID))
		}
		return raiseRequest(tx, next)
	})
	if err != nil {
		return err
	}
	s.events.Add(events)
	s.bytes.Add(written)
	s.reserve(int64(next))
	return nil
}

// raiseRequest records that the ids below next are used.
func raiseRequest(tx *bolt.Tx, next uint64) error {
	meta := tx.Bucket(bucketMeta)
	have, _ := readU64(meta.Get(keyRequest))
	if next <= have {
		return nil
	}
	return meta.Put(keyRequest, u64(next))
}

// reserve keeps the counter in memory at least at n.
func (s *Store) reserve(n int64) {
	for {
		have := s.nextRequest.Load()
		if have >= n || s.nextRequest.CompareAndSwap(have, n) {
			return
		}
	}
}

// writer applies one append within a transaction.
type writer struct {
	store   *Store
	tx      *bolt.Tx
	a       *store.Append
	bucket  *bolt.Bucket
	subs    map[string]*bolt.Bucket
	written int64
}

func (w *writer) run() error {
	threads := w.tx.Bucket(bucketThreads)
	id := []byte(w.a.ThreadID)
	if len(id) == 0 || len(id) > bolt.MaxKeySize/2 {
		return &store.ConflictError{ThreadID: w.a.ThreadID, Err: store.NotFound(w.a.ThreadID)}
	}
	var at *store.Head
	h := head{base: w.a.BaseOrdinal}
	if w.bucket = threads.Bucket(id); w.bucket != nil {
		var err error
		if h, err = decodeHead(w.bucket.Get(keyHead)); err != nil {
			return &store.ConflictError{ThreadID: w.a.ThreadID, Err: damagedThread(w.a.ThreadID)}
		}
		at = &store.Head{Seq: h.seq, Epoch: h.epoch}
	}
	if err := w.a.Check(at); err != nil {
		return err
	}
	if w.bucket == nil {
		var err error
		if w.bucket, err = threads.CreateBucket(id); err != nil {
			return err
		}
		if err := w.linkFork(); err != nil {
			return err
		}
	}
	h.seq, h.epoch = w.a.LastSeq(), w.a.Epoch
	if err := w.put(w.bucket, keyHead, h.frame()); err != nil {
		return err
	}
	for _, step := range []func() error{w.events, w.row, w.turns, w.items, w.history, w.approvals, w.actions, w.queue, w.attachments, w.compact, w.openIndex} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) linkFork() error {
	row := w.a.Changes.Row
	if row.GetForkedFromId() == "" {
		return nil
	}
	if w.tx.Bucket(bucketThreads).Bucket([]byte(row.GetForkedFromId())) == nil {
		return nil
	}
	return w.put(w.tx.Bucket(bucketForks), forkKey(row.GetForkedFromId(), row.GetId()), none)
}

func forkKey(source, fork string) []byte {
	return slices.Concat([]byte(source), []byte{0}, []byte(fork))
}

// sub returns a bucket of the thread, making it when it is missing.
func (w *writer) sub(name []byte, tail bool) (*bolt.Bucket, error) {
	if b := w.subs[string(name)]; b != nil {
		return b, nil
	}
	b, err := w.bucket.CreateBucketIfNotExists(name)
	if err != nil {
		return nil, err
	}
	if tail {
		b.FillPercent = tailFill
	}
	if w.subs == nil {
		w.subs = map[string]*bolt.Bucket{}
	}
	w.subs[string(name)] = b
	return b, nil
}

func (w *writer) put(b *bolt.Bucket, k, v []byte) error {
	w.written += int64(len(k) + len(v))
	return b.Put(k, v)
}

// putIn puts a record into a bucket of the thread.
func (w *writer) putIn(name []byte, tail bool, k, v []byte) error {
	b, err := w.sub(name, tail)
	if err != nil {
		return err
	}
	return w.put(b, k, v)
}

func (w *writer) events() error {
	if len(w.a.Events) == 0 {
		return nil
	}
	records, err := encodeBatch(w.a.Events, store.EndOf)
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := w.putIn(subEvents, true, u64(r.first), r.value); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) turns() error {
	for _, t := range w.a.Changes.Turns {
		v, err := frameMessage(nil, t)
		if err != nil {
			return err
		}
		if err := w.putIn(subTurns, true, ord(t.GetOrdinal()), v); err != nil {
			return err
		}
		if err := w.putIn(subTurnIDs, false, []byte(t.GetId()), ord(t.GetOrdinal())); err != nil {
			return err
		}
		if err := w.open(openTurn, t.GetId(), ord(t.GetOrdinal()), thread.PhaseOf(t).Ended()); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) items() error {
	for _, it := range sortedItems(w.a.Changes.Items) {
		k := itemKey(it.ItemKey)
		v, err := frameMessage(u64(it.EndSeq), it.Item)
		if err != nil {
			return err
		}
		if err := w.putIn(subItems, true, k, v); err != nil {
			return err
		}
		if err := w.putIn(subItemIDs, false, []byte(it.Item.GetId()), k); err != nil {
			return err
		}
		if it.Item.GetUserMessage() != nil {
			if err := w.putIn(subUsers, true, k, none); err != nil {
				return err
			}
		}
		if err := w.open(openItem, it.Item.GetId(), k, !it.Open()); err != nil {
			return err
		}
	}
	return nil
}

func sortedItems(m map[thread.ItemKey]thread.ItemRow) []thread.ItemRow {
	rows := make([]thread.ItemRow, 0, len(m))
	for _, it := range m {
		rows = append(rows, it)
	}
	slices.SortFunc(rows, func(a, b thread.ItemRow) int {
		if a.Less(b.ItemKey) {
			return -1
		}
		return 1
	})
	return rows
}

func (w *writer) history() error {
	for _, h := range w.a.Changes.History {
		v, err := frameMessage(ord(h.Ordinal), h.Entry)
		if err != nil {
			return err
		}
		k := binary.BigEndian.AppendUint32(u64(h.Seq), uint32(h.Index))
		if err := w.putIn(subHistory, true, k, v); err != nil {
			return err
		}
	}
	for _, f := range w.a.Changes.Floors {
		if err := w.putIn(subFloors, true, u64(f.Seq), ord(f.Ordinal)); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) approvals() error {
	for id, a := range w.a.Changes.Approvals {
		v, err := frameMessage(nil, a)
		if err != nil {
			return err
		}
		if err := w.putIn(subApprovals, false, []byte(id), v); err != nil {
			return err
		}
		if err := w.open(openApproval, id, none, a.GetDecision() != heddlev1.Decision_DECISION_UNSPECIFIED); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) actions() error {
	for id, intent := range w.a.Changes.Actions {
		var v []byte
		if intent != nil {
			var err error
			if v, err = frameMessage(nil, intent); err != nil {
				return err
			}
		}
		if err := w.open(openAction, id, v, intent == nil); err != nil {
			return err
		}
	}
	return nil
}

// open notes in the thread's open bucket that something began or ended.
func (w *writer) open(kind byte, id string, v []byte, ended bool) error {
	b, err := w.sub(subOpen, false)
	if err != nil {
		return err
	}
	k := append([]byte{kind}, id...)
	if ended {
		return b.Delete(k)
	}
	return w.put(b, k, v)
}

// openIndex keeps the home's index of threads with something open.
func (w *writer) openIndex() error {
	b := w.subs[string(subOpen)]
	if b == nil {
		return nil
	}
	index, id := w.tx.Bucket(bucketOpen), []byte(w.a.ThreadID)
	if k, _ := b.Cursor().First(); k == nil {
		return index.Delete(id)
	}
	return index.Put(id, none)
}

// compact drops the increments of completed items. Spans with a damaged record
// stay as they are.
func (w *writer) compact() error {
	for _, span := range w.a.Compact {
		b, err := w.sub(subEvents, true)
		if err != nil {
			return err
		}
		keys, events, ok := recordsOf(b, span)
		if !ok {
			continue
		}
		rest := store.DropIncrements(events, span)
		if len(rest) >= len(events) {
			continue
		}
		for _, k := range keys {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		records, err := encodeBatch(rest, store.EndOf)
		if err != nil {
			return fmt.Errorf("compact: %w", err)
		}
		for _, r := range records {
			if err := w.put(b, u64(r.first), r.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordsOf returns the keys and events of all records that overlap the span.
func recordsOf(b *bolt.Bucket, span thread.Compaction) (keys [][]byte, events []*heddlev1.Event, ok bool) {
	c := b.Cursor()
	for k, v := seekBatch(c, span.First); k != nil; k, v = c.Next() {
		bt, err := decodeBatch(k, v)
		if err != nil {
			return nil, nil, false
		}
		if bt.first > span.Last {
			break
		}
		if bt.last < span.First {
			continue
		}
		keys = append(keys, bytes.Clone(k))
		intact := true
		err = bt.each(func(raw []byte) bool {
			ev, err := unmarshal[heddlev1.Event](raw)
			intact = err == nil
			events = append(events, ev)
			return intact
		})
		if err != nil || !intact {
			return nil, nil, false
		}
	}
	return keys, events, len(keys) > 0
}

// seekBatch moves to the record that may hold seq: the last one that begins at
// or before it, else the first after it.
func seekBatch(c *bolt.Cursor, seq uint64) (k, v []byte) {
	k, v = c.Seek(u64(seq))
	if k != nil && bytes.Equal(k, u64(seq)) {
		return k, v
	}
	if pk, pv := prevOrLast(c, k); pk != nil {
		return pk, pv
	}
	return c.First()
}

func prevOrLast(c *bolt.Cursor, at []byte) (k, v []byte) {
	if at == nil {
		return c.Last()
	}
	return c.Prev()
}
