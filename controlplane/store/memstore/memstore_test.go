package memstore_test

import (
	"testing"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/memstore"
	"github.com/heddle-dev/heddle/controlplane/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memstore.New(memstore.Config{}) })
}
