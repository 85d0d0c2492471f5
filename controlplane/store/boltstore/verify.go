package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Damage is one thing of a store that cannot be read or does not fit.
type Damage struct {
	// ThreadID is empty for what belongs to no thread.
	ThreadID string `json:"threadId,omitempty"`
	// Record says what it is: "row", "head", "events", "turn", "item",
	// "history", "approval", "action", "queue", "attachment", "record", "index",
	// "pages", "schema".
	Record string `json:"record"`
	// Key names the record among those of its kind.
	Key string `json:"key,omitempty"`
	// Detail is for people.
	Detail string `json:"detail"`
}

func (d Damage) String() string {
	s := d.Record
	if d.Key != "" {
		s += " " + d.Key
	}
	return s + ": " + d.Detail
}

// Report is the result of a check.
type Report struct {
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"`
	Schema  uint32 `json:"schema"`
	Threads int    `json:"threads"`
	Records int64  `json:"records"`
	// Damage is what was found, at most MaxDamage of it.
	Damage []Damage `json:"damage"`
	// More counts what is not in Damage.
	More int `json:"more,omitempty"`
}

// MaxDamage bounds the damage that a report lists.
const MaxDamage = 10000

// Sound reports whether nothing was found.
func (r *Report) Sound() bool { return len(r.Damage) == 0 }

// Check reads every record of a store that no process has open for writing, and
// reports what does not verify. It writes nothing. An error means that the file
// could not be looked into at all.
func Check(ctx context.Context, path string) (*Report, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("check store: %w", err)
	}
	db, err := openRead(path)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	c := &checker{ctx: ctx, report: &Report{Path: path, Bytes: info.Size()}, damaged: map[string]bool{}}
	err = guard(func() error { return db.View(c.run) })
	return c.report, err
}

type checker struct {
	ctx    context.Context
	report *Report
	// damaged names the threads of which something does not verify.
	damaged map[string]bool
}

func (c *checker) bad(threadID, record, key, format string, args ...any) {
	if threadID != "" {
		c.damaged[threadID] = true
	}
	if len(c.report.Damage) >= MaxDamage {
		c.report.More++
		return
	}
	c.report.Damage = append(c.report.Damage, Damage{threadID, record, key, fmt.Sprintf(format, args...)})
}

