package main

import (
	"fmt"
	"path/filepath"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/execmode"
	"github.com/heddle-dev/heddle/controlplane/config"
)

// saveTrust writes into the home's config that the project of a folder is
// trusted. One that a person has marked as untrusted stays so: it is an error.
func saveTrust(cwd string, env map[string]string) error {
	home, err := config.ResolveHome(env)
	if err != nil {
		return err
	}
	// What the user's files say counts, also where --ignore-user-config leaves
	// them out of this run.
	cfg, err := config.Load(config.Options{Home: home, Env: env})
	if err != nil {
		return err
	}
	root := execmode.Repository(cwd)
	if root == "" {
		root = cwd
	}
	for _, dir := range []string{cwd, root} {
		if cfg.TrustLevel(dir) == "untrusted" {
			return fmt.Errorf("--trust: %s is marked as untrusted in the user config; change it there first", dir)
		}
	}
	if cfg.TrustLevel(cwd) == "trusted" {
		return nil
	}
	// The folder's name is never part of a dotted key: it may hold any character.
	project := map[string]any{filepath.Clean(root): map[string]any{"trust_level": "trusted"}}
	if _, err := config.NewWriter(home).Write("", "", []config.Edit{{Key: "projects", Value: project, Upsert: true}}); err != nil {
		return fmt.Errorf("--trust: %w", err)
	}
	return nil
}
