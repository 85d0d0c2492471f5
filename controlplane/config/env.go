package config

import (
	"maps"
	"slices"
	"strings"
)

// EnvPolicy says which variables reach commands.
type EnvPolicy struct {
	// Inherit is "all", "core" or "none"; empty means all.
	Inherit               string
	IgnoreDefaultExcludes bool
	Exclude               []string
	Set                   map[string]string
	IncludeOnly           []string
	// ProviderKeys are dropped with the default excludes.
	ProviderKeys []string
}

// defaultExcludes are patterns of names that hold secrets, and our own variables.
var defaultExcludes = []string{"*KEY*", "*SECRET*", "*TOKEN*", "*PASS*", "*CRED*", "HEDDLE_*"}

// coreNames are the variables of inherit = "core".
var coreNames = []string{"HOME", "LOGNAME", "PATH", "SHELL", "USER", "USERNAME", "TMPDIR", "TEMP", "TMP", "LANG", "LC_ALL", "LC_CTYPE"}

// EnvPolicy is shell_environment_policy. The default excludes are on unless
// ignore_default_excludes is true.
func (c *Config) EnvPolicy() EnvPolicy {
	const k = "shell_environment_policy"
	return EnvPolicy{
		Inherit:               c.str(k, "inherit"),
		IgnoreDefaultExcludes: c.flag(k, "ignore_default_excludes"),
		Exclude:               texts(lookup(c.tree, k, "exclude")),
		Set:                   textsByKey(lookup(c.tree, k, "set")),
		IncludeOnly:           texts(lookup(c.tree, k, "include_only")),
		ProviderKeys:          c.ProviderEnvKeys(),
	}
}

// FilterEnv applies a policy to an environment: inherit, default excludes, exclude,
// set, include_only, in this order. The result is sorted "K=V". Variables that
// cannot be passed on (an empty name, "=" in it, a zero byte) are dropped.
func FilterEnv(p EnvPolicy, env map[string]string) []string {
	out := map[string]string{}
	for k, v := range env {
		switch {
		case p.Inherit == "none", p.Inherit == "core" && !matchesAny(coreNames, k):
			continue
		case !p.IgnoreDefaultExcludes && (matchesAny(defaultExcludes, k) || matchesAny(p.ProviderKeys, k)):
			continue
		case matchesAny(p.Exclude, k):
			continue
		}
		out[k] = v
	}
	maps.Copy(out, p.Set)
	list := make([]string, 0, len(out))
	for k, v := range out {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			continue
		}
		if len(p.IncludeOnly) > 0 && !matchesAny(p.IncludeOnly, k) {
			continue
		}
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}

func matchesAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if wildcard(strings.ToUpper(p), strings.ToUpper(name)) {
			return true
		}
	}
	return false
}

// wildcard matches * (any run) and ? (one character).
func wildcard(pattern, s string) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(s) {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			star, mark = i, j
			i++
		case i < len(pattern) && (pattern[i] == '?' || pattern[i] == s[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
}
