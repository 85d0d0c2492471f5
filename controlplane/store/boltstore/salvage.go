package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Salvaged says what became of a damaged store.
type Salvaged struct {
	// Before is what was found in the damaged file.
	Before *Report
	// After is a check of the new file. What it still lists is lost for good:
	// gaps in logs whose events could not be read.
	After *Report
}

const (
	// salvageStep bounds what one transaction writes.
	salvageStep = 16 << 20
	// seqMargin keeps the numbers of events that may have been shown, and are
	// lost, from being given out again.
	seqMargin = 1 << 12
)

// Salvage writes a new store with all that can be read of a damaged one that no
// process has open. Records that verify are kept as they are, indexes are made
// anew, and turns, items and rows that are damaged are folded again from the
// events. The damaged file is not written. The new file must not exist.
func Salvage(ctx context.Context, path, into string) (*Salvaged, error) {
	before, err := Check(ctx, path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(into); err == nil {
		return nil, fmt.Errorf("salvage store: %s exists", into)
	}
	src, err := openRead(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	dst, err := Open(ctx, Config{Path: into, CompactBytes: -1})
	if err != nil {
		return nil, err
	}
	damaged := map[string]bool{}
	for _, d := range before.Damage {
		damaged[d.ThreadID] = true
	}
	sv := &salvager{ctx: ctx, dst: dst.db, all: before.More > 0 || damaged[""], damaged: damaged}
	err = guard(func() error { return src.View(sv.run) })
	if err = errors.Join(err, dst.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("salvage store: %w", err), os.Remove(into))
	}
	after, err := Check(ctx, into)
	return &Salvaged{Before: before, After: after}, err
}

type salvager struct {
	ctx     context.Context
	dst     *bolt.DB
	damaged map[string]bool
	// all folds every thread again, since it is not known which are damaged.
	all bool

	tx      *bolt.Tx
	written int64
	request uint64
}

func (s *salvager) run(src *bolt.Tx) (err error) {
	defer func() {
		if s.tx != nil {
			err = errors.Join(err, s.tx.Rollback())
		}
	}()
	if err := s.begin(); err != nil {
		return err
	}
	threads, rows := src.Bucket(bucketThreads), src.Bucket(bucketRows)
	forks := map[string]string{}
	err = walk(s.ctx, threads, func(k, _ []byte) error {
		b, err := child(threads, k)
		if b == nil || err != nil {
			return nil
		}
		row, err := s.thread(string(k), b, valueOf(rows, k))
		if err != nil {
			return fmt.Errorf("thread %s: %w", k, err)
		}
		if row.GetForkedFromId() != "" {
			forks[row.GetId()] = row.GetForkedFromId()
		}
		return nil
	}, func(error) {})
	if err != nil {
		return err
	}
	for fork, source := range forks {
		if s.tx.Bucket(bucketThreads).Bucket([]byte(source)) == nil {
			continue
		}
		if err := s.tx.Bucket(bucketForks).Put(forkKey(source, fork), none); err != nil {
			return err
		}
	}
	return s.finish(src)
}

// finish copies what belongs to the home and ends the last transaction.
func (s *salvager) finish(src *bolt.Tx) error {
	meta := s.tx.Bucket(bucketMeta)
	err := walk(s.ctx, src.Bucket(bucketMeta), func(k, v []byte) error {
		if n, ok := readU64(v); ok && bytes.Equal(k, keyRequest) {
			s.request = max(s.request, n)
		}
		if bytes.HasPrefix(k, []byte("u/")) {
			return meta.Put(bytes.Clone(k), bytes.Clone(v))
		}
		return nil
	}, func(error) {})
	if err != nil {
		return err
	}
	records := s.tx.Bucket(bucketRecords)
	err = walk(s.ctx, src.Bucket(bucketRecords), func(k, v []byte) error {
		if _, err := unframe(v); err != nil {
			return nil
		}
		return records.Put(bytes.Clone(k), bytes.Clone(v))
	}, func(error) {})
	if err != nil {
		return err
	}
	if err := raiseRequest(s.tx, s.request); err != nil {
		return err
	}
	err = s.tx.Commit()
	s.tx = nil
	return err
}

func (s *salvager) begin() (err error) {
	s.written = 0
	if s.tx, err = s.dst.Begin(true); err != nil {
		s.tx = nil
	}
	return err
}

// writer writes one thread; its buckets belong to the transaction.
func (s *salvager) writer(id string) (*writer, error) {
	b, err := s.tx.Bucket(bucketThreads).CreateBucketIfNotExists([]byte(id))
	return &writer{tx: s.tx, a: &store.Append{ThreadID: id}, bucket: b}, err
}

// turnover goes on in a new transaction when this one is large.
func (s *salvager) turnover() error {
	if s.written <= salvageStep {
		return nil
	}
	err := s.tx.Commit()
	s.tx = nil
	if err != nil {
		return err
	}
	return s.begin()
}

// walk visits what can be read of a bucket of a thread.
func (s *salvager) walk(thread *bolt.Bucket, name []byte, visit func(k, v []byte) error) error {
	b, err := child(thread, name)
	if err != nil {
		return nil
	}
	return walk(s.ctx, b, visit, func(error) {})
}

// putEvents copies a record of events as it is.
func (s *salvager) putEvents(id string, k, v []byte) error {
	if err := s.turnover(); err != nil {
		return err
	}
	w, err := s.writer(id)
	if err != nil {
		return err
	}
	err = w.putIn(subEvents, true, bytes.Clone(k), bytes.Clone(v))
	s.written += w.written
	return err
}

// put writes changes of a thread, in a new transaction when the last is large.
func (s *salvager) put(id string, ch thread.Changes) error {
	if err := s.turnover(); err != nil {
		return err
	}
	w, err := s.writer(id)
	if err != nil {
		return err
	}
	w.a.Changes = ch
	for _, step := range []func() error{w.row, w.turns, w.items, w.history, w.approvals, w.actions, w.queue, w.attachments, w.openIndex} {
		if err := step(); err != nil {
			return err
		}
	}
	s.written += w.written
	s.request = max(s.request, uint64(ch.NextRequestID))
	return nil
}

func valueOf(b *bolt.Bucket, k []byte) (v []byte) {
	_ = guard(func() error {
		if b != nil {
			v = b.Get(k)
		}
		return nil
	})
	return v
}

func (s *salvager) thread(id string, b *bolt.Bucket, rowRecord []byte) (*heddlev1.Thread, error) {
	h, headErr := decodeHead(valueOf(b, keyHead))
	row, err := decode[heddlev1.Thread](rowRecord)
	rowLost := err != nil || row.GetId() != id
	if rowLost {
		row = nil
	}
	l, err := s.events(id, b)
	if err != nil {
		return nil, err
	}
	var attached map[thread.AttachmentKey]thread.AttachmentRow
	if s.all || s.damaged[id] {
		folded := fold(id, row, l.events)
		if rowLost {
			row = folded.Row
		}
		attached = folded.Attachments
		folded.Row, folded.Actions, folded.Attachments = nil, nil, nil
		if err := s.put(id, folded); err != nil {
			return nil, err
		}
	}
	lowest, err := s.copyRows(id, b)
	if err != nil {
		return nil, err
	}
	if headErr != nil {
		h = head{seq: max(l.last, 1), epoch: 1}
		if l.unsure {
			h.seq += seqMargin
		}
		if row.GetForkedFromId() != "" {
			h.base = row.GetTurnCount()
			if lowest > 0 {
				h.base = lowest - 1
			}
		}
	}
	w, err := s.writer(id)
	if err != nil {
		return nil, err
	}
	if err := w.put(w.bucket, keyHead, h.frame()); err != nil {
		return nil, err
	}
	if err := s.put(id, thread.Changes{Row: row}); err != nil {
		return nil, err
	}
	return row, s.attachments(id, b, row, attached)
}

// attachments writes what was folded of them, then those that verify. They need
// the row, which says whose they are.
func (s *salvager) attachments(id string, b *bolt.Bucket, row *heddlev1.Thread, folded map[thread.AttachmentKey]thread.AttachmentRow) error {
	if row == nil {
		return nil
	}
	if err := s.put(id, thread.Changes{Attachments: folded}); err != nil {
		return err
	}
	return s.walk(b, subAttached, func(_, v []byte) error {
		a, err := decode[heddlev1.Attachment](v)
		if err != nil {
			return nil
		}
		return s.put(id, thread.Changes{Attachments: map[thread.AttachmentKey]thread.AttachmentRow{thread.KeyOf(a): {Attachment: a}}})
	})
}

// salvagedLog is what could be read of a thread's events.
type salvagedLog struct {
	// events are kept only where they are folded again.
	events []*heddlev1.Event
	last   uint64
	// unsure is true when there were events after last that cannot be read.
	unsure bool
}

func (s *salvager) events(id string, thread *bolt.Bucket) (salvagedLog, error) {
	var l salvagedLog
	keep := s.all || s.damaged[id]
	b, err := child(thread, subEvents)
	if err != nil {
		l.unsure = true
		return l, nil
	}
	err = walk(s.ctx, b, func(k, v []byte) error {
		bt, err := decodeBatch(k, v)
		if err == nil {
			err = bt.verify()
		}
		if err != nil {
			l.unsure = l.unsure || bt.first > l.last
			l.last = max(l.last, bt.first)
			return nil
		}
		l.unsure = l.unsure && bt.last < l.last
		l.last = max(l.last, bt.last)
		if keep {
			_ = bt.each(func(raw []byte) bool {
				if ev, err := unmarshal[heddlev1.Event](raw); err == nil {
					l.events = append(l.events, ev)
				}
				return true
			})
		}
		return s.putEvents(id, k, v)
	}, func(error) { l.unsure = true })
	return l, err
}

// fold makes rows of the events that are left. What an event refers to may be
// lost, so an event that does not fit is passed over.
func fold(id string, row *heddlev1.Thread, events []*heddlev1.Event) thread.Changes {
	st, ch := thread.New(), thread.Changes{}
	if len(events) == 0 || events[0].GetThreadCreated() == nil {
		// Its beginning is lost: what the row knows stands for it.
		st.Row = row
		if row == nil {
			st.Row = &heddlev1.Thread{Id: id, Principal: "local", State: heddlev1.ThreadState_THREAD_STATE_IDLE, Settings: &heddlev1.ThreadSettings{}}
			if len(events) > 0 {
				st.Row.CreatedAtMs, st.Row.UpdatedAtMs = events[0].GetTimeMs(), events[len(events)-1].GetTimeMs()
			}
			ch.Row = st.Row
		}
	}
	for _, ev := range events {
		if ev.GetSeq() == 0 {
			continue
		}
		st.LastSeq = ev.GetSeq() - 1
		_ = st.Fold(ev, &ch)
	}
	return ch
}

// copyRows writes the records of a thread that verify over what was folded. It
// returns the lowest ordinal of a turn, 0 when there is none.
func (s *salvager) copyRows(id string, b *bolt.Bucket) (lowest int64, err error) {
	err = s.walk(b, subTurns, func(_, v []byte) error {
		t, err := decode[heddlev1.Turn](v)
		if err != nil {
			return nil
		}
		if lowest == 0 || t.GetOrdinal() < lowest {
			lowest = t.GetOrdinal()
		}
		return s.put(id, thread.Changes{Turns: map[string]*heddlev1.Turn{t.GetId(): t}})
	})
	if err != nil {
		return 0, err
	}
	err = s.walk(b, subItems, func(k, v []byte) error {
		it, err := decodeItem(id, k, v)
		if err != nil {
			return nil
		}
		return s.put(id, thread.Changes{Items: map[thread.ItemKey]thread.ItemRow{it.ItemKey: it}})
	})
	if err != nil {
		return 0, err
	}
	err = s.walk(b, subHistory, func(k, v []byte) error {
		h, err := decodeHistory(k, v)
		if err != nil {
			return nil
		}
		return s.put(id, thread.Changes{History: []thread.HistoryRow{h}})
	})
	if err != nil {
		return 0, err
	}
	err = s.walk(b, subFloors, func(k, v []byte) error {
		seq, ok1 := readU64(k)
		n, ok2 := readU64(v)
		if !ok1 || !ok2 {
			return nil
		}
		return s.put(id, thread.Changes{Floors: []thread.Floor{{Seq: seq, Ordinal: int64(n & math.MaxInt64)}}})
	})
	if err != nil {
		return 0, err
	}
	return lowest, s.copyOpen(id, b)
}

// copyOpen writes what waits, approvals and the intents of open actions.
func (s *salvager) copyOpen(id string, b *bolt.Bucket) error {
	if q, err := decode[heddlev1.Queue](valueOf(b, keyQueue)); err == nil {
		if err := s.put(id, thread.Changes{Queue: q}); err != nil {
			return err
		}
	}
	err := s.walk(b, subApprovals, func(k, v []byte) error {
		a, err := decode[heddlev1.Approval](v)
		if err != nil {
			return nil
		}
		return s.put(id, thread.Changes{Approvals: map[string]*heddlev1.Approval{string(k): a}, NextRequestID: a.GetRequestId() + 1})
	})
	if err != nil {
		return err
	}
	return s.walk(b, subOpen, func(k, v []byte) error {
		if len(k) < 2 || k[0] != openAction {
			return nil
		}
		intent, err := decode[heddlev1.ActionIntent](v)
		if err != nil {
			// That it is open is known still, so that it can be ended.
			intent = &heddlev1.ActionIntent{ActionId: string(k[1:])}
		}
		return s.put(id, thread.Changes{Actions: map[string]*heddlev1.ActionIntent{string(k[1:]): intent}})
	})
}

func decodeHistory(k, v []byte) (thread.HistoryRow, error) {
	body, err := unframe(v)
	if err != nil || len(body) < 8 || len(k) != 12 {
		return thread.HistoryRow{}, errDamaged
	}
	e, err := unmarshal[heddlev1.HistoryEntry](body[8:])
	if err != nil {
		return thread.HistoryRow{}, err
	}
	return thread.HistoryRow{
		Seq: binary.BigEndian.Uint64(k), Index: int(binary.BigEndian.Uint32(k[8:])),
		Ordinal: int64(binary.BigEndian.Uint64(body) & math.MaxInt64), Entry: e,
	}, nil
}
