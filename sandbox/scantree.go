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

// listing is a directory that is being read.
type listing struct {
	dir   *scanDir
	path  string
	depth int
	old   map[string]*scanDir // directories in it that are known and were not met yet
	found bool                // a .git directory that is looked at
	// What git takes for a repository where all three are.
	head, objects, refs bool
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
	l := &listing{dir: d, path: path, depth: depth, old: map[string]*scanDir{}}
	for _, k := range d.kids {
		l.old[k.name] = k
	}
	d.kids = nil
	for {
		ents, err := f.ReadDir(512)
		for _, e := range ents {
			if p.enters(l, e) {
				p.keep(l, e.Name())
			}
		}
		if err != nil || len(ents) == 0 {
			break
		}
	}
	for _, k := range l.old {
		p.forget(k)
	}
	p.recognize(l, fd)
	return nil
}

// enters notes an entry, and reports whether it is a directory to look into.
func (p *pass) enters(l *listing, e os.DirEntry) bool {
	name := e.Name()
	if name == gitName && !l.dir.git {
		return p.entersGit(l, e.IsDir())
	}
	switch {
	case name == "HEAD":
		l.head = true
	case !e.IsDir():
	case name == "objects":
		l.objects = true
	case name == "refs":
		l.refs = true
	}
	return e.IsDir() && (!l.dir.git || name == "modules")
}

// entersGit is enters for a .git. One that is no directory is remembered as a pointer.
func (p *pass) entersGit(l *listing, isDir bool) bool {
	at := filepath.Join(l.path, gitName)
	if p.skip[at] || p.gits[at] || p.exposed[at] {
		return false
	}
	if !isDir && p.pointers[at] == nil && len(p.pointers) < maxRepos {
		p.pointers[at] = &pointer{}
	}
	l.found = l.found || isDir
	return isDir
}

// keep takes a directory over from the last reading, or notes a new one within the bounds.
func (p *pass) keep(l *listing, name string) {
	if k := l.old[name]; k != nil {
		l.dir.kids = append(l.dir.kids, k)
		delete(l.old, name)
	} else if p.dirs < maxDirs && l.depth < maxDepth && !p.skip[filepath.Join(l.path, name)] {
		p.dirs++
		l.dir.kids = append(l.dir.kids, &scanDir{name: strings.Clone(name), again: true, git: name == gitName})
	}
}

// recognize notes the repositories that a reading found: a .git in the directory fd, or that directory itself.
func (p *pass) recognize(l *listing, fd int) {
	d := l.dir
	layout := l.head && l.objects && l.refs && !d.git
	if !l.found && !layout {
		return
	}
	// Names may have come since the change time was looked at.
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err != nil || d.id != (fileID{st.Dev, st.Ino}) {
		d.again = true
	}
	mine := err == nil && p.users(p.kind(st.Dev, l.path), st.Ctim.Nano())
	if l.found {
		p.found(filepath.Join(l.path, gitName), mine)
	}
	if !layout {
		return
	}
	p.found(l.path, mine)
	d.git = true
	d.kids = slices.DeleteFunc(d.kids, func(k *scanDir) bool {
		if k.name != "modules" {
			p.forget(k)
		}
		return k.name != "modules"
	})
}
