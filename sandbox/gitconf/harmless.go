package gitconf

import (
	"slices"
	"strings"
)

// fields makes a set of the words in s.
func fields(s string) map[string]bool {
	m := map[string]bool{}
	for _, f := range strings.Fields(s) {
		m[f] = true
	}
	return m
}

// plain are sections of which these keys, directly in the section, only hold data. An empty list: every key that
// is not named in except.
func plain(section string) (keys string, known bool) {
	switch section {
	case "core":
		return `repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol safecrlf
 compression loosecompression bigfilethreshold quotepath abbrev whitespace longpaths protecthfs protectntfs sharedrepository
 sparsecheckout sparsecheckoutcone untrackedcache preloadindex trustctime checkstat multipackindex commitgraph packedgitlimit
 packedgitwindowsize deltabasecachelimit fscache splitindex commentchar commentstring warnambiguousrefs fsync fsyncmethod
 fsyncobjectfiles createobject preferaliascase maxtreedepth packedrefstimeout filesreflocktimeout hidedotfiles`, true
	case "user", "author", "committer":
		return "name email signingkey useconfigonly", true
	case "extensions":
		return "objectformat refstorage partialclone noop preciousobjects compatobjectformat relativeworktrees worktreeconfig", true
	case "init":
		return "defaultbranch defaultobjectformat", true
	case "push":
		return "default followtags autosetupremote recursesubmodules negotiate useforceifincludes usebitmaps", true
	case "merge":
		return "ff conflictstyle renames renamelimit directoryrenames log stat renormalize autostash verbosity", true
	case "rebase":
		return "autosquash autostash updaterefs stat forkpoint abbreviatecommands missingcommitscheck reschedulefailedexec rebasemerges", true
	case "diff":
		return "renames renamelimit algorithm mnemonicprefix noprefix context interhunkcontext colormoved colormovedws submodule wserrorhighlight indentheuristic relative suppressblankempty statgraphwidth autorefreshindex ignoresubmodules", true
	case "commit":
		return "gpgsign verbose cleanup status", true
	case "tag":
		return "sort gpgsign forcesignannotated", true
	case "http":
		return "postbuffer version lowspeedlimit lowspeedtime maxrequests", true
	case "lfs":
		return "repositoryformatversion concurrenttransfers locksverify fetchrecentrefsdays fetchexclude fetchinclude", true
	case "submodule":
		return "recurse active fetchjobs propagatebranches", true
	case "gc":
		return "auto autopacklimit autodetach prune pruneexpire reflogexpire reflogexpireunreachable worktreepruneexpire packrefs aggressivedepth aggressivewindow bigpackthreshold cruftpacks logexpiry", true
	case "maintenance":
		return "auto strategy", true
	case "transfer":
		return "fsckobjects unpacklimit hiderefs", true
	case "branch":
		return "autosetupmerge autosetuprebase sort", true
	case "log":
		return "date decorate abbrevcommit follow showroot showsignature mailmap", true
	case "pull", "fetch", "rerere", "advice", "color", "column", "status", "pack", "index", "feature", "apply", "versionsort",
		"checkout", "worktree", "stash", "blame", "grep", "sparse":
		return "", true
	}
	return "", false
}

// inner are sections with a name of the user's in them, and the keys that only hold data.
var inner = map[string]string{
	"branch":    "remote merge rebase pushremote description",
	"remote":    "fetch push tagopt mirror prune prunetags promisor partialclonefilter skipdefaultupdate skipfetchall",
	"submodule": "active branch ignore shallow fetchrecursesubmodules",
	"color":     "*",
	"lfs":       "access locksverify",
}

// lfs are the entries that git-lfs writes; they name its program only.
var lfs = []string{"clean=git-lfs clean -- %f", "smudge=git-lfs smudge -- %f", "smudge=git-lfs smudge --skip -- %f",
	"process=git-lfs filter-process", "process=git-lfs filter-process --skip", "required=true"}

// Harmless reports whether an entry of a repository's own configuration can neither run a program nor lead git to
// another place. inside decides about a path that core.worktree names.
func Harmless(e Entry, inside func(path string) bool) bool {
	if e.Sub == "" {
		switch e.Section + "." + e.Key {
		case "core.fsmonitor": // a word is git's own daemon, anything else a program
			return e.NoValue || slices.Contains([]string{"", "true", "false", "0", "1", "yes", "no", "on", "off"}, strings.ToLower(e.Value))
		case "core.worktree":
			return inside != nil && inside(e.Value)
		}
		keys, known := plain(e.Section)
		return known && (keys == "" || fields(keys)[e.Key])
	}
	switch e.Section + "." + e.Key {
	case "remote.url", "remote.pushurl", "submodule.url":
		return address(e.Value)
	case "submodule.update":
		return slices.Contains([]string{"checkout", "rebase", "merge", "none"}, e.Value)
	}
	if e.Section == "filter" && e.Sub == "lfs" {
		return slices.Contains(lfs, e.Key+"="+e.Value)
	}
	if e.Section == "branch" && (strings.HasPrefix(e.Key, "gh-") || strings.HasPrefix(e.Key, "vscode-")) {
		return true
	}
	keys := inner[e.Section]
	return keys == "*" || fields(keys)[e.Key]
}

// address refuses addresses that name a helper program (ext::sh -c ...) or look like an option.
func address(url string) bool {
	return !strings.Contains(url, "::") && !strings.HasPrefix(url, "-")
}
