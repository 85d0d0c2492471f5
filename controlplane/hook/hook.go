// Package hook reads the hooks of a config: commands that are tied to points of
// a turn. It decides which may run, says what they are given and reads what they
// answer; it starts nothing.
//
// A hook runs only when the person's own config holds the SHA-256 of its
// definition (hooks.state.<key>.trusted_hash), whichever file it comes from, or
// the session was started to do without (bypass_hook_trust). The hash is that of the reference client, so that one trust serves both.
//
// All functions are pure and safe for concurrent use.
package hook

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/controlplane/config"
)

// Names of the points at which hooks run, as clients know them.
const (
	PreToolUse       = "preToolUse"
	PostToolUse      = "postToolUse"
	SessionStart     = "sessionStart"
	UserPromptSubmit = "userPromptSubmit"
	Stop             = "stop"
)

const (
	// MaxHooks bounds the hooks of one config.
	MaxHooks       = 64
	maxCommand     = 32 << 10
	defaultTimeout = 600
	maxTimeout     = 24 * 3600
	// sessionPath stands for the file of hooks that a session's overrides bring.
	sessionPath = "/<session-flags>/config.toml"
)

// point is one of the points; the forms of its name stand in config files, keys
// and run ids.
type point struct {
	name, title, snake, kebab string
	// matched is true where matchers count.
	matched bool
}

// points are in the order in which hooks are listed.
var points = [...]point{
	{PreToolUse, "PreToolUse", "pre_tool_use", "pre-tool-use", true},
	{PostToolUse, "PostToolUse", "post_tool_use", "post-tool-use", true},
	{SessionStart, "SessionStart", "session_start", "session-start", true},
	{UserPromptSubmit, "UserPromptSubmit", "user_prompt_submit", "user-prompt-submit", false},
	{Stop, "Stop", "stop", "stop", false},
}

// notRun are points of the reference client at which nothing is run here.
var notRun = [...]string{
	"PermissionRequest", "PreCompact", "PostCompact", "SessionEnd", "SubagentStart", "SubagentStop", "Interrupt", "PreModelRequest", "PostModelRequest",
}

func pointOf(name string) point {
	for _, p := range points {
		if p.name == name {
			return p
		}
	}
	return point{name: name, title: name, kebab: name}
}

// Title is the name of a point as config files and hooks know it.
func Title(event string) string { return pointOf(event).title }

// Hook is one command of a config.
type Hook struct {
	// Key names the hook in the config table hooks.state.
	Key string
	// Event is the point at which it runs.
	Event         string
	Command       string
	Matcher       string
	Timeout       time.Duration
	StatusMessage string
	// SourcePath is the file that it stands in, Source what kind of file that is:
	// "user", "project" or "sessionFlags".
	SourcePath, Source string
	// Order is its place among all hooks.
	Order   int64
	Enabled bool
	// Hash is "sha256:..." of the definition, Trust "untrusted", "trusted" or
	// "modified".
	Hash, Trust string

	pattern *regexp.Regexp
	// bypass is true where the session does without trust.
	bypass bool
}

// RunID names a run of the hook, for a tool call when callID is not empty.
func (h Hook) RunID(callID string) string {
	id := fmt.Sprintf("%s:%d:%s", pointOf(h.Event).kebab, h.Order, h.SourcePath)
	if callID != "" {
		id += ":" + callID
	}
	return id
}

// Runs reports whether the hook may run.
func (h Hook) Runs() bool { return h.Enabled && (h.Trust == "trusted" || h.bypass) }

// Matches reports whether the hook is meant for one of some names of a subject.
func (h Hook) Matches(names ...string) bool {
	if h.pattern == nil || !pointOf(h.Event).matched {
		return true
	}
	return slices.ContainsFunc(names, h.pattern.MatchString)
}

// exact are matchers that are names, with alternatives, instead of patterns.
var exact = regexp.MustCompile(`^[A-Za-z0-9_|]+$`)

func compile(matcher string) (*regexp.Regexp, error) {
	switch {
	case matcher == "" || matcher == "*":
		return nil, nil
	case exact.MatchString(matcher):
		return regexp.Compile("^(?:" + matcher + ")$")
	}
	return regexp.Compile(matcher)
}

