package guest

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

const (
	// maxCopyDepth and maxCopyNames bound the copy of one tree.
	maxCopyDepth = 256
	maxCopyNames = 1_000_000
)

// mkdir makes one directory, whose parent must be there.
func mkdir(p place, f guestproto.File) error {
	dir, base, err := p.parent(f.Path)
	if errors.Is(err, syscall.EBUSY) {
		return syscall.EEXIST // the root
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Mkdirat(dir, base, f.Mode)
}

// copyPath copies a file, a link itself, or with FlagRecursive a tree. Links inside a tree are copied as
// links, and no step below the two given paths follows one.
func copyPath(p place, f guestproto.File) error {
	from, fromName, err := p.parent(f.Path)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	to, toName, err := p.parent(f.To)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	c := copier{recursive: f.Flags&guestproto.FlagRecursive != 0}
	// The last link of the destination is followed, as a write to it would.
	if real, err := p.openRel(relOf(p, f.To), unix.O_PATH); err == nil {
		c.target = real
		defer unix.Close(real)
	}
	return c.entry(from, fromName, to, toName, 0)
}

func relOf(p place, path string) string {
	r, err := p.rel(path)
	if err != nil {
		return "."
	}
	return r
}

type copier struct {
	recursive bool
	// target is what the destination path led to before, 0 for nothing.
	target int
	names  int
	// top is the directory that is being filled; a tree that contains it is not copied for ever.
	top *unix.Stat_t
}

func (c *copier) entry(from int, fromName string, to int, toName string, depth int) error {
	if c.names++; c.names > maxCopyNames || depth > maxCopyDepth {
		return syscall.E2BIG
	}
	var st unix.Stat_t
	if err := unix.Fstatat(from, fromName, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return copyLink(from, fromName, to, toName)
	case unix.S_IFREG:
		return c.file(from, fromName, to, toName, depth)
	case unix.S_IFDIR:
		if !c.recursive {
			return syscall.EISDIR
		}
		return c.tree(from, fromName, to, toName, depth)
	}
	if depth > 0 {
		return nil // pipes, sockets and devices of a tree stay behind
	}
	return syscall.EINVAL
}

func copyLink(from int, fromName string, to int, toName string) error {
	var b [unix.PathMax]byte
	n, err := unix.Readlinkat(from, fromName, b[:])
	if err != nil {
		return err
	}
	return unix.Symlinkat(string(b[:n]), to, toName)
}

// file copies content and mode. A file that is there already keeps its inode, a new one appears at once.
func (c *copier) file(from int, fromName string, to int, toName string, depth int) error {
	fd, err := unix.Openat(from, fromName, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(fd), fromName)
	defer src.Close()
	st, err := fileStat(fd)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return syscall.EINVAL
	}
	old := c.target
	if depth > 0 {
		old, err = unix.Openat(to, toName, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			old, err = 0, nil
		}
		if err != nil {
			return err
		}
		if old > 0 {
			defer unix.Close(old)
		}
	}
	if old > 0 {
		return copyOver(src, st, old)
	}
	me := &guestproto.Stat{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	return replace(to, toName, src, written{mode: st.Mode & 0o7777, owner: me, fresh: true})
}

// copyOver gives an existing file the content and mode of another.
func copyOver(src io.Reader, st guestproto.Stat, old int) error {
	is, err := fileStat(old)
	switch {
	case err != nil:
		return err
	case is.Mode&unix.S_IFMT == unix.S_IFDIR:
		return syscall.EISDIR
	case is.Mode&unix.S_IFMT != unix.S_IFREG, is.Dev == st.Dev && is.Ino == st.Ino:
		return syscall.EINVAL
	}
	if err := inPlace(old, 0, src); err != nil {
		return err
	}
	return os.Chmod(procPath(old), os.FileMode(st.Mode&0o777))
}

func (c *copier) tree(from int, fromName string, to int, toName string, depth int) error {
	src, err := openDir(from, fromName)
	if err != nil {
		return err
	}
	defer src.Close()
	var here unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &here); err != nil {
		return err
	}
	if c.top != nil && here.Dev == c.top.Dev && here.Ino == c.top.Ino {
		return syscall.EINVAL
	}
	err = unix.Mkdirat(to, toName, here.Mode&0o777|0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	dst, err := c.openTarget(to, toName, depth)
	if err != nil {
		return err
	}
	defer dst.Close()
	if c.top == nil {
		c.top = new(unix.Stat_t)
		if err := unix.Fstat(int(dst.Fd()), c.top); err != nil {
			return err
		}
	}
	for {
		list, err := src.ReadDir(512)
		for _, e := range list {
			if err := c.entry(int(src.Fd()), e.Name(), int(dst.Fd()), e.Name(), depth+1); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func openDir(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openTarget opens the directory to fill; only the destination itself may be a link.
func (c *copier) openTarget(to int, toName string, depth int) (*os.File, error) {
	if depth == 0 && c.target > 0 {
		fd, err := unix.Open(procPath(c.target), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), toName), nil
	}
	return openDir(to, toName)
}

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
