package config

import (
	"errors"
	"fmt"
	"path/filepath"
)

// ConfigFile is the name of the config file in a home.
const ConfigFile = "config.toml"

// SecretsDir is the folder of a home that commands must not be able to read.
const SecretsDir = "secrets"

// Private are the paths in a home that no contained command may see: what other
// threads said, did and printed, keys, and how the parts of heddle find each
// other. Some are patterns. What a user keeps there for commands, such as skills
// and programs of hooks, is not among them.
func Private(home string) []string {
	names := []string{AccountDir, SecretsDir, "state.db*", "streams", "streams-ephemeral", "artifacts", "executor", "log", "run"}
	for i, name := range names {
		names[i] = filepath.Join(home, name)
	}
	return names
}

// ResolveHome finds the home: HEDDLE_HOME, else with only CODEX_HOME set its
// subfolder "heddle" above its config.toml, else ~/.heddle. The folder need not
// exist.
func ResolveHome(env map[string]string) (Home, error) {
	if dir := env["HEDDLE_HOME"]; dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Home{}, fmt.Errorf("resolve HEDDLE_HOME %q: %w", dir, err)
		}
		return Home{Dir: abs}, nil
	}
	if dir := env["CODEX_HOME"]; dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Home{}, fmt.Errorf("resolve CODEX_HOME %q: %w", dir, err)
		}
		return Home{Dir: filepath.Join(abs, "heddle"), LowerConfig: filepath.Join(abs, ConfigFile)}, nil
	}
	if dir := env["HOME"]; filepath.IsAbs(dir) {
		return Home{Dir: filepath.Join(dir, ".heddle")}, nil
	}
	return Home{}, errors.New("find the home folder: neither HEDDLE_HOME nor HOME is set; set HEDDLE_HOME to a folder that you can write")
}

// Folders are where configuration comes from that says what runs outside of a
// sandbox: no contained command may change them.
func (h Home) Folders() []string {
	if h.LowerConfig == "" {
		return []string{h.Dir}
	}
	return []string{h.Dir, filepath.Dir(h.LowerConfig)}
}

// Path is the config file of the home.
func (h Home) Path() string { return filepath.Join(h.Dir, ConfigFile) }
