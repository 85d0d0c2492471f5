package config

import (
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// ResolveHome finds the home from HEDDLE_HOME, CODEX_HOME and HOME.
func ResolveHome(env map[string]string) (Home, error) { return Home{}, nil }

// Load reads and lays the layers. A file that does not parse gives defaults and
// a warning; a wrong value in overrides is an error.
func Load(o Options) (*Config, error) { return &Config{}, nil }

// ParseOverride reads one key=value of the command line.
func ParseOverride(s string) (key string, value any, err error) { return "", nil, nil }

// Layers returns the layers, highest first.
func (c *Config) Layers() []Layer { return c.layers }

// Origins maps dotted keys to indexes in Layers.
func (c *Config) Origins() map[string]int { return c.origins }

// Warnings returns what was wrong but did not stop the load.
func (c *Config) Warnings() []*heddlev1.ConfigWarning { return c.warnings }

// Full is Tree with every key of the client protocol's config, nil when unset.
func (c *Config) Full() map[string]any { return nil }

// Value returns the value of a dotted key, nil when unset.
func (c *Config) Value(key string) any { return nil }

// Model is the configured model; empty means the catalogue's default.
func (c *Config) Model() string { return "" }

// ModelProvider is the id of the configured provider.
func (c *Config) ModelProvider() string { return "openai" }

// Provider returns a provider by id; an unknown id is an error naming the file and fix.
func (c *Config) Provider(id string) (Provider, error) { return Provider{}, nil }

// ProviderEnvKeys are the variables that hold keys of any provider.
func (c *Config) ProviderEnvKeys() []string { return nil }

// ReasoningEffort is empty when unset.
func (c *Config) ReasoningEffort() string { return "" }

// ReasoningSummary is empty when unset.
func (c *Config) ReasoningSummary() string { return "" }

// Verbosity is empty when unset.
func (c *Config) Verbosity() string { return "" }

// ServiceTier is empty when unset.
func (c *Config) ServiceTier() string { return "" }

// DeveloperInstructions is empty when unset.
func (c *Config) DeveloperInstructions() string { return "" }

// ApprovalPolicy is "untrusted", "on-request", "never" or "granular" with its flags.
func (c *Config) ApprovalPolicy() (policy string, granular map[string]any) { return "on-request", nil }

// ApprovalsReviewer is "user" unless set.
func (c *Config) ApprovalsReviewer() string { return "user" }

// SandboxPolicy is the configured policy (sandbox_mode, sandbox_workspace_write).
func (c *Config) SandboxPolicy() *heddlev1.SandboxPolicy { return nil }

// SandboxFor is SandboxPolicy for another mode ("read-only", "workspace-write",
// "danger-full-access").
func (c *Config) SandboxFor(mode string) (*heddlev1.SandboxPolicy, error) { return nil, nil }

// ToolEnabled reports tools.<name>.enabled (or tools.<name> = true).
func (c *Config) ToolEnabled(name string) bool { return false }

// Feature reports features.<name>; set is false when it is not configured.
func (c *Config) Feature(name string) (on, set bool) { return false, false }

// ModelContextWindow is 0 when unset.
func (c *Config) ModelContextWindow() int64 { return 0 }

// AutoCompactLimit is 0 when unset.
func (c *Config) AutoCompactLimit() int64 { return 0 }

// ThreadUnloadDelay is how long a thread without subscribers stays loaded.
func (c *Config) ThreadUnloadDelay() time.Duration { return 0 }

// TrustLevel is "trusted", "untrusted" or empty for the folder or a parent of it.
func (c *Config) TrustLevel(dir string) string { return "" }

// EnvPolicy is shell_environment_policy.
func (c *Config) EnvPolicy() EnvPolicy { return EnvPolicy{} }

// EnvPolicy says which variables reach commands.
type EnvPolicy struct {
	// Inherit is "all", "core" or "none".
	Inherit               string
	IgnoreDefaultExcludes bool
	Exclude               []string
	Set                   map[string]string
	IncludeOnly           []string
	// ProviderKeys are dropped with the default excludes.
	ProviderKeys []string
}

// FilterEnv applies a policy to an environment. The result is sorted "K=V".
func FilterEnv(p EnvPolicy, env map[string]string) []string { return nil }
