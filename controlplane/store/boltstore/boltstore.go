package boltstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
)

// Defaults of Config.
const (
	DefaultLockTimeout  = time.Second
	DefaultCompactBytes = 64 << 20
)

// Config says where the file lies.
type Config struct {
	// Path of the file; it and its folder are made when they are missing.
	Path string
	// LockTimeout is how long to wait for another process that has the file
	// open; 0 means DefaultLockTimeout.
	LockTimeout time.Duration
	// CompactBytes is the size from which a file that is mostly free pages is
	// compacted at Open; 0 means DefaultCompactBytes, negative never.
	CompactBytes int64
	// Logger may be nil.
	Logger *slog.Logger

	// noSync is for tests of everything but durability.
	noSync bool
}

func (c *Config) validate() error {
	if c.Path == "" {
		return errors.New("open store: no path")
	}
	if c.LockTimeout <= 0 {
		c.LockTimeout = DefaultLockTimeout
	}
	if c.CompactBytes == 0 {
		c.CompactBytes = DefaultCompactBytes
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Store implements store.Store on one bbolt file.
type Store struct {
	cfg Config
	db  *bolt.DB

	nextRequest atomic.Int64
	commits     atomic.Int64
	events      atomic.Int64
	bytes       atomic.Int64
	damaged     atomic.Int64

	// stop ends the removal of old threads, which purging waits for.
	stop    chan struct{}
	purging sync.WaitGroup
	close   sync.Once
	// failed is set when the file could not be synced: what it holds is no
	// longer known, so nothing is written until it is opened again.
	failed atomic.Pointer[error]
}

var _ store.Store = (*Store)(nil)

// Open opens or makes the file. It fails with errdefs.Busy when another process
// has it open, and with errdefs.VersionUnsupported when a newer program wrote
// it.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{cfg: cfg, stop: make(chan struct{})}
	err := guard(func() (err error) {
		if s.db, err = openFile(cfg.Path, cfg.LockTimeout); err != nil {
			return err
		}
		s.db.NoSync = cfg.noSync
		if err := migrate(s.db, migrations); err != nil {
			return errors.Join(err, s.db.Close())
		}
		return nil
	})
	if err != nil {
		return nil, openError(cfg.Path, err)
	}
	if err := s.compactFile(); err != nil {
		cfg.Logger.Warn("the store was not compacted", "error", err)
		if s.db == nil {
			return nil, openError(cfg.Path, err)
		}
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

// start reads what is kept in memory and goes on with unfinished removals.
func (s *Store) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var left bool
	err := s.view(func(tx *bolt.Tx) error {
		if n, ok := readU64(tx.Bucket(bucketMeta).Get(keyRequest)); ok {
			s.nextRequest.Store(int64(n))
		}
		k, _ := tx.Bucket(bucketTrash).Cursor().First()
		left = k != nil
		return nil
	})
	if err == nil && left {
		s.purging.Go(func() {
			if err := s.purge(); err != nil {
				s.cfg.Logger.Warn("removing deleted threads", "error", err)
			}
		})
	}
	return err
}

// openFile opens the file and makes sure that it is still the one at path: a
// compaction by another process may have replaced it while we waited.
func openFile(path string, timeout time.Duration) (*bolt.DB, error) {
	for {
		var file *os.File
		db, err := bolt.Open(path, 0o600, &bolt.Options{
			Timeout:      timeout,
			FreelistType: bolt.FreelistArrayType,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				f, err := os.OpenFile(name, flag, mode)
				file = f
				return f, err
			},
		})
		if err != nil {
			return nil, err
		}
		ours, err1 := file.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(ours, there) {
			return db, nil
		}
		if err := errors.Join(err1, err2, db.Close()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return errdefs.New(errdefs.Busy, "another control plane holds %s: stop it, or use another home", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return errdefs.New(errdefs.StoreUnavailable, "open store %s: the file is damaged or not a store: %w", path, err)
	case errdefs.From(err) != nil:
		return err
	}
	return errdefs.New(errdefs.StoreUnavailable, "open store %s: %w", path, err)
}

// Close waits for removals under way and releases the file.
func (s *Store) Close() error {
	var err error
	s.close.Do(func() {
		close(s.stop)
		s.purging.Wait()
		err = s.db.Close()
	})
	return err
}

// guard turns what bbolt does about a damaged page, a panic or a fault in the
// mapped file, into an error.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = errdefs.New(errdefs.StoreUnavailable, "pages of the store's file are damaged (%v): stop the control plane and put a copy of the file from before in its place", r)
		}
	}()
	return f()
}

// view runs f in a read transaction.
func (s *Store) view(f func(*bolt.Tx) error) error {
	return wrap(guard(func() error { return s.db.View(f) }))
}

// update runs f in a write transaction. Every return of nil is one sync.
func (s *Store) update(f func(*bolt.Tx) error) error {
	if failed := s.failed.Load(); failed != nil {
		return errdefs.New(errdefs.StoreUnavailable, "the store takes no writes since a commit failed: %w", *failed)
	}
	var txid int
	var inside error
	err := guard(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			txid = tx.ID()
			inside = f(tx)
			return inside
		})
	})
	if err == nil {
		s.commits.Add(1)
		return nil
	}
	if inside == nil && txid != 0 && s.visible(txid) {
		// The new meta page was written and could not be synced: whether the
		// commit outlives a power failure is not known.
		s.failed.Store(&err)
	}
	return wrap(err)
}

// visible reports whether a transaction can be read although its commit failed.
func (s *Store) visible(txid int) bool {
	seen := true
	_ = guard(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			seen = tx.ID() >= txid
			return nil
		})
	})
	return seen
}

// wrap gives errors of bbolt and of the system their typed form.
func wrap(err error) error {
	if err == nil || errdefs.From(err) != nil {
		return err
	}
	if _, ok := errors.AsType[*store.ConflictError](err); ok {
		return err
	}
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return errdefs.New(errdefs.StoreUnavailable, "the store is closed")
	}
	return errdefs.New(errdefs.StoreUnavailable, "store: %w", err)
}

// syncsPerCommit is what bbolt does: the data pages, then the meta page.
const syncsPerCommit = 2

// Stats implements store.Reader. "damaged" counts records that did not verify,
// each time that one was met.
func (s *Store) Stats() map[string]int64 {
	st := s.db.Stats()
	return map[string]int64{
		"commits":     s.commits.Load(),
		"fsyncs":      syncsPerCommit * s.commits.Load(),
		"events":      s.events.Load(),
		"bytes":       s.bytes.Load(),
		"damaged":     s.damaged.Load(),
		"page_writes": st.TxStats.GetWrite(),
		"page_bytes":  st.TxStats.GetPageAlloc(),
		"free_pages":  int64(st.FreePageN),
	}
}

// skip notes a record that did not verify.
func (s *Store) skip(what, threadID string, key []byte) {
	s.damaged.Add(1)
	s.cfg.Logger.Warn("damaged record skipped", "record", what, "thread_id", threadID, "key", fmt.Sprintf("%x", key))
}
