package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// notForProjects are keys that a project must not decide: they say where the
// conversation is sent, which projects are trusted, what counts as one and which
// file of the control plane's machine is read.
var notForProjects = []string{"model_provider", "model_providers", "openai_base_url", "profile", "profiles", "projects", "bypass_hook_trust", "ignore_rules", instructionsFileKey, "project_root_markers", planeTable}

// Load reads and lays the layers over each other. A file that does not parse
// gives defaults and a warning, a wrong value in a file a warning and the default
// of its key; with Strict both are errors. A wrong value in Overrides or Thread is
// always an error (*Error).
func Load(o Options) (*Config, error) {
	c := &Config{tree: map[string]any{}, origins: map[string]int{}, env: o.Env, cwd: o.Cwd}
	var sources []*source // lowest first
	if !o.IgnoreUserConfig {
		for _, path := range []string{o.Home.LowerConfig, o.Home.Path()} {
			if path == "" || (path == ConfigFile && o.Home.Dir == "") {
				continue
			}
			s, err := readFile("user", path, o.Strict)
			if err != nil {
				return nil, err
			}
			if s != nil {
				if s.unread != nil {
					c.unread = s.unread
				}
				sources = append(sources, s)
			}
		}
	}
	over, err := overrideSource("session", o.Overrides, o.Strict)
	if err != nil {
		return nil, err
	}
	thread, err := overrideSource("thread", o.Thread, false)
	if err != nil {
		return nil, err
	}

	// The trust of a project and the profile are decided by the layers of the user
	// alone.
	user := map[string]any{}
	for _, s := range append(slices.Clone(sources), over) {
		if s != nil {
			merge(user, s.layer.Tree)
		}
	}
	if thread != nil {
		if name, _ := thread.layer.Tree["profile"].(string); name != "" {
			o.Profile = name
		}
	}
	if err := c.applyProfile(o, user, sources, over); err != nil {
		return nil, err
	}
	if o.Project != nil && trustLevel(user, o.Cwd) == "trusted" {
		p, err := projectSource(o)
		if err != nil {
			return nil, err
		}
		sources = append(sources, p)
	}
	for _, s := range []*source{over, thread} {
		if s != nil {
			sources = append(sources, s)
		}
	}
	c.lay(sources)
	return c, nil
}

// applyProfile merges profiles.<name> into the layer that defines it.
func (c *Config) applyProfile(o Options, user map[string]any, sources []*source, over *source) error {
	name := o.Profile
	if name == "" {
		name, _ = user["profile"].(string)
	}
	if name == "" {
		return nil
	}
	profile, ok := lookup(user, "profiles", name).(map[string]any)
	if !ok {
		return &Error{&heddlev1.ConfigWarning{
			Summary: fmt.Sprintf("Unknown configuration profile %q", name),
			Details: fmt.Sprintf("add a [profiles.%s] table or choose another profile", joinKey([]string{name})),
			Path:    o.Home.Path(),
		}}
	}
	for i := len(sources) - 1; i >= 0; i-- {
		if lookup(sources[i].layer.Tree, "profiles", name) != nil || i == 0 {
			merge(sources[i].layer.Tree, profile)
			return nil
		}
	}
	if over != nil {
		tree := map[string]any{}
		merge(tree, profile)
		merge(tree, over.layer.Tree)
		over.layer.Tree = tree
	}
	return nil
}

func projectSource(o Options) (*source, error) {
	path := filepath.Join(o.Project.Dir, ConfigFile)
	s, err := parseFile("project", path, o.Project.Data, o.Strict)
	if err != nil {
		return nil, err
	}
	for _, k := range notForProjects {
		if _, ok := s.layer.Tree[k]; ok {
			delete(s.layer.Tree, k)
			p := problem{path: []string{k}, what: "a project's config cannot set this", fix: "move it to your own config file"}
			s.warnings = append(s.warnings, p.warning(path, s.data))
		}
	}
	return s, nil
}

// overrideSource makes a layer of dotted keys; nil when there are none.
func overrideSource(kind string, flat map[string]any, strict bool) (*source, error) {
	if len(flat) == 0 {
		return nil, nil
	}
	tree, err := expand(flat)
	if err != nil {
		return nil, &Error{&heddlev1.ConfigWarning{Summary: "Invalid configuration override", Details: err.Error()}}
	}
	s := &source{layer: Layer{Kind: kind, Tree: tree}}
	for _, p := range check(schema(), tree, nil) {
		w := p.warning("", nil)
		if !p.unknown || strict {
			return nil, &Error{w}
		}
		s.warnings = append(s.warnings, w)
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("encode the %s configuration: %w", kind, err)
	}
	sum := sha256.Sum256(raw)
	s.layer.Version = "sha256:" + hex.EncodeToString(sum[:])
	return s, nil
}

// UnknownOverrides says of each key of a thread's overrides that means nothing.
// Overrides that are wrong altogether are for Load to refuse.
func UnknownOverrides(flat map[string]any) []string {
	s, err := overrideSource("thread", flat, false)
	if err != nil || s == nil {
		return nil
	}
	out := make([]string, 0, len(s.warnings))
	for _, w := range s.warnings {
		out = append(out, w.GetSummary()+": "+w.GetDetails())
	}
	return out
}

// lay merges the sources and records where each value is from.
func (c *Config) lay(sources []*source) {
	for i, s := range sources {
		merge(c.tree, s.layer.Tree)
		index := len(sources) - 1 - i
		leaves(s.layer.Tree, nil, func(path []string, _ any) { c.origins[joinKey(path)] = index })
		c.layers = append([]Layer{s.layer}, c.layers...)
		c.warnings = append(c.warnings, s.warnings...)
	}
	// A value that a higher layer replaced by one of another shape has no origin.
	for key := range c.origins {
		if path, err := splitKey(key); err == nil && lookup(c.tree, path...) == nil {
			delete(c.origins, key)
		}
	}
}

// ParseOverride reads one key=value of the command line. The value is TOML, or a
// plain text when it is not.
func ParseOverride(s string) (key string, value any, err error) {
	key, raw, found := cutAssign(s)
	key = strings.TrimSpace(key)
	if !found {
		return "", nil, fmt.Errorf("config override %q: no %q; write key=value", s, "=")
	}
	if _, err := splitKey(key); err != nil {
		return "", nil, fmt.Errorf("config override %q: %w", s, err)
	}
	raw = strings.TrimSpace(raw)
	var doc map[string]any
	if err := toml.Unmarshal([]byte("v = "+raw), &doc); err == nil && len(doc) == 1 {
		return key, doc["v"], nil
	}
	return key, strings.Trim(raw, `"'`), nil
}

// cutAssign cuts at the first "=" that is not within a quoted part of the key.
func cutAssign(s string) (key, value string, found bool) {
	var quote byte
	for i := 0; i < len(s); i++ {
		switch {
		case quote != 0:
			if s[i] == quote {
				quote = 0
			}
		case s[i] == '"' || s[i] == '\'':
			quote = s[i]
		case s[i] == '=':
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// trustLevel looks a folder and its parents up in projects.
func trustLevel(tree map[string]any, dir string) string {
	projects, _ := tree["projects"].(map[string]any)
	if dir == "" || len(projects) == 0 {
		return ""
	}
	for dir = filepath.Clean(dir); ; dir = filepath.Dir(dir) {
		if p, ok := projects[dir].(map[string]any); ok {
			if level, ok := p["trust_level"].(string); ok {
				return level
			}
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}
