package controlplane

import (
	"context"
	"fmt"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/memstore"
)

// openStore opens the configured store of the home.
func openStore(_ context.Context, cfg Config) (store.Store, error) {
	switch cfg.Store {
	case "memory":
		return memstore.New(memstore.Config{}), nil
	}
	return nil, fmt.Errorf("store %q is not one of bolt, memory", cfg.Store)
}
