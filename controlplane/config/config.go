// Package config reads heddle's TOML configuration.
//
// A Config is the effective configuration of one thread or session: layers laid
// over each other (built-in, user file, profile, project, session overrides,
// thread), each value with its origin. A Config never changes after Load; it is
// safe for concurrent use.
package config

import (
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Home is where configuration and state live.
type Home struct {
	// Dir is heddle's own folder.
	Dir string
	// LowerConfig is a config.toml that lies under ours and is never written;
	// empty for none.
	LowerConfig string
}

// Options say which layers to read.
type Options struct {
	Home Home
	// Env is the environment of the session (OPENAI_BASE_URL).
	Env map[string]string
	// Profile selects profiles.<name>; empty means the config's own choice.
	Profile string
	// Overrides are dotted keys with values (-c key=value), highest but for Thread.
	Overrides map[string]any
	// Thread are config keys given with a thread, over everything.
	Thread map[string]any
	// Project is the config of a trusted project; nil for none.
	Project *Project
	// Cwd is used for trust and project lookup; may be empty.
	Cwd              string
	IgnoreUserConfig bool
	// Strict turns unknown keys into an error.
	Strict bool
}

// Project is the config file of a project, read by an executor.
type Project struct {
	// Dir is the folder that holds the file (.heddle or .codex).
	Dir  string
	Data []byte
}

// Layer is one source of values.
type Layer struct {
	// Kind is "user", "project", "session" or "thread".
	Kind string
	// File is empty for session and thread.
	File string
	// Version is "sha256:..." of the content.
	Version string
	Tree    map[string]any
}

// Config is an effective configuration.
type Config struct {
	tree     map[string]any
	layers   []Layer
	origins  map[string]int
	warnings []*heddlev1.ConfigWarning
	unread   *heddlev1.ConfigWarning
	env      map[string]string
	cwd      string
}

// Provider is one model provider.
type Provider struct {
	ID      string
	Name    string
	BaseURL string
	// EnvKey names the variable with the API key; empty means no key is needed.
	EnvKey string
	// EnvKeyInstructions is shown when the variable is not set.
	EnvKeyInstructions string
	// WireAPI is "responses", "chat", "anthropic" or "scripted".
	WireAPI string
	// Script is the absolute path of a script; empty means the built-in demo.
	Script string
	// BearerToken is a key given in the file itself (experimental_bearer_token).
	BearerToken       string
	HTTPHeaders       map[string]string
	EnvHTTPHeaders    map[string]string
	QueryParams       map[string]string
	RequestMaxRetries int
	StreamMaxRetries  int
	StreamIdleTimeout time.Duration
	// TakesLogin says that the key that a person logged in with is used before
	// that of EnvKey (requires_openai_auth).
	TakesLogin bool
	// Source is the file that defines it; empty for built-in ones.
	Source string
}

// Tree is the effective configuration as nested maps; it must not be changed.
func (c *Config) Tree() map[string]any { return c.tree }

// Layers returns the layers, highest first.
func (c *Config) Layers() []Layer { return c.layers }

// Origins maps dotted keys to indexes in Layers.
func (c *Config) Origins() map[string]int { return c.origins }

// Unread fails when a file of the user could not be read or parsed, so that the
// defaults stand in for all that it says: its provider, its limits, its rules.
func (c *Config) Unread() error {
	if c.unread == nil {
		return nil
	}
	w := c.unread
	return &Error{&heddlev1.ConfigWarning{Summary: w.GetDetails(), Path: w.GetPath(), Line: w.GetLine(), Column: w.GetColumn()}}
}

// Warnings returns what was wrong but did not stop the load.
func (c *Config) Warnings() []*heddlev1.ConfigWarning { return c.warnings }
