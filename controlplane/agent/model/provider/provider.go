// Package provider opens model clients from the configuration and keeps them, so
// that connections are shared.
package provider

import (
	"log/slog"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/config"
)

// Config configures a Set.
type Config struct {
	Logger *slog.Logger
}

// Set holds the open clients. Safe for concurrent use.
type Set struct {
	cfg Config
}

// New returns an empty Set.
func New(cfg Config) *Set { return &Set{cfg: cfg} }

// Client returns the client of a provider. getenv looks a variable up in the
// session's environment, then in the control plane's own; it may be nil.
// A missing key is one clear error naming provider, variable, file and fix.
func (s *Set) Client(p config.Provider, getenv func(string) string) (model.Client, error) {
	return nil, &model.Error{Kind: model.KindOther, Message: "not implemented"}
}
