package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// clientKeys are the keys that clients of the v2 protocol find in every config
// answer, null when unset.
var clientKeys = []string{
	"analytics", "approval_policy", "approvals_reviewer", "apps", "browser_use", "client_search_provider", "compact_prompt",
	"computer_use", "desktop", "developer_instructions", "forced_chatgpt_workspace_id", "forced_login_method", "instructions", "model",
	"model_auto_compact_token_limit", "model_auto_compact_token_limit_scope", "model_context_window", "model_provider",
	"model_reasoning_effort", "model_reasoning_summary", "model_verbosity", "review_model", "sandbox_mode", "sandbox_workspace_write",
	"service_tier", "tools", "web_search",
}

const (
	defaultUnloadDelay = 30 * time.Minute
	defaultProvider    = "openai"
)

// Full is Tree with every key of the client protocol's config, nil when unset.
func (c *Config) Full() map[string]any {
	out := make(map[string]any, len(c.tree)+len(clientKeys))
	for _, k := range clientKeys {
		out[k] = nil
	}
	maps.Copy(out, c.tree)
	return out
}

// Value returns the value of a dotted key, nil when unset.
func (c *Config) Value(key string) any {
	path, err := splitKey(key)
	if err != nil {
		return nil
	}
	return lookup(c.tree, path...)
}

func (c *Config) str(path ...string) string {
	s, _ := lookup(c.tree, path...).(string)
	return s
}

func (c *Config) num(path ...string) int64 {
	n, _ := lookup(c.tree, path...).(int64)
	return n
}

func (c *Config) flag(path ...string) bool {
	b, _ := lookup(c.tree, path...).(bool)
	return b
}

