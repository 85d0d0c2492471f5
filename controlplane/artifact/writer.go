package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// digest is the SHA-256 of the stream so far. It lags behind when the writer
// was opened on what an earlier one left.
type digest struct {
	h hash.Hash
	// upTo is how many bytes of the stream h has seen.
	upTo int64
}

// Writer appends to one stream.
type Writer struct {
	streams *Streams
	key     key
	path    string

	mu      sync.Mutex
	file    *os.File
	size    int64
	dropped int64
	sum     digest
	seal    *Seal
	err     error
}

// openWriter finds what an earlier writer left.
func openWriter(s *Streams, k key, path string) (*Writer, error) {
	w := &Writer{streams: s, key: k, path: path, sum: digest{h: sha256.New()}}
	seal, err := readSeal(path)
	switch {
	case err == nil:
		w.seal, w.size, w.dropped = seal, seal.Bytes, seal.Dropped
		return w, nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return w, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	w.size = info.Size()
	return w, nil
}

// Size returns the length of the stream file and how many bytes were dropped.
func (w *Writer) Size() (size, dropped int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size, w.dropped
}

// WriteAt appends the part of data that the stream does not have yet: offset
// is the position of its first byte in the whole output. It returns how many
// bytes were added to the file and how many were dropped at the cap. A gap is
// a *GapError and writes nothing.
func (w *Writer) WriteAt(offset int64, data []byte) (added, dropped int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, 0, w.err
	}
	have := w.size + w.dropped
	switch {
	case offset < 0:
		return 0, 0, fmt.Errorf("write to stream: negative offset %d", offset)
	case offset > have && w.seal == nil && w.size >= w.streams.cfg.Cap:
		// An earlier writer counted what was dropped before; only the file
		// outlived it.
		w.dropped = offset - w.size
		have = offset
	case offset > have:
		return 0, 0, &GapError{Offset: offset, Have: have}
	}
	switch {
	case offset+int64(len(data)) <= have:
		return 0, 0, nil
	case w.seal != nil:
		return 0, 0, ErrSealed
	}
	data = data[have-offset:]
	if room := max(0, w.streams.cfg.Cap-w.size); int64(len(data)) > room || w.dropped > 0 {
		if w.dropped > 0 {
			room = 0
		}
		dropped = int64(len(data)) - room
		data = data[:room]
	}
	if len(data) > 0 {
		if err := w.write(data); err != nil {
			return 0, 0, err
		}
	}
	w.dropped += dropped
	return int64(len(data)), dropped, nil
}

// Drop records that the source itself left out n bytes at the end of the
// stream; nothing can be added after it.
func (w *Writer) Drop(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > 0 && w.seal == nil {
		w.dropped += n
	}
}

// write puts data at the end of the file. A failed write leaves the stream as
// long as it was: the file is cut back or, at worst, overwritten by the next.
func (w *Writer) write(data []byte) error {
	if w.file == nil {
		f, err := create(w.path)
		if err != nil {
			return fmt.Errorf("create stream: %w", err)
		}
		w.file = f
	}
	if _, err := w.file.WriteAt(data, w.size); err != nil {
		_ = w.file.Truncate(w.size)
		return fmt.Errorf("write to stream: %w", err)
	}
	if w.sum.upTo == w.size {
		w.sum.h.Write(data)
		w.sum.upTo += int64(len(data))
	}
	w.size += int64(len(data))
	return nil
}

func create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	return f, err
}

// sealFrom is the length from which a seal is kept in a file of its own. The
// seal of a shorter stream is made again from its bytes, so that a small output
// costs one file.
const sealFrom = 8 << 10

// Seal ends the stream and returns its digest. A repeated call returns the same
// seal. A stream without bytes leaves no file.
func (w *Writer) Seal() (Seal, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return Seal{}, w.err
	}
	if w.seal != nil {
		w.streams.forget(w)
		return *w.seal, nil
	}
	if err := w.catchUp(); err != nil {
		return Seal{}, err
	}
	seal := Seal{Bytes: w.size, Dropped: w.dropped, SHA256: hex.EncodeToString(w.sum.h.Sum(nil))}
	if w.size > sealFrom || w.dropped > 0 {
		if err := writeSeal(w.path, &seal); err != nil {
			return Seal{}, err
		}
	}
	w.seal = &seal
	err := w.close()
	w.streams.forget(w)
	return seal, err
}

// catchUp hashes what an earlier writer left in the file.
func (w *Writer) catchUp() error {
	if w.sum.upTo == w.size {
		return nil
	}
	f, err := os.Open(w.path)
	if err != nil {
		return fmt.Errorf("seal stream: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, w.size)); err != nil {
		return fmt.Errorf("seal stream: %w", err)
	}
	w.sum = digest{h: h, upTo: w.size}
	return nil
}

// Close lets go of the file without sealing the stream: it can be opened and
// continued again.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.close()
	if w.err == nil {
		w.err = os.ErrClosed
	}
	w.streams.forget(w)
	return err
}

func (w *Writer) close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}

// abandon makes the writer fail: its thread is gone.
func (w *Writer) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.close()
	w.err = fmt.Errorf("write to stream: %w", os.ErrClosed)
}

const sealSuffix = ".seal"

func readSeal(path string) (*Seal, error) {
	data, err := os.ReadFile(path + sealSuffix)
	if err != nil {
		return nil, err
	}
	var s Seal
	if err := json.Unmarshal(data, &s); err != nil {
		// A seal that was cut short by a crash counts as none: the stream is
		// complete in itself and is sealed again.
		return nil, fmt.Errorf("read seal: %w", os.ErrNotExist)
	}
	return &s, nil
}

func writeSeal(path string, s *Seal) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("seal stream: %w", err)
	}
	f, err := create(path + sealSuffix)
	if err != nil {
		return fmt.Errorf("seal stream: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Truncate(int64(len(data))), f.Close()); err != nil {
		return fmt.Errorf("seal stream: %w", err)
	}
	return nil
}