func (c *checker) run(tx *bolt.Tx) error {
	schema, err := schemaOf(tx)
	c.report.Schema = schema
	switch {
	case err != nil:
		c.bad("", "schema", "", "%v", err)
	case schema > uint32(len(migrations)):
		return errdefs.New(errdefs.VersionUnsupported, "%s was written by a newer heddle (schema %d)", c.report.Path, schema)
	}
	rows, threads := tx.Bucket(bucketRows), tx.Bucket(bucketThreads)
	if rows == nil || threads == nil {
		c.bad("", "schema", "", "the buckets of threads are missing")
		return nil
	}
	err = c.walk(tx.Bucket(bucketRecords), "", "records", func(k, v []byte) error {
		c.report.Records++
		if _, err := unframe(v); err != nil {
			c.bad("", "record", keyText(k), "does not verify")
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = c.walk(threads, "", "threads", func(k, _ []byte) error {
		c.report.Threads++
		b, err := child(threads, k)
		if err != nil {
			c.bad(string(k), "pages", "thread", "%v", err)
			return nil
		}
		return c.thread(tx, string(k), b, valueOf(rows, k))
	})
	if err != nil {
		return err
	}
	return c.walk(rows, "", "rows", func(k, _ []byte) error {
		if b, err := child(threads, k); b == nil && err == nil {
			c.bad(string(k), "row", "", "the thread's log is missing")
		}
		return nil
	})
}

// walk visits a bucket from both ends, so that a page that cannot be read hides
// only what is on it.
func (c *checker) walk(b *bolt.Bucket, threadID, what string, visit func(k, v []byte) error) error {
	return walk(c.ctx, b, visit, func(err error) { c.bad(threadID, "pages", what, "%v", err) })
}

var errWalked = errors.New("walked")

// walk calls visit for each key in order; where pages are damaged it reports
// that and goes on from the end, backwards. What visit returns ends it.
func walk(ctx context.Context, b *bolt.Bucket, visit func(k, v []byte) error, damaged func(error)) error {
	if b == nil {
		return nil
	}
	var last []byte
	var inner error
	pass := func(first, next func(*bolt.Cursor) ([]byte, []byte), stop func(k []byte) bool) error {
		return guard(func() error {
			cur := b.Cursor()
			for k, v := first(cur); k != nil; k, v = next(cur) {
				if stop(k) {
					return nil
				}
				if inner = ctx.Err(); inner == nil {
					inner = visit(k, v)
				}
				if inner != nil {
					return errWalked
				}
			}
			return nil
		})
	}
	err := pass((*bolt.Cursor).First, (*bolt.Cursor).Next, func(k []byte) bool {
		if last != nil && bytes.Compare(k, last) <= 0 {
			panic("keys out of order")
		}
		last = append(last[:0], k...)
		return false
	})
	if inner != nil || err == nil {
		return inner
	}
	damaged(err)
	var before []byte
	// What goes wrong now is the same damage, met from the other side.
	_ = pass((*bolt.Cursor).Last, (*bolt.Cursor).Prev, func(k []byte) bool {
		out := before != nil && bytes.Compare(k, before) >= 0
		before = append(before[:0], k...)
		return out || bytes.Compare(k, last) <= 0
	})
	return inner
}

// child opens a bucket within another; nil when there is none.
func child(b *bolt.Bucket, name []byte) (c *bolt.Bucket, err error) {
	err = guard(func() error {
		c = b.Bucket(name)
		return nil
	})
	return c, err
}

func (c *checker) thread(tx *bolt.Tx, id string, b *bolt.Bucket, row []byte) error {
	if b == nil {
		c.bad(id, "head", "", "is no thread")
		return nil
	}
	c.report.Records += 2
	h, err := decodeHead(valueOf(b, keyHead))
	if err != nil {
		c.bad(id, "head", "", "does not verify: the thread cannot be opened")
	}
	r, rowErr := decode[heddlev1.Thread](row)
	switch {
	case row == nil:
		c.bad(id, "row", "", "is missing: the thread is not listed")
	case rowErr != nil:
		c.bad(id, "row", "", "does not verify: the thread is not listed")
	case r.GetId() != id:
		c.bad(id, "row", "", "belongs to thread %s", r.GetId())
	default:
		c.indexes(tx, r)
	}
	if v := valueOf(b, keyQueue); v != nil {
		c.report.Records++
		if _, err := decode[heddlev1.Queue](v); err != nil {
			c.bad(id, "queue", "", "does not verify")
		}
	}
	events, pagesErr := child(b, subEvents)
	if pagesErr != nil {
		c.bad(id, "pages", "events", "%v", pagesErr)
	}
	if err := c.events(id, events, h.seq, err == nil); err != nil {
		return err
	}
	for _, kind := range projections {
		records, err := child(b, kind.bucket)
		if err != nil {
			c.bad(id, "pages", string(kind.bucket), "%v", err)
			continue
		}
		err = c.walk(records, id, string(kind.bucket), func(k, v []byte) error {
			c.report.Records++
			if kind.verify(k, v) != nil {
				c.bad(id, kind.name, keyText(k), "does not verify")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// projections are the kinds of framed records of a thread beside its events.
var projections = []struct {
	name   string
	bucket []byte
	verify func(k, v []byte) error
}{
	{"turn", subTurns, func(_, v []byte) error { _, err := decode[heddlev1.Turn](v); return err }},
	{"item", subItems, func(k, v []byte) error { _, err := decodeItem("", k, v); return err }},
	{"history", subHistory, func(k, v []byte) error { _, err := decodeHistory(k, v); return err }},
	{"approval", subApprovals, func(_, v []byte) error { _, err := decode[heddlev1.Approval](v); return err }},
	{"action", subOpen, verifyOpen},
	{"attachment", subAttached, func(_, v []byte) error { _, err := decode[heddlev1.Attachment](v); return err }},
}

func verifyOpen(k, v []byte) error {
	if len(k) < 2 {
		return errDamaged
	}
	if k[0] != openAction {
		return nil
	}
	_, err := decode[heddlev1.ActionIntent](v)
	return err
}

// events checks the log: every record verifies and the numbers have no gap.
func (c *checker) events(id string, b *bolt.Bucket, head uint64, known bool) error {
	next := uint64(1)
	err := c.walk(b, id, "events", func(k, v []byte) error {
		c.report.Records++
		bt, err := decodeBatch(k, v)
		if err == nil {
			err = bt.verify()
		}
		if err != nil {
			c.bad(id, "events", keyText(k), "does not verify")
			return nil
		}
		if bt.first > next {
			c.bad(id, "events", fmt.Sprintf("%d-%d", next, bt.first-1), "cannot be read")
		}
		next = max(next, bt.last+1)
		return nil
	})
	if known && next <= head {
		c.bad(id, "events", fmt.Sprintf("%d-%d", next, head), "cannot be read")
	}
	return err
}

// verify decodes every event of a batch.
func (b batch) verify() error {
	var inner error
	err := b.each(func(raw []byte) bool {
		_, inner = unmarshal[heddlev1.Event](raw)
		return inner == nil
	})
	return errors.Join(err, inner)
}

// indexes checks that lists find the thread.
func (c *checker) indexes(tx *bolt.Tx, row *heddlev1.Thread) {
	for name, at := range map[string]int64{string(bucketCreated): row.GetCreatedAtMs(), string(bucketUpdated): row.GetUpdatedAtMs()} {
		b := tx.Bucket([]byte(name))
		if b == nil || !bytes.Equal(b.Get(listKey(row, at)), filterOf(row)) {
			c.bad(row.GetId(), "index", name, "does not lead to the thread")
		}
	}
	for _, k := range groupKeys(row) {
		if b := tx.Bucket(bucketGroups); b == nil || !bytes.Equal(b.Get(k), filterOf(row)) {
			c.bad(row.GetId(), "index", "groups", "does not lead to the thread")
		}
	}
	if b := tx.Bucket(bucketText); b == nil || string(b.Get([]byte(row.GetId()))) != store.SearchText(row) {
		c.bad(row.GetId(), "index", "text", "does not lead to the thread")
	}
}

// keyText shows a key: numbers for what begins with them, else its text.
func keyText(k []byte) string {
	switch {
	case len(k) == 8:
		return fmt.Sprint(binary.BigEndian.Uint64(k))
	case len(k) == 16:
		return fmt.Sprintf("%d/%d", binary.BigEndian.Uint64(k), binary.BigEndian.Uint64(k[8:]))
	case len(k) == 12:
		return fmt.Sprintf("%d/%d", binary.BigEndian.Uint64(k), binary.BigEndian.Uint32(k[8:]))
	case utf8.Valid(k):
		return string(k)
	}
	return fmt.Sprintf("%x", k)
}