func texts(v any) []string {
	l, _ := v.([]any)
	out := make([]string, 0, len(l))
	for _, e := range l {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func textsByKey(v any) map[string]string {
	m, _ := v.(map[string]any)
	out := make(map[string]string, len(m))
	for k, e := range m {
		if s, ok := e.(string); ok {
			out[k] = s
		}
	}
	return out
}

// Model is the configured model; empty means the catalogue's default.
func (c *Config) Model() string { return c.str("model") }

// ReviewModel is the model of reviewers; empty means the thread's.
func (c *Config) ReviewModel() string { return c.str("review_model") }

// OnDisconnect is "interrupt" or "continue", empty when unset: what becomes of
// turns whose client is gone.
func (c *Config) OnDisconnect() string { return c.str("on_disconnect") }

// Personality is "friendly", "pragmatic" or "none", empty when unset.
func (c *Config) Personality() string { return c.str("personality") }

// OSSProvider is the id of the provider that --oss means; empty when unset.
func (c *Config) OSSProvider() string { return c.str("oss_provider") }

// ModelProvider is the id of the configured provider.
func (c *Config) ModelProvider() string {
	if id := c.str("model_provider"); id != "" {
		return id
	}
	return defaultProvider
}

// ReasoningEffort is empty when unset.
func (c *Config) ReasoningEffort() string { return c.str("model_reasoning_effort") }

// ReasoningSummary is empty when unset.
func (c *Config) ReasoningSummary() string { return c.str("model_reasoning_summary") }

// Verbosity is empty when unset.
func (c *Config) Verbosity() string { return c.str("model_verbosity") }

// ServiceTier is empty when unset. The tier that people call fast is priority for
// the model's service.
func (c *Config) ServiceTier() string {
	if tier := c.str("service_tier"); tier != "fast" {
		return tier
	}
	return "priority"
}

// DeveloperInstructions is empty when unset.
func (c *Config) DeveloperInstructions() string { return c.str("developer_instructions") }

// CompactPrompt asks the model for a summary of the conversation; empty when
// unset.
func (c *Config) CompactPrompt() string { return c.str("compact_prompt") }

// ApprovalPolicy is "untrusted", "on-request", "never" or "granular" with its
// flags; unset it is "untrusted" in a project of that trust, else "on-request".
func (c *Config) ApprovalPolicy() (policy string, granular map[string]any) {
	if m, ok := lookup(c.tree, "approval_policy", "granular").(map[string]any); ok {
		return "granular", maps.Clone(m)
	}
	if p := c.str("approval_policy"); p != "" {
		return p, nil
	}
	if c.TrustLevel(c.cwd) == "untrusted" {
		return "untrusted", nil
	}
	return "on-request", nil
}

// ApprovalsReviewer is "user" unless set.
func (c *Config) ApprovalsReviewer() string {
	if r := c.str("approvals_reviewer"); r != "" {
		return r
	}
	return "user"
}

// SandboxPolicy is the configured policy (sandbox_mode, sandbox_workspace_write,
// network). Unset it is workspace-write in a project whose trust was decided, one
// way or the other: an untrusted one asks before each command. Else, and when
// unusable, it is read-only without network.
func (c *Config) SandboxPolicy() *heddlev1.SandboxPolicy {
	mode := c.str("sandbox_mode")
	if mode == "" && c.TrustLevel(c.cwd) != "" {
		mode = "workspace-write"
	}
	p, err := c.SandboxFor(mode)
	if err != nil {
		return &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, Network: heddlev1.NetworkMode_NETWORK_MODE_OFF}
	}
	return p
}

// SandboxFor is SandboxPolicy for another mode ("read-only", "workspace-write",
// "danger-full-access"); empty means read-only.
func (c *Config) SandboxFor(mode string) (*heddlev1.SandboxPolicy, error) {
	p := &heddlev1.SandboxPolicy{Network: heddlev1.NetworkMode_NETWORK_MODE_OFF}
	switch mode {
	case "", "read-only":
		p.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
	case "danger-full-access":
		p.Level, p.Network = heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS, heddlev1.NetworkMode_NETWORK_MODE_FULL
	case "workspace-write":
		const ww = "sandbox_workspace_write"
		p.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE
		if c.flag(ww, "network_access") {
			p.Network = heddlev1.NetworkMode_NETWORK_MODE_FULL
		}
		p.HostTmp = c.str(ww, "tmp") == "host"
		p.ExcludeTmpdirEnvVar = c.flag(ww, "exclude_tmpdir_env_var")
		p.ExcludeSlashTmp = c.flag(ww, "exclude_slash_tmp")
		for _, r := range texts(lookup(c.tree, ww, "writable_roots")) {
			abs, err := c.absolute(r)
			if err != nil {
				return nil, err
			}
			p.WritableRoots = append(p.WritableRoots, abs)
		}
	default:
		return nil, fmt.Errorf("sandbox mode %q is not one of read-only, workspace-write, danger-full-access", mode)
	}
	p.Git = c.GitMode(p.Level)
	c.defaultNetwork(p)
	return p, nil
}

// GitMode is sandbox_workspace_write.git; it has no meaning at other levels.
func (c *Config) GitMode(level heddlev1.SandboxLevel) heddlev1.GitMode {
	if level == heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE && c.str("sandbox_workspace_write", "git") == "commit" {
		return heddlev1.GitMode_GIT_MODE_COMMIT
	}
	return heddlev1.GitMode_GIT_MODE_UNSPECIFIED
}

func (c *Config) absolute(path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && c.env["HOME"] != "" {
		path = filepath.Join(c.env["HOME"], rest)
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("sandbox_workspace_write.writable_roots: %q is not an absolute path; write it in full", path)
	}
	return filepath.Clean(path), nil
}

// IgnoresRules reports whether the session was started to do without the rules
// for commands (ignore_rules). In a file the key does not count.
func (c *Config) IgnoresRules() bool {
	for _, l := range c.layers { // highest first
		if on, ok := l.Tree["ignore_rules"].(bool); ok && l.File == "" {
			return on
		}
	}
	return false
}

// ToolEnabled reports tools.<name>.enabled (or tools.<name> = true).
func (c *Config) ToolEnabled(name string) bool {
	return c.flag("tools", name) || c.flag("tools", name, "enabled")
}

// WebSearch is what the search of the model's service may see: "cached", "live" or
// "indexed", empty where there is none. web_search goes before tools.web_search,
// which is cached.
func (c *Config) WebSearch() string {
	switch mode := c.str("web_search"); {
	case mode == "disabled":
		return ""
	case mode != "":
		return mode
	case c.ToolEnabled("web_search"):
		return "cached"
	}
	return ""
}

// Feature reports features.<name>; set is false when it is not configured.
func (c *Config) Feature(name string) (on, set bool) {
	on, set = lookup(c.tree, "features", name).(bool)
	return on, set
}

// ModelContextWindow is 0 when unset.
func (c *Config) ModelContextWindow() int64 { return c.num("model_context_window") }

// AutoCompactLimit is 0 when unset.
func (c *Config) AutoCompactLimit() int64 { return c.num("model_auto_compact_token_limit") }

// ThreadUnloadDelay is how long a thread without subscribers stays loaded.
func (c *Config) ThreadUnloadDelay() time.Duration {
	if n, ok := lookup(c.tree, "thread_unload_delay_secs").(int64); ok {
		return time.Duration(min(n, 1<<30)) * time.Second
	}
	return defaultUnloadDelay
}

// TrustLevel is "trusted", "untrusted" or empty, for the folder or the nearest
// parent of it that has one.
func (c *Config) TrustLevel(dir string) string { return trustLevel(c.tree, dir) }
