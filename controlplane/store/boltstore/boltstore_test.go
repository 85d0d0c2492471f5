package boltstore_test

import (
	"path/filepath"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/controlplane/store/storetest"
)

func open(t testing.TB, path string) *boltstore.Store {
	t.Helper()
	s, err := boltstore.Open(t.Context(), boltstore.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, filepath.Join(t.TempDir(), "store.db")) })
}
