package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// fileMeta is a small durable map of one file per key. The fencing numbers of
// leases live in it and not in the store, so that a start of the control plane
// writes nothing into the store.
type fileMeta struct{ dir string }

// Meta implements lease.Meta.
func (m fileMeta) Meta(_ context.Context, key string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(m.dir, key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// SetMeta implements lease.Meta.
func (m fileMeta) SetMeta(_ context.Context, key string, value []byte) error {
	path := filepath.Join(m.dir, key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	_, err = f.Write(value)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
