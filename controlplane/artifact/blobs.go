package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

const (
	// DefaultBlobCap is the largest blob.
	DefaultBlobCap = 16 << 20
	// DefaultQuota is how much the blobs of one thread may hold together.
	DefaultQuota = 512 << 20
)

// ErrQuota says that a thread's blobs have reached their bound.
var ErrQuota = errors.New("the thread's artifacts have reached their bound")

// BlobConfig says where blobs lie.
type BlobConfig struct {
	// Dir is the blobs' folder; it is made when it is first needed.
	Dir string
	// Cap bounds one blob, Quota those of one thread, in bytes; 0 means the
	// defaults.
	Cap, Quota int64
}

// Blobs keeps sealed bytes of threads, each under its SHA-256 in the folder of
// its thread. A blob belongs to an owner, the turn that made it: until the
// turn's end is recorded nothing refers to the blob, and Discard removes what a
// crash left of it.
//
// A blob is durable when Put returns, and its digest is checked at each read.
// All methods are safe for concurrent use.
type Blobs struct {
	cfg BlobConfig

	mu sync.Mutex
	// used is what each thread's folder holds, for those that were written to.
	used map[string]int64
}

// NewBlobs returns the blobs under a folder. Nothing is created yet.
func NewBlobs(cfg BlobConfig) (*Blobs, error) {
	if cfg.Dir == "" {
		return nil, errors.New("open blobs: no folder")
	}
	if cfg.Cap <= 0 {
		cfg.Cap = DefaultBlobCap
	}
	if cfg.Quota <= 0 {
		cfg.Quota = DefaultQuota
	}
	return &Blobs{cfg: cfg, used: map[string]int64{}}, nil
}

// Put makes data durable and returns its hexadecimal SHA-256. Data that is
// there already is not written again. Past the bounds it fails with ErrQuota.
func (b *Blobs) Put(threadID, owner string, data []byte) (sum string, err error) {
	digest := sha256.Sum256(data)
	sum = hex.EncodeToString(digest[:])
	path, err := b.path(threadID, owner, sum)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(data)) {
		return sum, nil
	}
	used, err := b.usage(threadID)
	if err != nil {
		return "", err
	}
	if int64(len(data)) > b.cfg.Cap || used+int64(len(data)) > b.cfg.Quota {
		return "", fmt.Errorf("keep %d bytes beside %d: %w", len(data), used, ErrQuota)
	}
	if err := writeWhole(path, data); err != nil {
		return "", fmt.Errorf("write blob: %w", err)
	}
	b.used[threadID] = used + int64(len(data))
	return sum, nil
}

// usage is what a thread's folder holds.
func (b *Blobs) usage(threadID string) (int64, error) {
	if n, ok := b.used[threadID]; ok {
		return n, nil
	}
	entries, err := os.ReadDir(b.folder(threadID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("look at blobs: %w", err)
	}
	var n int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !strings.HasPrefix(e.Name(), draftPrefix) {
			n += info.Size()
		}
	}
	return n, nil
}

// writeWhole gives path its content at once or not at all.
func writeWhole(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path+tempSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+tempSuffix, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path+tempSuffix))
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// tempSuffix ends the name of a blob that is being written.
const tempSuffix = ".new"

// ReadAt returns up to n bytes of a blob from an offset, and its length. A blob
// whose bytes are not those of its digest is an error.
func (b *Blobs) ReadAt(threadID, owner, sum string, offset int64, n int) (data []byte, total int64, err error) {
	path, err := b.path(threadID, owner, sum)
	if err != nil {
		return nil, 0, err
	}
	whole, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, errdefs.New(errdefs.ArtifactNotFound, "the bytes of artifact %s are gone", sum)
	case err != nil:
		return nil, 0, fmt.Errorf("read blob: %w", err)
	}
	if digest := sha256.Sum256(whole); hex.EncodeToString(digest[:]) != sum {
		return nil, 0, errdefs.New(errdefs.Internal, "artifact %s is damaged: its bytes do not have its digest", sum)
	}
	total = int64(len(whole))
	if offset < 0 || offset >= total || n <= 0 {
		return nil, total, nil
	}
	return whole[offset:min(total, offset+int64(n))], total, nil
}

// Discard removes the blobs and the draft of an owner that nothing refers to.
func (b *Blobs) Discard(threadID, owner string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	entries, err := os.ReadDir(b.folder(threadID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("discard blobs: %w", err)
	}
	delete(b.used, threadID)
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), tempSuffix); strings.HasSuffix(name, "."+fileName(owner)) {
			if err := os.Remove(filepath.Join(b.folder(threadID), e.Name())); err != nil {
				return fmt.Errorf("discard blobs: %w", err)
			}
		}
	}
	return nil
}

// DeleteThread removes every blob of a thread.
func (b *Blobs) DeleteThread(threadID string) error {
	if threadID == "" {
		return errdefs.New(errdefs.InvalidArgument, "delete blobs: no thread id")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.used, threadID)
	if err := os.RemoveAll(b.folder(threadID)); err != nil {
		return fmt.Errorf("delete blobs of thread %s: %w", threadID, err)
	}
	return nil
}

// Sweep removes the blobs of threads that are not kept and returns of how many
// threads.
func (b *Blobs) Sweep(keep func(threadID string) (bool, error)) (int, error) {
	return sweep(b.cfg.Dir, keep, b.DeleteThread)
}

func (b *Blobs) folder(threadID string) string { return filepath.Join(b.cfg.Dir, fileName(threadID)) }

func (b *Blobs) path(threadID, owner, sum string) (string, error) {
	if threadID == "" || owner == "" {
		return "", errdefs.New(errdefs.InvalidArgument, "blob of %q in thread %q: both ids are needed", owner, threadID)
	}
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
		return "", errdefs.New(errdefs.InvalidArgument, "%q is not a SHA-256", sum)
	}
	return filepath.Join(b.folder(threadID), sum+"."+fileName(owner)), nil
}
