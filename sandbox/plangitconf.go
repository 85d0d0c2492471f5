package sandbox

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/heddle-dev/heddle/sandbox/gitconf"
	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// What the user's own git configuration names inside of a writable root is as good as a hook there: core.hooksPath
// (husky keeps its hooks in the tree), the programs of fsmonitor, filters, pagers and signatures, files of attributes,
// and files that are included. They stay read-only with the protected names.

const (
	maxConfigs      = 64 // files of one repository's configuration, includes among them
	maxIncludeDepth = 10
)

// gitConfigReader follows the configuration of one repository.
type gitConfigReader struct {
	pl    *plan
	binds map[string]guestproto.Mount
	home  string
	all   bool   // the files that are read are for every repository
	top   string // of the working tree
	seen  map[string]bool
}

// protectConfigured keeps what git configurations name in the roots read-only.
func (pl *plan) protectConfigured(binds map[string]guestproto.Mount, home string) {
	tops := map[string]bool{}
	for _, r := range append([]string{pl.dir}, pl.roots...) {
		top := r // also without a repository: one may be made
		for d := r; d != "/"; d = filepath.Dir(d) {
			if identify(filepath.Join(d, gitName)).exists {
				top = d
				break
			}
		}
		if tops[top] {
			continue
		}
		tops[top] = true
		c := &gitConfigReader{pl: pl, binds: binds, home: home, top: top, seen: map[string]bool{}}
		c.read()
	}
}

// globalGitConfigs are the files that git reads in every repository.
func globalGitConfigs(home string) []string {
	files := []string{"/etc/gitconfig"}
	if home == "" {
		return files
	}
	xdg := filepath.Join(home, ".config")
	if own, err := os.UserHomeDir(); err == nil && own == home && os.Getenv("XDG_CONFIG_HOME") != "" {
		xdg = os.Getenv("XDG_CONFIG_HOME")
	}
	return append(files, filepath.Join(xdg, "git", "config"), filepath.Join(home, ".gitconfig"))
}

func (c *gitConfigReader) read() {
	c.all = true
	for _, f := range globalGitConfigs(c.home) {
		c.file(f, 0)
	}
	c.all = false
	git := filepath.Join(c.top, gitName)
	dirs := gitDirs(git)
	if real, err := filepath.EvalSymlinks(git); err == nil && len(dirs) == 0 {
		dirs = []string{real}
	}
	for _, d := range dirs {
		c.file(filepath.Join(d, "config"), 0)
		c.file(filepath.Join(d, "config.worktree"), 0)
	}
}

// file reads one file and what it includes. A file that is missing is watched for, and may not be made in a root.
func (c *gitConfigReader) file(path string, depth int) {
	if c.seen[path] || len(c.seen) >= maxConfigs || depth > maxIncludeDepth {
		return
	}
	c.seen[path] = true
	c.pl.watch = append(c.pl.watch, identifyContent(path))
	c.protect(path)
	list, err := readGitConfig(path)
	if err != nil {
		return // git does not read it either
	}
	for _, ref := range gitconf.Refs(list) {
		base := c.top
		if ref.Kind == gitconf.RefInclude {
			base = filepath.Dir(path)
		}
		at, ok := ref.Abs(base, c.home)
		if !ok {
			continue
		}
		switch ref.Kind {
		case gitconf.RefInclude:
			c.file(at, depth+1)
		case gitconf.RefHooks:
			if c.all && !slices.Contains(c.pl.hooks, ref) {
				c.pl.hooks = append(c.pl.hooks, ref)
			}
			for _, dir := range hookFolders(at) {
				c.protect(dir)
			}
		case gitconf.RefProgram:
			if !identify(at).mode.IsDir() {
				c.protect(at)
			}
		default:
			c.protect(at)
		}
	}
}

// hookFolders returns the folders whose programs run as hooks: husky's _ holds programs that run those beside it.
func hookFolders(dir string) []string {
	if filepath.Base(dir) == "_" {
		return []string{filepath.Dir(dir), dir}
	}
	return []string{dir}
}

// readGitConfig reads a configuration, through links as git does.
func readGitConfig(path string) ([]gitconf.Entry, error) {
	b, err := readRegular(path, gitconf.MaxBytes)
	if err != nil {
		return nil, err
	}
	return gitconf.Parse(b)
}

// protect keeps a path read-only, and the links on the way to it as they are.
func (c *gitConfigReader) protect(path string) {
	pl := c.pl
	for range maxLinks {
		link, rest := firstLink(path)
		if link == "" {
			break
		}
		if id := identify(link); pl.writable(link) && !slices.Contains(pl.links, id) {
			pl.watch, pl.links = append(pl.watch, id), append(pl.links, id)
		}
		to, err := os.Readlink(link)
		if err != nil {
			return
		}
		path = filepath.Join(absolute(to, filepath.Dir(link)), rest)
	}
	if !pl.writable(path) || slices.Contains(pl.roots, path) || slices.ContainsFunc(pl.roots, func(r string) bool { return within(r, path) }) {
		return
	}
	for at := range c.binds {
		if within(path, at) && c.binds[at].ReadOnly {
			return
		}
	}
	id := identify(path)
	switch {
	case id.exists && !id.mode.IsDir() && !id.mode.IsRegular():
	case !id.exists && slices.Contains(pl.absent, path):
	default:
		pl.protect(c.binds, path)
	}
}

// firstLink returns the first step of a path that is a link, and what comes after it.
func firstLink(path string) (link, rest string) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if identify(path[:i]).mode&os.ModeSymlink != 0 {
			return path[:i], path[i:]
		}
	}
	return "", ""
}
