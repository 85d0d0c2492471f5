// Package command understands shell command lines: what they do, how risky they
// are, and which rules apply to them.
//
// It is pure except for the rules file. A command that cannot be parsed is
// unknown and is never taken for safe.
package command

import heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"

// Actions says what a command line does. There is always at least one action.
func Actions(cmd, cwd string) []*heddlev1.CommandAction { return nil }

// Risk estimates how much harm a command line can do.
func Risk(cmd string) heddlev1.Risk { return heddlev1.Risk_RISK_HIGH }

// KnownSafe reports whether every part of a command line only reads.
func KnownSafe(cmd string) bool { return false }

// Dangerous reports whether a command line may destroy much (rm -rf and the like),
// and names the part.
func Dangerous(cmd string) (part string, dangerous bool) { return "", false }

// ProposedAmendment is the argv prefix that a person may allow for ever; nil when
// the command is not one plain command.
func ProposedAmendment(cmd string, prefixRule []string) []string { return nil }

// ShellArgv is the argv that runs cmd in a shell.
func ShellArgv(shell, cmd string, login bool) []string { return nil }

// Join is the shown command line of an argv, quoted where needed.
func Join(argv []string) string { return "" }
