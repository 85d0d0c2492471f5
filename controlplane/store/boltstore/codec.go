package boltstore

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// errDamaged is a record that does not verify.
var errDamaged = errors.New("damaged record")

// castagnoli is read-only.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	frameVersion = 1
	frameHeader  = 5
)

// frame makes a record of the parts.
func frame(parts ...[]byte) []byte {
	n := frameHeader
	for _, p := range parts {
		n += len(p)
	}
	b := make([]byte, 4, n)
	b = append(b, frameVersion)
	for _, p := range parts {
		b = append(b, p...)
	}
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

// unframe verifies a record and returns its body, which aliases it.
func unframe(v []byte) ([]byte, error) {
	if len(v) < frameHeader || binary.LittleEndian.Uint32(v) != crc32.Checksum(v[4:], castagnoli) || v[4] != frameVersion {
		return nil, errDamaged
	}
	return v[frameHeader:], nil
}

func frameMessage(prefix []byte, m proto.Message) ([]byte, error) {
	body, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return frame(prefix, body), nil
}

// message is a generated message type.
type message[T any] interface {
	*T
	proto.Message
}

func decode[T any, M message[T]](v []byte) (M, error) {
	body, err := unframe(v)
	if err != nil {
		return nil, err
	}
	return unmarshal[T, M](body)
}

func unmarshal[T any, M message[T]](body []byte) (M, error) {
	m := M(new(T))
	if err := proto.Unmarshal(body, m); err != nil {
		return nil, errDamaged
	}
	return m, nil
}

func u64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func ord(n int64) []byte { return u64(uint64(max(0, n))) }

func readU64(v []byte) (uint64, bool) {
	if len(v) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(v), true
}

func itemKey(k thread.ItemKey) []byte {
	return binary.BigEndian.AppendUint64(ord(k.Ordinal), k.StartSeq)
}

func parseItemKey(v []byte) (thread.ItemKey, bool) {
	if len(v) != 16 {
		return thread.ItemKey{}, false
	}
	o := binary.BigEndian.Uint64(v)
	if o > math.MaxInt64 {
		return thread.ItemKey{}, false
	}
	return thread.ItemKey{Ordinal: int64(o), StartSeq: binary.BigEndian.Uint64(v[8:])}, true
}

// head is where a thread's log stands.
type head struct {
	seq, epoch uint64
	base       int64
}

func (h head) frame() []byte {
	return frame(u64(h.seq), u64(h.epoch), ord(h.base))
}

func decodeHead(v []byte) (head, error) {
	b, err := unframe(v)
	if err != nil || len(b) != 24 {
		return head{}, errDamaged
	}
	return head{
		seq:   binary.BigEndian.Uint64(b),
		epoch: binary.BigEndian.Uint64(b[8:]),
		base:  int64(binary.BigEndian.Uint64(b[16:]) & math.MaxInt64),
	}, nil
}

// chunkBytes bounds the events of one record, so that reading a few events
// never decodes a large commit. One event is never split.
const chunkBytes = 256 << 10

// record is the events of one commit, or a part of them.
type record struct {
	first uint64
	value []byte
	last  uint64
}

// encodeBatch makes records of consecutive events.
func encodeBatch(events []*heddlev1.Event, endOf func(*heddlev1.Event) uint64) ([]record, error) {
	var out []record
	for len(events) > 0 {
		body, n := []byte(nil), 0
		for n < len(events) && (n == 0 || len(body) < chunkBytes) {
			size := proto.Size(events[n])
			body = binary.AppendUvarint(body, uint64(size))
			var err error
			if body, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(body, events[n]); err != nil {
				return nil, err
			}
			n++
		}
		last := endOf(events[n-1])
		out = append(out, record{first: events[0].GetSeq(), value: frame(u64(last), body), last: last})
		events = events[n:]
	}
	return out, nil
}

// batch is a verified record of events whose events are not decoded yet.
type batch struct {
	first, last uint64
	body        []byte
}

func decodeBatch(k, v []byte) (batch, error) {
	first, ok := readU64(k)
	if !ok {
		return batch{}, errDamaged
	}
	b, err := unframe(v)
	if err != nil || len(b) < 8 {
		return batch{first: first}, errDamaged
	}
	bt := batch{first: first, last: binary.BigEndian.Uint64(b), body: b[8:]}
	if bt.last < first {
		return bt, errDamaged
	}
	return bt, nil
}

// each yields the encoded events in order.
func (b batch) each(yield func(raw []byte) bool) error {
	for rest := b.body; len(rest) > 0; {
		n, w := binary.Uvarint(rest)
		if w <= 0 || n > uint64(len(rest)-w) {
			return errDamaged
		}
		if !yield(rest[w : w+int(n)]) {
			return nil
		}
		rest = rest[w+int(n):]
	}
	return nil
}
