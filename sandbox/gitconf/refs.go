package gitconf

import (
	"path/filepath"
	"slices"
	"strings"
)

// RefKind says what git does with a path in a configuration.
type RefKind uint8

const (
	RefHooks   RefKind = iota + 1 // a folder of programs
	RefProgram                    // a program, or what one is given to run
	RefRules                      // a file of attributes or patterns
	RefInclude                    // more configuration
)

// Ref is a path that a configuration makes git run or read by itself, while somebody uses it for something else.
type Ref struct {
	Entry string // the variable
	Kind  RefKind
	// Path as it was written, with ~ for the home folder. Relative ones are below the top of the working tree,
	// those of RefInclude below the folder of the file that includes.
	Path string
}

// programs are variables whose value is a command that git runs by itself. Aliases, editors and tools are not among
// them: the user asks for those by name.
var programs = map[string]bool{
	"core.fsmonitor": true, "core.sshcommand": true, "core.pager": true, "core.askpass": true, "core.gitproxy": true, "core.editor": true,
	"core.alternaterefscommand": true, "sequence.editor": true, "gpg.program": true, "credential.helper": true, "diff.external": true,
	"interactive.difffilter": true, "uploadpack.packobjectshook": true,
}

// innerPrograms are the same below a name of the user's.
var innerPrograms = map[string]string{
	"gpg": "program defaultkeycommand", "filter": "clean smudge process", "diff": "command textconv", "merge": "driver", "credential": "helper",
	"remote": "uploadpack receivepack vcs", "trailer": "command cmd", "submodule": "update",
}

// Refs returns the paths in a configuration, in the order of its entries.
func Refs(list []Entry) []Ref {
	var out []Ref
	for _, e := range list {
		name := e.Section + "." + e.Key
		add := func(kind RefKind, path string) {
			if path != "" {
				out = append(out, Ref{Entry: e.Name(), Kind: kind, Path: path})
			}
		}
		switch {
		case e.NoValue:
		case name == "core.hookspath":
			add(RefHooks, e.Value)
		case name == "core.attributesfile", name == "core.excludesfile":
			add(RefRules, e.Value)
		case e.Key == "path" && (e.Section == "include" || e.Section == "includeif"):
			add(RefInclude, e.Value)
		case e.Section == "pager", e.Sub == "" && programs[name], e.Sub != "" && slices.Contains(strings.Fields(innerPrograms[e.Section]), e.Key):
			for _, p := range words(e.Value) {
				add(RefProgram, p)
			}
		}
	}
	return out
}

// words returns the words of a command that may be files: those with a slash, and arguments with a suffix (hook.py).
// Quotes and operators of the shell end a word, so that commands in commands are seen as well.
func words(command string) []string {
	var out []string
	fields := strings.FieldsFunc(command, func(c rune) bool { return strings.ContainsRune(" \t\n'\"`;|&()<>=!", c) })
	for i, f := range fields {
		for _, home := range []string{"$HOME/", "${HOME}/"} {
			if rest, ok := strings.CutPrefix(f, home); ok {
				f = "~/" + rest
			}
		}
		suffix := i > 0 && filepath.Ext(f) != "" && filepath.Ext(f) != f && !strings.HasPrefix(f, "-")
		if strings.ContainsRune(f, '/') || suffix {
			out = append(out, f)
		}
	}
	return out
}

// Abs makes the path of a reference absolute. It reports false for one whose place is not known, such as another
// user's home folder.
func (r Ref) Abs(base, home string) (string, bool) {
	p := r.Path
	switch {
	case p == "~" || strings.HasPrefix(p, "~/"):
		if home == "" {
			return "", false
		}
		p = filepath.Join(home, p[1:])
	case strings.HasPrefix(p, "~"), strings.HasPrefix(p, "%(prefix)"):
		return "", false
	case !filepath.IsAbs(p):
		p = filepath.Join(base, p)
	}
	return filepath.Clean(p), true
}
