package command

import (
	"path/filepath"
	"slices"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Kinds of actions.
const (
	kindRead    = "read"
	kindList    = "listFiles"
	kindSearch  = "search"
	kindUnknown = "unknown"
)

// Actions says what a command line does. There is always at least one action; as
// soon as one part is not understood, the whole line is one unknown action.
func Actions(cmd, cwd string) []*heddlev1.CommandAction {
	unknown := []*heddlev1.CommandAction{{Kind: kindUnknown, Command: cmd}}
	l := parse(cmd)
	if l.err != nil || !l.plain {
		return unknown
	}
	var out []*heddlev1.CommandAction
	dir := cwd
	for _, c := range l.calls {
		if c.args[0] == "cd" {
			if len(c.args) != 2 {
				return unknown
			}
			dir = absolute(dir, c.args[1])
			continue
		}
		if len(out) > 0 && len(c.args) == 1 && base(c.args[0]) == "true" {
			// Only what the whole line ends with.
			continue
		}
		actions, ok := classify(c, dir)
		if !ok {
			return unknown
		}
		out = append(out, actions...)
	}
	if len(out) == 0 {
		return unknown
	}
	return out
}

func absolute(dir, p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(dir, p)
}

// filters only reshape what they read from a pipe.
var filters = map[string]bool{
	"wc": true, "sort": true, "uniq": true, "cut": true, "tr": true, "column": true, "head": true, "tail": true, "nl": true, "cat": true, "rev": true,
}

// classify returns the actions of one simple command; none for a filter.
func classify(c call, dir string) ([]*heddlev1.CommandAction, bool) {
	name, args := base(c.args[0]), c.args[1:]
	switch name {
	case "cat", "bat", "less", "more", "nl", "head", "tail":
		files := withoutFlags(args, valueFlags[name])
		if len(files) > 0 {
			return reads(c, dir, files), true
		}
	case "sed":
		if safeSed(args) && len(args) > 2 {
			return reads(c, dir, args[2:]), true
		}
		// Lines picked out of what another command reads.
		if safeSed(args) && c.piped {
			return nil, true
		}
	case "ls", "tree", "eza", "exa", "du":
		return list(c, withoutFlags(args, valueFlags[name])), true
	case "fd", "fdfind":
		return findByName(c, withoutFlags(args, valueFlags["fd"])), true
	case "find":
		return find(c, args)
	case "rg", "ag", "ack", "grep", "egrep", "fgrep":
		return search(c, name, args)
	case "git":
		if len(args) > 0 && args[0] == "grep" {
			return search(c, "grep", args[1:])
		}
		if len(args) > 0 && args[0] == "ls-files" {
			return list(c, withoutFlags(args[1:], nil)), true
		}
	}
	return nil, c.piped && filters[name]
}

// valueFlags are flags whose value is the next argument.
var valueFlags = map[string][]string{
	"head": {"-n", "-c"}, "tail": {"-n", "-c"}, "nl": {"-b", "-n", "-w", "-s", "-v", "-i"}, "bat": {"-r", "--line-range", "-l", "--style"},
	"ls": {"-I", "--ignore", "-w"}, "tree": {"-L", "-I", "-P"}, "du": {"-d", "--max-depth"}, "eza": {"-L", "-I"}, "exa": {"-L", "-I"},
	"fd":   {"-e", "--extension", "-t", "--type", "-d", "--max-depth", "-E", "--exclude"},
	"rg":   {"-g", "--glob", "-t", "--type", "-T", "-A", "-B", "-C", "-m", "--max-count", "-d", "--max-depth", "--sort", "-M"},
	"grep": {"-A", "-B", "-C", "-m", "--include", "--exclude", "--exclude-dir"},
	"ag":   {"-A", "-B", "-C", "-G", "-m", "--depth", "--ignore"}, "ack": {"-A", "-B", "-C", "-m", "--type"},
}

// withoutFlags returns the operands.
func withoutFlags(args, valued []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return append(out, args[i+1:]...)
		case slices.Contains(valued, a):
			i++
		case len(a) > 1 && a[0] == '-':
		default:
			out = append(out, a)
		}
	}
	return out
}

func reads(c call, dir string, files []string) []*heddlev1.CommandAction {
	out := make([]*heddlev1.CommandAction, 0, len(files))
	for _, f := range files {
		p := absolute(dir, f)
		out = append(out, &heddlev1.CommandAction{Kind: kindRead, Command: c.text, Name: filepath.Base(p), Path: p})
	}
	return out
}

func list(c call, operands []string) []*heddlev1.CommandAction {
	a := &heddlev1.CommandAction{Kind: kindList, Command: c.text}
	if len(operands) > 0 {
		a.Path = operands[0]
	}
	return []*heddlev1.CommandAction{a}
}

func findByName(c call, operands []string) []*heddlev1.CommandAction {
	if len(operands) == 0 {
		return list(c, nil)
	}
	a := &heddlev1.CommandAction{Kind: kindSearch, Command: c.text, Query: operands[0]}
	if len(operands) > 1 {
		a.Path = operands[1]
	}
	return []*heddlev1.CommandAction{a}
}

func find(c call, args []string) ([]*heddlev1.CommandAction, bool) {
	if !safeCall(c) {
		return nil, false
	}
	a := &heddlev1.CommandAction{Kind: kindList, Command: c.text}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		a.Path = args[0]
	}
	for i, arg := range args {
		if (arg == "-name" || arg == "-iname" || arg == "-path" || arg == "-regex") && i+1 < len(args) {
			a.Kind, a.Query = kindSearch, args[i+1]
			break
		}
	}
	return []*heddlev1.CommandAction{a}, true
}

func search(c call, name string, args []string) ([]*heddlev1.CommandAction, bool) {
	if name == "rg" && !safeCall(c) {
		return nil, false
	}
	flags := valueFlags[name]
	if flags == nil {
		flags = valueFlags["grep"]
	}
	a := &heddlev1.CommandAction{Kind: kindSearch, Command: c.text}
	var explicit bool
	var rest []string
	for i := 0; i < len(args); i++ {
		if (args[i] == "-e" || args[i] == "--regexp") && i+1 < len(args) {
			a.Query, explicit = args[i+1], true
			i++
			continue
		}
		rest = append(rest, args[i])
	}
	operands := withoutFlags(rest, flags)
	if name == "rg" && slices.Contains(args, "--files") {
		return list(c, operands), true
	}
	if !explicit {
		if len(operands) == 0 {
			return nil, false
		}
		a.Query, operands = operands[0], operands[1:]
	}
	if len(operands) > 0 {
		a.Path = operands[0]
	}
	return []*heddlev1.CommandAction{a}, true
}