// Of returns the hooks of a config, those of the person first, and what is wrong
// with them.
func Of(c *config.Config) (hooks []Hook, warnings []string) {
	state, bypass := map[string]any{}, false
	layers := slices.Clone(c.Layers())
	slices.Reverse(layers)
	for _, l := range layers {
		table, _ := l.Tree["hooks"].(map[string]any)
		// Only who started the session may do without trust.
		if on, ok := l.Tree["bypass_hook_trust"].(bool); ok && l.File == "" {
			bypass = on
		}
		// A project does not say what is trusted.
		if s, ok := table["state"].(map[string]any); ok && l.Kind != "project" {
			for k, v := range s {
				state[k] = v
			}
		}
	}
	for _, l := range layers {
		if table, ok := l.Tree["hooks"].(map[string]any); ok {
			r := reader{layer: l, state: state}
			r.read(table)
			hooks, warnings = append(hooks, r.hooks...), append(warnings, r.warnings...)
		}
	}
	if len(hooks) > MaxHooks {
		warnings = append(warnings, fmt.Sprintf("the config has %d hooks; those after the first %d are left out", len(hooks), MaxHooks))
		hooks = hooks[:MaxHooks]
	}
	for i := range hooks {
		hooks[i].Order, hooks[i].bypass = int64(i), bypass
	}
	return hooks, warnings
}

// reader reads the hooks of one layer.
type reader struct {
	layer    config.Layer
	state    map[string]any
	hooks    []Hook
	warnings []string
}

func (r *reader) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...)+" in "+r.path())
}

func (r *reader) path() string {
	if r.layer.File == "" {
		return sessionPath
	}
	return r.layer.File
}

func (r *reader) source() string {
	switch r.layer.Kind {
	case "user", "project":
		return r.layer.Kind
	}
	return "sessionFlags"
}

func (r *reader) read(table map[string]any) {
	known := map[string]bool{"state": true}
	for _, p := range points {
		known[p.title] = true
		groups, ok := table[p.title].([]any)
		if !ok && table[p.title] != nil {
			r.warn("%s is not a list of tables", p.title)
		}
		for i, g := range groups {
			r.group(p, i, g)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		switch {
		case known[name]:
		case slices.Contains(notRun[:], name):
			r.warn("%s hooks are not run by heddle: do not rely on them", name)
		default:
			r.warn("unknown hook event %q", name)
		}
	}
}

func (r *reader) group(p point, i int, v any) {
	g, _ := v.(map[string]any)
	matcher, _ := g["matcher"].(string)
	pattern, err := compile(matcher)
	if err != nil {
		r.warn("invalid matcher %q: %v", matcher, err)
		return
	}
	handlers, ok := g["hooks"].([]any)
	if !ok {
		r.warn("%s has a group without a list \"hooks\"", p.title)
		return
	}
	for j, v := range handlers {
		t, _ := v.(map[string]any)
		kind, _ := t["type"].(string)
		cmd, _ := t["command"].(string)
		async, _ := t["async"].(bool)
		switch {
		case kind != "command":
			r.warn("skipping a hook of type %q: only command hooks are run", kind)
			continue
		case strings.TrimSpace(cmd) == "" || len(cmd) > maxCommand:
			r.warn("skipping a %s hook: its command is empty or longer than %d bytes", p.title, maxCommand)
			continue
		case async:
			r.warn("skipping an async %s hook: hooks that nobody waits for are not run", p.title)
			continue
		}
		h := Hook{
			Key: fmt.Sprintf("%s:%s:%d:%d", r.path(), p.snake, i, j), Event: p.name, Command: cmd, Matcher: matcher, pattern: pattern,
			SourcePath: r.path(), Source: r.source(), Enabled: true, Trust: "untrusted",
		}
		h.StatusMessage, _ = t["statusMessage"].(string)
		secs, ok := t["timeout"].(int64)
		if !ok {
			secs = defaultTimeout
		}
		secs = min(max(secs, 1), maxTimeout)
		h.Timeout = time.Duration(secs) * time.Second
		if h.Hash, err = hash(p, h, secs); err != nil {
			r.warn("skipping a %s hook: %v", p.title, err)
			continue
		}
		r.trust(&h)
		r.hooks = append(r.hooks, h)
	}
}

// trust looks the hook up in what the person decided.
func (r *reader) trust(h *Hook) {
	s, _ := r.state[h.Key].(map[string]any)
	if on, ok := s["enabled"].(bool); ok {
		h.Enabled = on
	}
	switch trusted, _ := s["trusted_hash"].(string); trusted {
	case "":
	case h.Hash:
		h.Trust = "trusted"
	default:
		h.Trust = "modified"
	}
}

// hash is the SHA-256 of the definition as sorted JSON.
func hash(p point, h Hook, secs int64) (string, error) {
	handler := map[string]any{"type": "command", "command": h.Command, "async": false, "timeout": secs}
	if h.StatusMessage != "" {
		handler["statusMessage"] = h.StatusMessage
	}
	group := map[string]any{"event_name": p.snake, "hooks": []any{handler}}
	if h.Matcher != "" {
		group["matcher"] = h.Matcher
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(group); err != nil {
		return "", fmt.Errorf("encode the hook: %w", err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(bytes.TrimSuffix(b.Bytes(), []byte("\n")))), nil
}
