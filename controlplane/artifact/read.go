package artifact

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// fileName makes a safe file name of an id: ids of lower-case letters, digits,
// '-' and '_' stand for themselves, all others are encoded, long ones hashed.
func fileName(id string) string {
	switch {
	case plain(id):
		return "p-" + id
	case len(id) <= 128:
		return "x-" + idEncoding.EncodeToString([]byte(id))
	}
	sum := sha256.Sum256([]byte(id))
	return "h-" + hex.EncodeToString(sum[:])
}

// threadOf is the inverse of fileName, for ids that are not hashed.
func threadOf(name string) (string, bool) {
	if id, ok := strings.CutPrefix(name, "p-"); ok && plain(id) {
		return id, true
	}
	if enc, ok := strings.CutPrefix(name, "x-"); ok {
		id, err := idEncoding.DecodeString(enc)
		return string(id), err == nil
	}
	return "", false
}

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func plain(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// ReadAt returns up to n bytes of an item's stream from an offset, and the
// length of the stream now. An item without output is an empty stream.
func (s *Streams) ReadAt(threadID, itemID string, offset int64, n int) (data []byte, total int64, err error) {
	f, total, _, err := s.reader(threadID, itemID)
	if err != nil || f == nil {
		return nil, 0, err
	}
	defer f.Close()
	data, err = readRange(f, offset, n, total)
	return data, total, err
}

// reader opens a stream for reading, up to what a writer has completed. f is
// nil when there is no output.
func (s *Streams) reader(threadID, itemID string) (f *os.File, total, dropped int64, err error) {
	k := key{threadID, itemID}
	path, err := s.path(k)
	if err != nil {
		return nil, 0, 0, err
	}
	w := s.writer(k)
	if w != nil {
		total, dropped = w.Size()
	} else if seal, err := readSeal(path); err == nil {
		dropped = seal.Dropped
	}
	f, err = os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, dropped, nil
	}
	if err != nil {
		return nil, 0, 0, fmt.Errorf("read stream: %w", err)
	}
	if w == nil {
		info, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, 0, 0, fmt.Errorf("read stream: %w", err)
		}
		total = info.Size()
	}
	return f, total, dropped, nil
}

func readRange(f *os.File, offset int64, n int, total int64) ([]byte, error) {
	if offset < 0 || offset >= total || n <= 0 {
		return nil, nil
	}
	data := make([]byte, min(int64(n), total-offset))
	got, err := f.ReadAt(data, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read stream: %w", err)
	}
	return data[:got], nil
}

// Aggregated returns the whole stream when it has at most limit bytes, else its
// head and its tail with a mark between them. The mark is not counted in limit.
func (s *Streams) Aggregated(threadID, itemID string, limit int) (View, error) {
	f, total, dropped, err := s.reader(threadID, itemID)
	if err != nil {
		return View{}, err
	}
	v := View{Total: total, Dropped: dropped}
	if f != nil {
		defer f.Close()
		if err := v.fill(f, int64(max(0, limit))); err != nil {
			return View{}, err
		}
	}
	if dropped > 0 {
		v.Data = fmt.Appendf(v.Data, "\n[... %d bytes of output were dropped at the limit of the stream ...]\n", dropped)
	}
	return v, nil
}

func (v *View) fill(f *os.File, limit int64) error {
	if v.Total <= limit {
		data, err := readRange(f, 0, int(v.Total), v.Total)
		v.Data = data
		return err
	}
	head := limit / 2
	tail := limit - head
	first, err := readRange(f, 0, int(head), v.Total)
	if err != nil {
		return err
	}
	last, err := readRange(f, v.Total-tail, int(tail), v.Total)
	if err != nil {
		return err
	}
	v.OmittedFrom, v.Omitted = head, v.Total-limit
	v.Data = fmt.Appendf(first, "\n[... %d bytes of output left out: offsets %d to %d ...]\n", v.Omitted, head, v.Total-tail)
	v.Data = append(v.Data, last...)
	return nil
}
