package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/local"
	"github.com/heddle-dev/heddle/controlplane"
	"github.com/heddle-dev/heddle/controlplane/config"
)

// backendConfig is what commands decide about the control plane they run.
type backendConfig struct {
	home       config.Home
	logger     *slog.Logger
	fenceAfter time.Duration
	grace      time.Duration
	joinToken  string
}

// opener returns the function that makes the control plane once its home is
// locked.
func opener(c backendConfig) func(context.Context) (local.Backend, error) {
	return func(ctx context.Context) (local.Backend, error) {
		return controlplane.New(ctx, controlplane.Config{
			Home: c.home, Version: buildVersion(), Logger: c.logger, Store: "bolt",
			Grace: c.grace, FenceAfter: c.fenceAfter, Env: environ(), JoinToken: c.joinToken,
		})
	}
}

// executorArgs starts an executor that belongs to this machine's control plane.
// It serves until its standard input ends and its leases are over.
func executorArgs(home config.Home, more ...string) func(address string) []string {
	return func(address string) []string {
		args := []string{"executor", "--connect", address, "--state-dir", filepath.Join(home.Dir, "executor"), "--parent-stdin"}
		for _, path := range config.Private(home.Dir) {
			args = append(args, "--hide", path)
		}
		for _, dir := range home.Folders() {
			args = append(args, "--keep", dir)
		}
		return append(args, more...)
	}
}
