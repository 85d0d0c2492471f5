package sandbox

import (
	"os"

	"golang.org/x/sys/unix"
)

// identity is what a path was when it was looked at. A mount hangs on the file it was made for, not on its
// name, so a different file under the same name makes a sandbox stale.
type identity struct {
	path     string
	exists   bool
	dev, ino uint64
	born     int64 // tells a new file from an old one with a reused number; 0 where not known
	mode     os.FileMode
	uid      uint32
	link     string
	changed  int64 // when it was changed last; 0 where only the identity counts
}

func identify(path string) identity {
	id := identity{path: path}
	var st unix.Statx_t
	const want = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_UID | unix.STATX_BTIME
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, want, &st); err != nil {
		return id
	}
	id.exists, id.mode, id.uid = true, fileMode(uint32(st.Mode)).Type(), st.Uid
	id.dev, id.ino = unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino
	if st.Mask&unix.STATX_BTIME != 0 {
		id.born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	if id.mode&os.ModeSymlink != 0 {
		id.link, _ = os.Readlink(path)
	}
	return id
}

// identifyContent is identify for a file whose content counts.
func identifyContent(path string) identity {
	id := identify(path)
	if st, ok := lstat(path); ok {
		id.changed = st.Ctim.Nano()
	}
	return id
}

func (id identity) same(o identity) bool {
	return id.exists == o.exists && id.dev == o.dev && id.ino == o.ino && id.born == o.born && id.mode == o.mode && id.link == o.link
}

// stale returns the first path that is no longer what it was.
func (pl *plan) stale() (string, bool) {
	for _, id := range pl.watch {
		look := identify
		if id.changed != 0 {
			look = identifyContent
		}
		if now := look(id.path); !id.same(now) || id.changed != now.changed {
			return id.path, true
		}
	}
	if pl.denyTree != nil {
		if err := pl.denyTree.look(); err != nil {
			return err.Error(), true
		}
		return pl.denyTree.uncovered(pl.matched)
	}
	return "", false
}
