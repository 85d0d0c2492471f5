package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

// Backup writes a copy of the file as it is at one commit, while the store goes
// on. The copy is a store of its own. It is made on the store's own disk first,
// so that a slow writer holds no transaction open; that needs as much free
// space as the file has.
func (s *Store) Backup(ctx context.Context, w io.Writer) (int64, error) {
	temp, err := os.CreateTemp(filepath.Dir(s.cfg.Path), ".backup-*")
	if err != nil {
		return 0, fmt.Errorf("back up store: %w", err)
	}
	defer temp.Close()
	// It has no name from here on, so that nothing of it outlives the process.
	if err := os.Remove(temp.Name()); err != nil {
		return 0, fmt.Errorf("back up store: %w", err)
	}
	if err := s.view(func(tx *bolt.Tx) error {
		_, err := tx.WriteTo(temp)
		return err
	}); err != nil {
		return 0, err
	}
	if _, err := temp.Seek(0, io.SeekStart); err != nil {
		return 0, fmt.Errorf("back up store: %w", err)
	}
	n, err := io.Copy(w, contextReader{ctx, temp})
	if err != nil {
		return n, fmt.Errorf("back up store: %w", err)
	}
	return n, nil
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// Copy writes a copy of a store that no process has open for writing. It fails
// with errdefs.Busy when one has.
func Copy(ctx context.Context, path string, w io.Writer) (int64, error) {
	db, err := openRead(path)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var n int64
	err = guard(func() error {
		return db.View(func(tx *bolt.Tx) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err = tx.WriteTo(w)
			return err
		})
	})
	if err != nil {
		return n, fmt.Errorf("copy store %s: %w", path, err)
	}
	return n, nil
}

// openRead opens a file that must exist, without ever writing to it.
func openRead(path string) (*bolt.DB, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	var db *bolt.DB
	err := guard(func() (err error) {
		db, err = bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
		return err
	})
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, errdefs.New(errdefs.Busy, "a control plane has %s open", path)
	}
	return nil, openError(path, err)
}
