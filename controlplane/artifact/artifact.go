// Package artifact keeps the bytes that a thread's work leaves behind: the
// output of items, in one append-only stream file per item that is sealed with
// its SHA-256 when the item ends (Streams), and the patches of turns, in blobs
// named by their SHA-256 (Blobs).
//
// Guarantees:
//   - Bytes are kept as they came, invalid UTF-8 included, up to a cap; what is
//     dropped at the cap is counted and recorded.
//   - A write names its offset and may be repeated: what is there already is
//     not written again, so an executor can send chunks anew after a
//     reconnect.
//   - WriteAt returns when the operating system has the bytes, so that they
//     survive the death of this process; nothing is synced, so the death of
//     the machine may lose the end of a stream. A seal says how long it was.
//   - An item without output has no file.
//
// All methods are safe for concurrent use; one item has one Writer at a time.
package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

// DefaultCap is the largest stream of one item.
const DefaultCap = 256 << 20

// Config says where streams lie.
type Config struct {
	// Dir is the streams folder; it is made when it is first needed.
	Dir string
	// Cap bounds one stream in bytes; 0 means DefaultCap.
	Cap int64
}

// Seal describes a finished stream.
type Seal struct {
	// Bytes is the length of the stream file, Dropped what came after the cap.
	Bytes   int64 `json:"bytes"`
	Dropped int64 `json:"dropped,omitempty"`
	// SHA256 is the hexadecimal digest of the kept bytes.
	SHA256 string `json:"sha256"`
}

// View is a bounded form of a stream: its head, a mark that says how many bytes
// were left out, its tail.
type View struct {
	Data []byte
	// Total is the length of the stream file, Dropped what is not in it.
	Total, Dropped int64
	// OmittedFrom and Omitted say which bytes of the file the view leaves out.
	OmittedFrom, Omitted int64
}

// GapError is a write that begins after the end of the stream: bytes in
// between have not come. The writer should be sent everything from Have on.
type GapError struct {
	Offset, Have int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("write at %d leaves a gap: the stream ends at %d", e.Offset, e.Have)
}

// ErrSealed is a write of new bytes to a finished stream.
var ErrSealed = errors.New("the stream is sealed")

// Streams are the stream files of one home.
type Streams struct {
	cfg Config

	mu   sync.Mutex
	open map[key]*Writer
}

type key struct{ thread, item string }

// New returns the streams under a folder. Nothing is created yet.
func New(cfg Config) (*Streams, error) {
	if cfg.Dir == "" {
		return nil, errors.New("open streams: no folder")
	}
	if cfg.Cap <= 0 {
		cfg.Cap = DefaultCap
	}
	return &Streams{cfg: cfg, open: map[key]*Writer{}}, nil
}

// Open returns the writer of an item's stream. While it is open, further calls
// return the same writer.
func (s *Streams) Open(threadID, itemID string) (*Writer, error) {
	k := key{threadID, itemID}
	path, err := s.path(k)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.open[k]; w != nil {
		return w, nil
	}
	w, err := openWriter(s, k, path)
	if err != nil {
		return nil, err
	}
	s.open[k] = w
	return w, nil
}

func (s *Streams) forget(w *Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[w.key] == w {
		delete(s.open, w.key)
	}
}

// writer returns the open writer of an item, or nil.
func (s *Streams) writer(k key) *Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[k]
}

// path maps an item to its file. Ids come from the model and from clients, so
// they are never used as file names as they are.
func (s *Streams) path(k key) (string, error) {
	if k.thread == "" || k.item == "" {
		return "", errdefs.New(errdefs.InvalidArgument, "stream of item %q in thread %q: both ids are needed", k.item, k.thread)
	}
	return filepath.Join(s.cfg.Dir, fileName(k.thread), fileName(k.item)), nil
}

// DeleteThread removes every stream of a thread. Open writers of it fail from
// then on.
func (s *Streams) DeleteThread(threadID string) error {
	if threadID == "" {
		return errdefs.New(errdefs.InvalidArgument, "delete streams: no thread id")
	}
	s.mu.Lock()
	var writers []*Writer
	for k, w := range s.open {
		if k.thread == threadID {
			writers = append(writers, w)
			delete(s.open, k)
		}
	}
	s.mu.Unlock()
	for _, w := range writers {
		w.abandon()
	}
	if err := os.RemoveAll(filepath.Join(s.cfg.Dir, fileName(threadID))); err != nil {
		return fmt.Errorf("delete streams of thread %s: %w", threadID, err)
	}
	return nil
}

// Sweep removes the streams of threads that are not kept, left over from a
// deletion that was cut short. It returns of how many threads.
func (s *Streams) Sweep(keep func(threadID string) (bool, error)) (int, error) {
	return sweep(s.cfg.Dir, keep, s.DeleteThread)
}

// Stat describes a stream: how it was sealed, or how long it is while it is not.
// sealed is false for one that may still grow. The digest of a short stream,
// whose seal is not kept, is made from its bytes.
func (s *Streams) Stat(threadID, itemID string) (seal Seal, sealed bool, err error) {
	k := key{threadID, itemID}
	path, err := s.path(k)
	if err != nil {
		return Seal{}, false, err
	}
	if w := s.writer(k); w != nil {
		seal.Bytes, seal.Dropped = w.Size()
		return seal, false, nil
	}
	kept, err := readSeal(path)
	if err == nil {
		return *kept, true, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return Seal{}, false, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return Seal{}, true, nil
	}
	if err != nil {
		return Seal{}, false, fmt.Errorf("look at stream: %w", err)
	}
	if info.Size() > sealFrom {
		return Seal{Bytes: info.Size()}, false, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Seal{}, false, fmt.Errorf("look at stream: %w", err)
	}
	sum := sha256.Sum256(data)
	return Seal{Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}, true, nil
}
