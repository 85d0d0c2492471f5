package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

// A record is: length of kind and payload (uint32, big endian), their CRC-32C
// (uint32), kind (one byte), payload.
const (
	kindBoot     byte = 1 // boot id; first record of the file
	kindAccepted byte = 2 // executorv1.RunningAction
	kindResult   byte = 3 // executorv1.ActionResult
	kindAcked    byte = 4 // action id

	header    = 8
	maxRecord = 64 << 20
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errTorn     = errors.New("record is cut off")
	errChecksum = errors.New("record has a wrong checksum")
)

type record struct {
	kind    byte
	payload []byte
}

func frameLen(payload []byte) int64 { return int64(header + 1 + len(payload)) }

func encode(b []byte, kind byte, payload []byte) []byte {
	crc := crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, payload)
	b = binary.BigEndian.AppendUint32(b, uint32(1+len(payload)))
	b = binary.BigEndian.AppendUint32(b, crc)
	b = append(b, kind)
	return append(b, payload...)
}

// decode reads the first record of b and returns how long it is.
func decode(b []byte) (record, int, error) {
	if len(b) < header+1 {
		return record{}, 0, errTorn
	}
	n := binary.BigEndian.Uint32(b)
	if n == 0 || n > maxRecord || int(n) > len(b)-header {
		return record{}, 0, errTorn
	}
	body := b[header : header+int(n)]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[4:]) {
		return record{}, 0, errChecksum
	}
	return record{kind: body[0], payload: body[1:]}, header + int(n), nil
}

// append writes one record. A short write (full disk) is cut off again, so that
// later records stay readable.
func (j *Journal) append(kind byte, payload []byte) error {
	if j.closed {
		return ErrClosed
	}
	if len(payload) >= maxRecord {
		return fmt.Errorf("write journal: record of %d bytes is too large", len(payload))
	}
	buf := encode(nil, kind, payload)
	n, err := j.f.Write(buf)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, j.f.Truncate(j.size))
		}
		return fmt.Errorf("write journal: %w", err)
	}
	j.size += int64(n)
	return nil
}

// compact writes what still matters to a new file and puts it in the place of
// the old one.
func (j *Journal) compact() error {
	tmp := j.path() + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("compact journal: %w", err)
	}
	buf := encode(nil, kindBoot, []byte(j.cfg.BootID))
	for _, id := range j.doneIn {
		buf = encode(buf, kindAcked, []byte(id))
	}
	for _, e := range j.open {
		buf = encode(buf, kindAccepted, e.accepted)
		if e.result != nil {
			buf = encode(buf, kindResult, e.result)
		}
	}
	_, err = f.Write(buf)
	if err == nil {
		err = os.Rename(tmp, j.path())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compact journal: %w", err), f.Close(), os.Remove(tmp))
	}
	if j.f != nil {
		j.f.Close()
	}
	j.f, j.size = f, int64(len(buf))
	return nil
}
