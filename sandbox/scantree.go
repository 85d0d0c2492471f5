package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// What one sandbox watches is bounded, breadth of the top levels first.
const (
	maxDirs  = 32768
	maxRepos = 1024
	maxDepth = 64
)

// scanDir is one directory that was looked at.
type scanDir struct {
	name  string
	id    fileID
	ctime int64
	again bool // was never read, or may have changed again with the same stamp
	git   bool // a repository: only its submodules are of interest
	kids  []*scanDir
}

// scanStep is a directory that a pass has still to look at.
type scanStep struct {
	dir   *scanDir
	path  string
	depth int
}

// visit looks at a directory that may have changed, and at all below it. It reports whether it is still there.
func (p *pass) visit(d *scanDir, path string, depth int) bool {
	st, ok := lstat(path)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		p.forget(d)
		return false
	}
	id, ctime := fileID{st.Dev, st.Ino}, st.Ctim.Nano()
	if d.id != id || d.ctime != ctime || d.again {
		d.id, d.ctime, d.again = id, ctime, !p.kind(st.Dev, path).before(ctime, p.now.today())
		p.closed(p.read(d, path, depth), st, path)
	}
	if len(d.kids) == 0 {
		return true
	}
	d.kids = slices.DeleteFunc(d.kids, func(k *scanDir) bool {
		at := path + "/" + k.name // a clean path, as roots are never /
		if k.ctime == 0 {
			p.queue = append(p.queue, scanStep{k, at, depth + 1})
			return false
		}
		return !p.visit(k, at, depth+1)
	})
	return true
}

func (p *pass) forget(d *scanDir) {
	p.dirs--
	for _, k := range d.kids {
		p.forget(k)
	}
}

// read lists a directory, keeps the directories in it that are known and notes the new ones.
func (p *pass) read(d *scanDir, path string, depth int) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		d.again = true
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	old := map[string]*scanDir{}
	for _, k := range d.kids {
		old[k.name] = k
	}
	d.kids = nil
	var head, objects, refs, found bool
	for {
		ents, err := f.ReadDir(512)
		for _, e := range ents {
			name, at := e.Name(), ""
			switch {
			case name == gitName && !d.git:
				if at = filepath.Join(path, name); p.skip[at] || p.gits[at] || p.exposed[at] {
					continue
				}
				if !e.IsDir() {
					if p.pointers[at] == nil && len(p.pointers) < maxRepos {
						p.pointers[at] = &pointer{}
					}
					continue
				}
				found = true
			case name == "HEAD":
				head = true
			case !e.IsDir():
				continue
			case name == "objects":
				objects = true
			case name == "refs":
				refs = true
			case d.git && name != "modules":
				continue
			}
			if !e.IsDir() || d.git && name != "modules" {
				continue
			}
			if k := old[name]; k != nil {
				d.kids = append(d.kids, k)
				delete(old, name)
			} else if p.dirs < maxDirs && depth < maxDepth && !p.skip[filepath.Join(path, name)] {
				p.dirs++
				d.kids = append(d.kids, &scanDir{name: strings.Clone(name), again: true, git: name == gitName})
			}
		}
		if err != nil || len(ents) == 0 {
			break
		}
	}
	for _, k := range old {
		p.forget(k)
	}
	layout := head && objects && refs && !d.git // git takes such a directory for a repository
	if !found && !layout {
		return nil
	}
	// Names may have come since the change time was looked at.
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err != nil || d.id != (fileID{st.Dev, st.Ino}) {
		d.again = true
	}
	mine := err == nil && p.users(p.kind(st.Dev, path), st.Ctim.Nano())
	if found {
		p.found(filepath.Join(path, gitName), mine)
	}
	if layout {
		p.found(path, mine)
		d.git = true
		d.kids = slices.DeleteFunc(d.kids, func(k *scanDir) bool {
			if k.name != "modules" {
				p.forget(k)
			}
			return k.name != "modules"
		})
	}
	return nil
}
