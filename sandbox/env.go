package sandbox

import (
	"slices"
	"strings"
)

// secretMarks are looked for in upper-cased names. They follow the default excludes of the shell environment
// policy; HEDDLE_ variables are ours and never a command's business.
var secretMarks = [...]string{"KEY", "SECRET", "TOKEN", "PASS", "CRED"}

// IsSecretName reports whether a variable of this name is withheld from commands by default.
func IsSecretName(name string) bool {
	up := strings.ToUpper(name)
	if strings.HasPrefix(up, "HEDDLE_") {
		return true
	}
	for _, m := range secretMarks {
		if strings.Contains(up, m) {
			return true
		}
	}
	return false
}

// FilterEnv returns env without the variables that IsSecretName names and without entries that have no name.
// The input is not changed.
func FilterEnv(env []string) []string {
	out := make([]string, 0, len(env))
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if ok && name != "" && !IsSecretName(name) {
			out = append(out, kv)
		}
	}
	return out
}

// env returns the environment of a command: as given, but with a TMPDIR that exists where /tmp is private.
func (s *Sandbox) env(b *box, env []string) []string {
	if b.landlock && s.policy.Tmp == TmpPrivate {
		out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "TMPDIR=") })
		return append(out, "TMPDIR="+b.scratch)
	}
	if !s.policy.Level.Contained() || s.policy.Tmp != TmpPrivate {
		return env
	}
	out := make([]string, len(env))
	for i, kv := range env {
		if strings.HasPrefix(kv, "TMPDIR=") {
			kv = "TMPDIR=/tmp"
		}
		out[i] = kv
	}
	return out
}
