package command

import (
	"slices"
	"strings"
)

// readers are programs that only read and print, whatever their arguments.
var readers = map[string]bool{
	"cat": true, "cd": true, "cut": true, "echo": true, "expr": true, "false": true, "grep": true, "egrep": true, "fgrep": true,
	"head": true, "id": true, "ls": true, "nl": true, "paste": true, "pwd": true, "rev": true, "seq": true, "stat": true,
	"tail": true, "tr": true, "true": true, "uname": true, "wc": true, "which": true, "whoami": true,
	"basename": true, "dirname": true, "realpath": true, "readlink": true, "test": true, "printf": true, "sleep": true, ":": true,
}

// safe reports whether every part only reads.
func (l *line) safe() bool {
	if l.err != nil || !l.plain || len(l.calls) == 0 {
		return false
	}
	return !slices.ContainsFunc(l.calls, func(c call) bool { return !safeCall(c) })
}

func safeCall(c call) bool {
	// A path may name any program; only the usual folders are believed.
	name := c.args[0]
	for _, dir := range []string{"/bin/", "/usr/bin/"} {
		name = strings.TrimPrefix(name, dir)
	}
	args := c.args[1:]
	switch name {
	case "find":
		return !slices.ContainsFunc(args, func(a string) bool {
			return hasAnyPrefix(a, "-exec", "-ok", "-delete", "-fls", "-fprint")
		})
	case "rg":
		return !slices.ContainsFunc(args, func(a string) bool {
			return hasAnyPrefix(a, "--pre", "--hostname-bin") || a == "--search-zip" || isShortWith(a, 'z')
		})
	case "sed":
		return safeSed(args)
	case "git":
		return safeGit(args)
	case "uniq":
		// A second file name would be written.
		return operands(args) <= 1
	}
	return readers[name]
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// isShortWith reports whether an argument is a group of short flags with c.
func isShortWith(a string, c byte) bool {
	return len(a) > 1 && a[0] == '-' && a[1] != '-' && strings.IndexByte(a, c) > 0
}

func operands(args []string) int {
	n := 0
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			n++
		}
	}
	return n
}

// safeSed allows only the printing of line ranges: sed -n 1,20p FILE.
func safeSed(args []string) bool {
	if len(args) < 2 || args[0] != "-n" {
		return false
	}
	script, ok := strings.CutSuffix(args[1], "p")
	if !ok || script == "" || strings.Trim(script, "0123456789,$") != "" {
		return false
	}
	return !slices.ContainsFunc(args[2:], func(a string) bool { return strings.HasPrefix(a, "-") })
}

func safeGit(args []string) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0] {
	case "status", "log", "diff", "show", "rev-parse", "ls-files", "blame", "grep", "describe", "shortlog", "cat-file":
	case "branch":
		return !slices.ContainsFunc(args[1:], func(a string) bool {
			return !slices.Contains([]string{"-a", "-r", "-v", "-vv", "--list", "--show-current", "--all", "--remotes"}, a)
		})
	default:
		return false
	}
	return !slices.ContainsFunc(args[1:], func(a string) bool {
		return hasAnyPrefix(a, "--output", "--ext-diff", "--textconv", "--open-files-in-pager", "-O", "--exec", "--filters")
	})
}

// wrappers run the command that follows their own arguments.
var wrappers = map[string]bool{
	"sudo": true, "doas": true, "env": true, "nohup": true, "time": true, "timeout": true, "nice": true, "ionice": true,
	"xargs": true, "exec": true, "command": true, "builtin": true, "setsid": true, "stdbuf": true,
}

// danger names the first part that may destroy much; empty when there is none.
func (l *line) danger() string {
	for _, c := range l.calls {
		if dangerous(c.args) {
			return c.text
		}
	}
	return ""
}

func dangerous(args []string) bool {
	name := base(args[0])
	if wrappers[name] {
		// Where the wrapped command begins depends on the wrapper's flags: every
		// place is tried.
		for i := 1; i < len(args); i++ {
			if !strings.HasPrefix(args[i], "-") && !wrappers[base(args[i])] && dangerous(args[i:]) {
				return true
			}
			if script, ok := shellScript(args[i:]); ok && parse(script).danger() != "" {
				return true
			}
		}
		return false
	}
	switch name {
	case "rm":
		return dangerousRm(args[1:])
	case "find":
		return slices.Contains(args, "-delete") && slices.ContainsFunc(args[1:], nearRoot)
	case "dd":
		return slices.ContainsFunc(args[1:], func(a string) bool {
			return strings.HasPrefix(a, "of=/dev/") && a != "of=/dev/null"
		})
	case "shutdown", "reboot", "halt", "poweroff", "wipefs", "mkswap", "shred":
		return true
	case "chmod", "chown", "chgrp":
		return slices.ContainsFunc(args[1:], recursiveFlag) && slices.ContainsFunc(args[1:], nearRoot)
	case "git":
		return len(args) > 1 && args[1] == "clean" && slices.ContainsFunc(args[2:], func(a string) bool { return a == "--force" || isShortWith(a, 'f') })
	}
	return name == "mkfs" || strings.HasPrefix(name, "mkfs.")
}

// dangerousRm: recursive and forced, or either of them on much.
func dangerousRm(args []string) bool {
	recursive := slices.ContainsFunc(args, recursiveFlag)
	force := slices.ContainsFunc(args, func(a string) bool { return a == "--force" || isShortWith(a, 'f') })
	return recursive && force || (recursive || force) && slices.ContainsFunc(args, wide)
}

func recursiveFlag(a string) bool {
	return a == "--recursive" || isShortWith(a, 'r') || isShortWith(a, 'R')
}

// wide reports whether an operand is known only at run time, a whole working
// folder, or near the root of the file system.
func wide(a string) bool {
	return a == opaque || nearRoot(a) || slices.Contains([]string{".", "./", "..", "../"}, a)
}

// nearRoot reports whether a path is / or a folder right below it.
func nearRoot(a string) bool {
	return strings.HasPrefix(a, "/") && strings.Count(strings.TrimRight(a, "/"), "/") <= 1
}
