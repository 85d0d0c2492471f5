package boltstore

import (
	"bytes"
	"math"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/store"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Whatever lies in a record of events, a reader accounts for every number of it
// once, in order, and never fails.
func FuzzEventRecord(f *testing.F) {
	s, err := Open(f.Context(), Config{Path: filepath.Join(f.TempDir(), "s.db")})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	events := []*heddlev1.Event{{Seq: 1, ThreadId: "a"}, {Seq: 2, ThreadId: "a", Payload: &heddlev1.Event_ItemDelta{ItemDelta: &heddlev1.ItemDelta{ItemId: "i"}}}}
	records, err := encodeBatch(events, store.EndOf)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint64(1), uint64(1), uint64(2), records[0].value[frameHeader:])
	f.Add(uint64(5), uint64(2), uint64(9), []byte{0, 0, 0, 0, 0, 0, 0, 9, 200, 1})
	f.Fuzz(func(t *testing.T, first, next, head uint64, body []byte) {
		// Seqs are counted one by one, so that none comes near the end of its type.
		if first == 0 || next == 0 || head > math.MaxInt64 || first > math.MaxInt64 {
			return
		}
		if _, err := decodeBatch(u64(first), body); err == nil && len(body) < frameHeader {
			t.Fatal("a record without a checksum was taken")
		}
		bt, err := decodeBatch(u64(first), frame(body))
		if err != nil || bt.last < next || bt.first > head || bt.last > math.MaxInt64 {
			return
		}
		r := reader{store: s, threadID: "a", next: next, head: head, limit: math.MaxInt}
		if full := r.batch(bt); full {
			t.Fatal("there is no limit")
		}
		at := next
		for _, ev := range r.out {
			if ev.GetSeq() != at && !(ev.GetSeq() < at && store.EndOf(ev) >= at) {
				t.Fatalf("at %d: an event with number %d", at, ev.GetSeq())
			}
			at = store.EndOf(ev) + 1
		}
		if at != r.next {
			t.Fatalf("events up to %d, the reader stands at %d", at-1, r.next)
		}
	})
}

// A framed message is read back as it was; anything else is refused or read.
func FuzzFrame(f *testing.F) {
	good, err := frameMessage(nil, &heddlev1.Event{Seq: 3, ThreadId: "a"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, v []byte) {
		_, _ = decodeHead(v)
		_, _ = parseItemKey(v)
		body, err := unframe(v)
		if err != nil {
			return
		}
		if !bytes.Equal(frame(body), v) {
			t.Fatal("another record has the same body")
		}
		if ev, err := decode[heddlev1.Event](v); err == nil {
			if _, err := proto.Marshal(ev); err != nil {
				t.Fatal(err)
			}
		}
	})
}
