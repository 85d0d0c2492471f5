package boltstore

import (
	"bytes"
	"encoding/binary"
	"math"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store/chain"
	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// rows gives package chain the rows of the store within a transaction. Damaged
// records are passed over.
type rows struct {
	store *Store
	tx    *bolt.Tx
}

var _ chain.Rows = rows{}

// sub returns a bucket of a thread, nil when the thread has none.
func (r rows) sub(threadID string, name []byte) *bolt.Bucket {
	b := threadBucket(r.tx, threadID)
	if b == nil {
		return nil
	}
	return b.Bucket(name)
}

func (r rows) Head(threadID string) (*heddlev1.Thread, int64, error) {
	_, h, err := r.store.headOf(r.tx, threadID)
	if err != nil {
		return nil, 0, err
	}
	row, err := r.store.rowOf(r.tx, threadID)
	if err != nil && h.base == 0 {
		// Without a source only what was taken back depends on the row, so a
		// damaged one does not hide the turns.
		return &heddlev1.Thread{Id: threadID}, 0, nil
	}
	return row, h.base, err
}

func (r rows) TurnByID(threadID, turnID string) (*heddlev1.Turn, error) {
	ids, turns := r.sub(threadID, subTurnIDs), r.sub(threadID, subTurns)
	if ids == nil || turns == nil || turnID == "" {
		return nil, nil
	}
	at := ids.Get([]byte(turnID))
	if at == nil {
		return nil, nil
	}
	t, err := decode[heddlev1.Turn](turns.Get(at))
	if err != nil {
		r.store.skip("turn", threadID, at)
		return nil, nil
	}
	return t, nil
}

// span yields the records with lo <= key <= hi in order.
func span(b *bolt.Bucket, lo, hi []byte, desc bool, yield func(k, v []byte) bool) {
	if b == nil {
		return
	}
	c := b.Cursor()
	if !desc {
		for k, v := c.Seek(lo); k != nil && bytes.Compare(k, hi) <= 0; k, v = c.Next() {
			if !yield(k, v) {
				return
			}
		}
		return
	}
	k, v := c.Seek(hi)
	if !bytes.Equal(k, hi) {
		k, v = prevOrLast(c, k)
	}
	for ; k != nil && bytes.Compare(k, lo) >= 0; k, v = c.Prev() {
		if !yield(k, v) {
			return
		}
	}
}

func (r rows) Turns(threadID string, lo, hi int64, desc bool, yield func(*heddlev1.Turn) bool) error {
	span(r.sub(threadID, subTurns), ord(lo), ord(hi), desc, func(k, v []byte) bool {
		t, err := decode[heddlev1.Turn](v)
		if err != nil {
			r.store.skip("turn", threadID, k)
			return true
		}
		return yield(t)
	})
	return nil
}

func decodeItem(threadID string, k, v []byte) (thread.ItemRow, error) {
	key, ok := parseItemKey(k)
	body, err := unframe(v)
	if !ok || err != nil || len(body) < 8 {
		return thread.ItemRow{}, errDamaged
	}
	it, err := unmarshal[heddlev1.Item](body[8:])
	if err != nil {
		return thread.ItemRow{}, err
	}
	return thread.ItemRow{Item: it, ItemKey: key, EndSeq: binary.BigEndian.Uint64(body), ThreadID: threadID}, nil
}

func (r rows) ItemByID(threadID, itemID string) (thread.ItemRow, bool, error) {
	ids, items := r.sub(threadID, subItemIDs), r.sub(threadID, subItems)
	if ids == nil || items == nil || itemID == "" {
		return thread.ItemRow{}, false, nil
	}
	at := ids.Get([]byte(itemID))
	if at == nil {
		return thread.ItemRow{}, false, nil
	}
	it, err := decodeItem(threadID, at, items.Get(at))
	if err != nil {
		r.store.skip("item", threadID, at)
		return it, false, nil
	}
	return it, true, nil
}

func (r rows) Items(threadID string, lo, hi thread.ItemKey, desc bool, yield func(thread.ItemRow) bool) error {
	span(r.sub(threadID, subItems), itemKey(lo), itemKey(hi), desc, func(k, v []byte) bool {
		it, err := decodeItem(threadID, k, v)
		if err != nil {
			r.store.skip("item", threadID, k)
			return true
		}
		return yield(it)
	})
	return nil
}

func (r rows) UserItems(threadID string, ordinal int64, yield func(thread.ItemRow) bool) error {
	lo, hi := thread.ItemKey{Ordinal: ordinal}, thread.ItemKey{Ordinal: ordinal, StartSeq: math.MaxUint64}
	items := r.sub(threadID, subItems)
	span(r.sub(threadID, subUsers), itemKey(lo), itemKey(hi), false, func(k, _ []byte) bool {
		it, err := decodeItem(threadID, k, items.Get(k))
		if err != nil {
			r.store.skip("item", threadID, k)
			return true
		}
		return yield(it)
	})
	return nil
}

func (r rows) History(threadID string, from uint64, yield func(thread.HistoryRow) bool) error {
	hi := bytes.Repeat([]byte{0xff}, 12)
	span(r.sub(threadID, subHistory), u64(from), hi, false, func(k, v []byte) bool {
		h, err := decodeHistory(k, v)
		if err != nil {
			r.store.skip("history", threadID, k)
			return true
		}
		return yield(h)
	})
	return nil
}

func (r rows) Floors(threadID string, yield func(thread.Floor) bool) error {
	span(r.sub(threadID, subFloors), u64(0), u64(math.MaxUint64), true, func(k, v []byte) bool {
		seq, ok1 := readU64(k)
		n, ok2 := readU64(v)
		if !ok1 || !ok2 {
			r.store.skip("floor", threadID, k)
			return true
		}
		return yield(thread.Floor{Seq: seq, Ordinal: int64(n)})
	})
	return nil
}
