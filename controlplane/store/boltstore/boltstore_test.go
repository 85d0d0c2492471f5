package boltstore_test

import (
	"path/filepath"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/controlplane/store/storetest"
)

func open(tb testing.TB, path string) *boltstore.Store {
	tb.Helper()
	s, err := boltstore.Open(tb.Context(), boltstore.WithoutSync(boltstore.Config{Path: path}))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return open(t, filepath.Join(t.TempDir(), "store.db"))
	})
}
