package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/gitconf"
)

// configured finds what a repository's configuration, or the user's for every repository, makes git run from the
// writable roots: hooks kept in the tree, programs of filters, included files.
func (in *inspection) configured() {
	refs := append(in.refs[:len(in.refs):len(in.refs)], in.p.hooks...)
	if len(refs) == 0 {
		return
	}
	for _, top := range in.tops() {
		for _, ref := range refs {
			base := top
			if ref.Kind == gitconf.RefInclude {
				base = in.path
			}
			at, ok := ref.Abs(base, in.p.home)
			switch {
			case !ok || !in.p.inside(at):
			case ref.Kind != gitconf.RefHooks:
				in.program(at, ref.Entry)
			default:
				for _, dir := range hookFolders(at) {
					in.programs(dir, ref.Entry)
				}
			}
		}
	}
}

// tops returns the tops of the working trees of a repository.
func (in *inspection) tops() []string {
	if in.worktree != "" {
		return append([]string{in.worktree}, in.linked...)
	}
	top := in.path // a bare one
	if filepath.Base(top) == gitName {
		top = filepath.Dir(top)
	}
	return append([]string{top}, in.linked...)
}

// programs looks at a folder whose files git runs.
func (in *inspection) programs(dir, entry string) {
	if !in.follow(dir, entry) {
		return
	}
	fd, err := openDir(dir)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	list, err := openBelow(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer list.Close()
	names, _ := list.ReadDir(maxHooks)
	for _, e := range names {
		if e.Type().IsRegular() || e.Type()&fs.ModeSymlink != 0 {
			in.program(filepath.Join(dir, e.Name()), entry)
		}
	}
}

// program looks at one file that git runs or reads.
func (in *inspection) program(path, entry string) {
	if !in.follow(path, entry) {
		return
	}
	fd, err := openDir(filepath.Dir(path))
	if err != nil {
		return
	}
	defer unix.Close(fd)
	b, err := readBelow(fd, filepath.Base(path), hookBytes)
	if err != nil && !errors.Is(err, errTooLong) {
		return // a folder, or gone
	}
	in.addOutside(path, "file:"+path+":"+digest(b), "a command made or changed this, which git would use by its setting "+entry)
}

// follow watches a path and reports whether it is there. A link on the way is a finding of its own: what it leads to
// is looked at by its real name.
func (in *inspection) follow(path, entry string) bool {
	rel, err := filepath.Rel(in.path, path)
	if err != nil {
		return false
	}
	if _, ok := in.ctime(rel); !ok {
		return false
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil || real == path {
		return err == nil
	}
	link, _ := firstLink(path)
	to, _ := os.Readlink(link)
	in.addOutside(link, "link:"+link+":"+to, "a command made a link of this, on the way to what git uses by its setting "+entry)
	if !in.p.inside(real) {
		return false
	}
	if fi, err := os.Stat(real); err == nil && fi.IsDir() {
		in.programs(real, entry)
	} else {
		in.program(real, entry)
	}
	return false
}

// addOutside adds a finding that lies beside the repository. A folder of old files may have been moved to its place.
func (in *inspection) addOutside(path, id, what string) {
	if in.p.readOnly(path) {
		return
	}
	rel, err := filepath.Rel(in.path, path)
	if err != nil {
		return
	}
	changed := in.changed(rel)
	if st, ok := lstat(filepath.Dir(path)); ok {
		changed = max(changed, st.Ctim.Nano())
	}
	in.add(finding{rel: rel, id: id, ctime: changed, what: what})
}
