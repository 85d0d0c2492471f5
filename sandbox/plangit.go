package sandbox

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heddle-dev/heddle/sandbox/gitconf"
	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

const (
	// maxWorktrees is how many linked worktrees a repository may have for all of them to be writable, as git gc
	// and git worktree need it. With more, only those with files in the roots are.
	maxWorktrees = 12
	// maxModules bounds the submodules that can be written, and moduleDepth how deep their names go.
	maxModules  = 32
	moduleDepth = 4
)

// guardedGit are the names in a git directory that decide what git runs and where it looks.
var guardedGit = []string{"hooks", "config", "config.worktree", "commondir", "gitdir", "info", "modules",
	"objects/info/alternates", "objects/info/http-alternates"}

// openGit makes what a .git at the top of a root leads to writable for git's own work, apart from what could make
// git run something later. A .git whose directory lies outside the roots counts only when that directory names the
// checkout in return, because the .git file itself comes with the workspace.
func (pl *plan) openGit(binds map[string]guestproto.Mount, path string) {
	id := identify(path)
	switch {
	case !id.exists: // a new repository is looked at after each command
		pl.watch = append(pl.watch, id)
	case id.mode.IsDir():
		pl.watch = append(pl.watch, id)
		pl.commonDir(binds, path, "")
	default:
		dir, common, err := gitPlace(path, pl.writable)
		if err != nil {
			pl.gitNote = err.Error()
			pl.protect(binds, path)
			return
		}
		pl.watch = append(pl.watch, id)
		if id.mode.IsRegular() {
			pl.guarded = append(pl.guarded, id)
			binds[path] = guestproto.Mount{Kind: guestproto.MountBind, Source: path, Dest: path, ReadOnly: true}
			pl.expect = append(pl.expect, expectation{path: path, id: id, readOnly: true})
		} else {
			pl.links = append(pl.links, id)
		}
		pl.commonDir(binds, common, dir)
	}
}

// outerGit opens the repository around a workspace that is a folder of a checkout. It must be of the same user.
func (pl *plan) outerGit(binds map[string]guestproto.Mount) {
	if identify(filepath.Join(pl.dir, gitName)).exists {
		return
	}
	for d := filepath.Dir(pl.dir); d != "/" && !pl.hidden(d); d = filepath.Dir(d) {
		id := identify(filepath.Join(d, gitName))
		if !id.exists {
			continue
		}
		if int(id.uid) == os.Getuid() {
			pl.openGit(binds, id.path)
		}
		return
	}
}

// writable reports whether commands can write below path, protected names aside.
func (pl *plan) writable(path string) bool {
	in := func(dir string) bool { return within(path, dir) }
	return slices.ContainsFunc(pl.roots, in) || slices.ContainsFunc(pl.gitDirs, in)
}

// commonDir opens a repository's git directory, and in it the part of one linked worktree or of those in the roots.
func (pl *plan) commonDir(binds map[string]guestproto.Mount, common, own string) {
	pl.gitDir(binds, common)
	if own != "" && own != common {
		pl.gitDir(binds, own)
	}
	base := filepath.Join(common, "worktrees")
	ents, err := os.ReadDir(base)
	if real, rerr := filepath.EvalSymlinks(base); err != nil || rerr != nil || real != base {
		return
	}
	many := len(ents) > maxWorktrees
	binds[base] = guestproto.Mount{Kind: guestproto.MountBind, Source: base, Dest: base, ReadOnly: many} // so that it cannot be renamed
	if many {
		pl.frozen = append(pl.frozen, base)
	}
	for _, e := range ents {
		dir := filepath.Join(base, e.Name())
		if e.IsDir() && dir != own && (!many || pl.holdsFilesOf(dir)) {
			pl.gitDir(binds, dir)
		}
	}
}

// holdsFilesOf reports whether the files of a linked worktree lie in the roots, and say so themselves.
func (pl *plan) holdsFilesOf(dir string) bool {
	at, err := readLine(filepath.Join(dir, "gitdir"))
	if at = absolute(at, dir); err != nil || !pl.writable(at) {
		return false
	}
	d, _, err := gitPlace(at, pl.writable)
	return err == nil && d == dir
}

// showGit makes the repository of a linked worktree readable where a private directory hides it.
func (pl *plan) showGit(binds map[string]guestproto.Mount, root string) {
	path := filepath.Join(root, gitName)
	if !identify(path).mode.IsRegular() {
		return
	}
	_, common, err := gitPlace(path, pl.writable)
	if err != nil || !pl.hidden(common) || pl.writable(common) || within(common, root) {
		return
	}
	if _, done := binds[common]; !done {
		id := identify(common)
		binds[common] = guestproto.Mount{Kind: guestproto.MountBind, Source: common, Dest: common, ReadOnly: true}
		pl.watch = append(pl.watch, id)
		pl.expect = append(pl.expect, expectation{path: common, id: id, readOnly: true})
	}
}

// gitDir makes one git directory writable and keeps the guarded names in it as they are.
func (pl *plan) gitDir(binds map[string]guestproto.Mount, dir string) {
	// A link on the way could lead anywhere: only the real place counts.
	if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir || slices.Contains(pl.gitDirs, dir) {
		return
	}
	id := identify(dir)
	binds[dir] = guestproto.Mount{Kind: guestproto.MountBind, Source: dir, Dest: dir}
	pl.watch = append(pl.watch, id)
	pl.expect = append(pl.expect, expectation{path: dir, id: id})
	pl.foreign = pl.foreign || int(id.uid) != os.Getuid()
	pl.gitDirs = append(pl.gitDirs, dir)
	for _, name := range guardedGit {
		path := filepath.Join(dir, name)
		if !identify(path).exists {
			switch name {
			case "modules": // looked at after each command
				continue
			case "info": // git makes it for other things too
				path = filepath.Join(path, "attributes")
			}
		}
		pl.protect(binds, path)
	}
	left := maxModules
	pl.modules(binds, filepath.Join(dir, "modules"), moduleDepth, &left)
}

