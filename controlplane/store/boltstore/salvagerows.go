package boltstore

import (
	"encoding/binary"
	"math"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

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
