package sandbox

import (
	"os"
	"syscall"
)

// identity is what a path was when it was looked at. A mount hangs on the file it was made for, not on its
// name, so a different file under the same name makes a sandbox stale.
type identity struct {
	path     string
	exists   bool
	dev, ino uint64
	mode     os.FileMode
	uid      uint32
	link     string
}

func identify(path string) identity {
	id := identity{path: path}
	fi, err := os.Lstat(path)
	if err != nil {
		return id
	}
	id.exists, id.mode = true, fi.Mode().Type()
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		id.dev, id.ino, id.uid = st.Dev, st.Ino, st.Uid
	}
	if id.mode&os.ModeSymlink != 0 {
		id.link, _ = os.Readlink(path)
	}
	return id
}

func (id identity) same(o identity) bool {
	return id.exists == o.exists && id.dev == o.dev && id.ino == o.ino && id.mode == o.mode && id.link == o.link
}

// stale returns the first path that is no longer what it was.
func (pl *plan) stale() (string, bool) {
	for _, id := range pl.watch {
		if !id.same(identify(id.path)) {
			return id.path, true
		}
	}
	return "", false
}
