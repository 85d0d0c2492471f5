package controlplane

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/controlplane/store/faultstore"
	"github.com/heddle-dev/heddle/controlplane/store/memstore"
	"github.com/heddle-dev/heddle/proto/failpoint"
)

// storeFile is the database within the home.
const storeFile = "state.db"

// openStore opens the configured store of the home.
func openStore(ctx context.Context, cfg Config) (store.Store, error) {
	switch cfg.Store {
	case "memory":
		return memstore.New(memstore.Config{}), nil
	case "", "bolt":
		if err := os.MkdirAll(cfg.Home.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("make home: %w", err)
		}
		st, err := boltstore.Open(ctx, boltstore.Config{Path: filepath.Join(cfg.Home.Dir, storeFile), Logger: cfg.Logger})
		if err != nil || !failpoint.Enabled {
			return st, err
		}
		return faultstore.FromSetting(st, failpoint.Setting(failpoint.StoreEnv))
	}
	return nil, fmt.Errorf("store %q is not one of bolt, memory", cfg.Store)
}

// StoreFile is the path of a home's database.
func StoreFile(home string) string { return filepath.Join(home, storeFile) }

// backupOf returns how to copy a store, nil for one that is not on a disk.
func backupOf(s store.Store) func(context.Context, io.Writer) (int64, error) {
	if b, ok := s.(interface {
		Backup(context.Context, io.Writer) (int64, error)
	}); ok {
		return b.Backup
	}
	return nil
}