// modules opens the git directories of submodules.
func (pl *plan) modules(binds map[string]guestproto.Mount, dir string, depth int, left *int) {
	ents, err := os.ReadDir(dir)
	if err != nil || depth == 0 {
		return
	}
	for _, e := range ents {
		sub := filepath.Join(dir, e.Name())
		switch {
		case !e.IsDir() || *left == 0:
		case isGitDir(sub):
			*left--
			pl.gitDir(binds, sub)
		default:
			pl.modules(binds, sub, depth-1, left)
		}
	}
}

// pin mounts the directories between a root and what is mounted in it on themselves. A directory with a mount
// somewhere below it can be renamed, and another be made in its place; one that is a mount cannot.
func (pl *plan) pin(binds map[string]guestproto.Mount) {
	for _, path := range slices.Sorted(maps.Keys(binds)) {
		pl.pinAbove(binds, path)
	}
}

// pinAbove does so for one path and returns how many directories it mounted.
func (pl *plan) pinAbove(binds map[string]guestproto.Mount, path string) int {
	var between []string
	for d := filepath.Dir(path); pl.writable(d); d = filepath.Dir(d) {
		if m, mounted := binds[d]; mounted {
			if m.ReadOnly {
				between = nil
			}
			break
		}
		between = append(between, d)
	}
	for _, d := range between {
		binds[d] = guestproto.Mount{Kind: guestproto.MountBind, Source: d, Dest: d}
		id := identify(d)
		pl.watch = append(pl.watch, id)
		pl.expect = append(pl.expect, expectation{path: d, id: id})
	}
	return len(between)
}

// isGitDir reports whether dir has the layout by which git recognises a repository.
func isGitDir(dir string) bool {
	return identify(filepath.Join(dir, "HEAD")).exists && identify(filepath.Join(dir, "objects")).mode.IsDir() &&
		identify(filepath.Join(dir, "refs")).mode.IsDir()
}

// readLine returns what a small file of git's holds.
func readLine(file string) (string, error) {
	fi, err := os.Lstat(file)
	if err != nil {
		return "", err
	}
	if !fi.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a small file", file)
	}
	b, err := readRegular(file, maxGitLine)
	return strings.TrimRight(string(b), "\r\n"), err
}

// gitPlace finds the git directory and the common directory that a .git file or link leads to. They must be in
// writable places, or prove to belong to this checkout.
func gitPlace(path string, writable func(string) bool) (dir, common string, err error) {
	if identify(path).mode&os.ModeSymlink != 0 {
		if dir, err = filepath.EvalSymlinks(path); err == nil && (!isGitDir(dir) || !writable(dir)) {
			err = fmt.Errorf("%s leads to %s, which is no repository in a writable folder", path, dir)
		}
		return dir, dir, err
	}
	line, err := readLine(path)
	if err != nil {
		return "", "", err
	}
	dir, ok := strings.CutPrefix(line, "gitdir:")
	if !ok {
		return "", "", fmt.Errorf("%s does not name a git directory", path)
	}
	if dir, err = filepath.EvalSymlinks(absolute(strings.TrimSpace(dir), filepath.Dir(path))); err != nil {
		return "", "", err
	}
	if line, err := readLine(filepath.Join(dir, "commondir")); err == nil {
		return linkedWorktree(path, dir, line)
	}
	if !isGitDir(dir) {
		return "", "", fmt.Errorf("%s is not a git directory", dir)
	}
	if writable(dir) || namesCheckout(dir, filepath.Dir(path)) {
		return dir, dir, nil
	}
	return "", "", fmt.Errorf("%s lies outside the writable folders and does not name %s as its checkout", dir, filepath.Dir(path))
}

// linkedWorktree checks the links of a worktree both ways.
func linkedWorktree(file, dir, line string) (string, string, error) {
	common, err := filepath.EvalSymlinks(absolute(line, dir))
	if err != nil {
		return "", "", err
	}
	back, err := readLine(filepath.Join(dir, "gitdir"))
	if err == nil {
		back = absolute(back, dir)
		var parent string
		if parent, err = filepath.EvalSymlinks(filepath.Dir(back)); err == nil {
			back = filepath.Join(parent, filepath.Base(back))
		}
	}
	if err != nil {
		return "", "", err
	}
	if back != file || filepath.Dir(dir) != filepath.Join(common, "worktrees") || !isGitDir(common) {
		return "", "", fmt.Errorf("%s is not registered as a worktree of %s", filepath.Dir(file), common)
	}
	return dir, common, nil
}

// namesCheckout reports whether a git directory's own configuration says that its files are at checkout.
func namesCheckout(dir, checkout string) bool {
	b, err := readRegular(filepath.Join(dir, "config"), gitconf.MaxBytes)
	if err != nil {
		return false
	}
	list, err := gitconf.Parse(b)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(list, func(e gitconf.Entry) bool {
		if e.Name() != "core.worktree" {
			return false
		}
		real, err := filepath.EvalSymlinks(absolute(e.Value, dir))
		return err == nil && real == checkout
	})
}
