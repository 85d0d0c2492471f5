package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
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
