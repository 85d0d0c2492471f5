package guest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// place resolves paths: from the root of the sandbox's view, or confined below a directory. No step goes
// through a magic link of /proc. The mounts decide what may be written; this decides what a name means.
type place struct {
	fd      int
	root    string
	resolve uint64
}

func openPlace(root string) (place, error) {
	p := place{root: "/", resolve: unix.RESOLVE_NO_MAGICLINKS}
	if root != "" {
		p.root, p.resolve = filepath.Clean(root), unix.RESOLVE_NO_MAGICLINKS|unix.RESOLVE_BENEATH
	}
	var err error
	p.fd, err = unix.Openat2(unix.AT_FDCWD, p.root, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return p, &os.PathError{Op: "open", Path: p.root, Err: err}
	}
	return p, nil
}

func (p place) close() { unix.Close(p.fd) }

// rel makes path relative to the place.
func (p place) rel(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", syscall.EINVAL
	}
	r, err := filepath.Rel(p.root, filepath.Clean(path))
	if err != nil || r == ".." || strings.HasPrefix(r, "../") {
		return "", syscall.EXDEV
	}
	return r, nil
}

// open opens path inside the place.
func (p place) open(path string, flags int) (int, error) {
	r, err := p.rel(path)
	if err != nil {
		return -1, err
	}
	return p.openRel(r, flags)
}

func (p place) openRel(rel string, flags int) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: p.resolve}
	for {
		fd, err := unix.Openat2(p.fd, rel, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) { // EAGAIN: a rename raced the lookup
			return fd, err
		}
	}
}

// parent opens the directory that holds path and returns the last name in it.
func (p place) parent(path string) (dir int, base string, err error) {
	r, err := p.rel(path)
	if err != nil {
		return -1, "", err
	}
	if r == "." {
		return -1, "", syscall.EBUSY
	}
	dir, err = p.openRel(filepath.Dir(r), unix.O_PATH|unix.O_DIRECTORY)
	return dir, filepath.Base(r), err
}

// mkdirAll makes the directory rel below the place with its parents.
func (p place) mkdirAll(rel string, mode uint32) error {
	fd, err := p.openRel(rel, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		return unix.Close(fd)
	}
	if !errors.Is(err, unix.ENOENT) || rel == "." {
		return err
	}
	if err := p.mkdirAll(filepath.Dir(rel), mode); err != nil {
		return err
	}
	dir, err := p.openRel(filepath.Dir(rel), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Mkdirat(dir, filepath.Base(rel), mode); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
