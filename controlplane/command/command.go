// Package command understands shell command lines: what they do, how risky they
// are, and which rules apply to them.
//
// It is pure except for the rules file. A command that cannot be parsed is
// unknown, is never taken for safe, and counts as dangerous: a shell may run a
// part of it before it finds the error.
package command

import (
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const defaultShell = "/bin/bash"

// ShellArgv is the argv that runs cmd in a shell; an empty shell is bash.
func ShellArgv(shell, cmd string, login bool) []string {
	if shell == "" {
		shell = defaultShell
	}
	flag := "-c"
	if login {
		flag = "-lc"
	}
	return []string{shell, flag, cmd}
}

// Join is the shown command line of an argv, quoted where needed.
func Join(argv []string) string {
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = quote(a)
	}
	return strings.Join(out, " ")
}

func quote(s string) string {
	plain := s != ""
	for i := 0; i < len(s) && plain; i++ {
		c := s[i]
		plain = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80 || strings.IndexByte("+-./:@]_,%=", c) >= 0
	}
	switch {
	case plain:
		return s
	case !strings.Contains(s, "'"):
		return "'" + s + "'"
	case !strings.ContainsAny(s, `!"$\`+"`"):
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Risk estimates how much harm a command line can do: low when it only reads,
// high when it is dangerous, becomes another user or runs what it downloads.
func Risk(cmd string) heddlev1.Risk {
	l := parse(cmd)
	switch {
	case l.err != nil || l.danger() != "":
		return heddlev1.Risk_RISK_HIGH
	case l.safe():
		return heddlev1.Risk_RISK_LOW
	}
	fetches, interprets := false, false
	for _, c := range l.calls {
		switch base(c.args[0]) {
		case "sudo", "doas", "su", "pkexec":
			return heddlev1.Risk_RISK_HIGH
		case "curl", "wget":
			fetches = true
		case "sh", "bash", "zsh", "dash", "python", "python3", "perl", "ruby", "node":
			interprets = true
		}
	}
	if fetches && interprets {
		return heddlev1.Risk_RISK_HIGH
	}
	return heddlev1.Risk_RISK_MEDIUM
}

// KnownSafe reports whether every part of a command line only reads.
func KnownSafe(cmd string) bool { return parse(cmd).safe() }

// Dangerous reports whether a command line may destroy much (rm -rf and the like)
// or cannot be judged, and names the part.
func Dangerous(cmd string) (part string, dangerous bool) {
	l := parse(cmd)
	if l.err != nil {
		return "a command that cannot be parsed (" + l.err.Error() + ")", true
	}
	part = l.danger()
	return part, part != ""
}

// ProposedAmendment is the argv prefix that a person may allow for good: the rule
// the model proposed when it fits a part of the command and says enough, else the
// first part that is not known to be safe. nil when the command is more than
// plain commands.
func ProposedAmendment(cmd string, prefixRule []string) []string {
	l := parse(cmd)
	if l.err != nil || !l.plain || len(l.calls) == 0 {
		return nil
	}
	if len(prefixRule) > 0 && !tooBroad(prefixRule) {
		for _, c := range l.calls {
			if hasPrefix(c.args, prefixRule) {
				return prefixRule
			}
		}
	}
	for _, c := range l.calls {
		if !safeCall(c) {
			return c.args
		}
	}
	return l.calls[0].args
}

// tooBroad refuses prefixes that would allow nearly everything.
func tooBroad(prefix []string) bool {
	if len(prefix) > 1 {
		if _, shell := shells[base(prefix[0])]; shell {
			return len(prefix) < 3
		}
		return false
	}
	name := base(prefix[0])
	if _, shell := shells[name]; shell {
		return true
	}
	switch name {
	case "", "sudo", "doas", "env", "xargs", "eval", "exec", "command", "nohup", "time", "timeout", "nice",
		"python", "python3", "node", "perl", "ruby", "git", "rm", "curl", "wget", "ssh", "docker":
		return true
	}
	return false
}

func hasPrefix(args, prefix []string) bool {
	if len(prefix) == 0 || len(args) < len(prefix) {
		return false
	}
	for i, p := range prefix {
		if args[i] != p {
			return false
		}
	}
	return true
}
