package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links a path may lead through, as in the kernel.
const maxLinks = 40

// root is a path that was followed once.
type root struct {
	named, real string
	links       []string // directories that hold the links on the way, each with links resolved
}

// resolve follows a path. All that is decided about it is decided on what this one walk saw: commands may change
// the path at any time.
func resolve(path string) (root, error) {
	r := root{named: path, real: "/"}
	rest := strings.Split(path, "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			r.real = filepath.Dir(r.real)
			continue
		}
		next := filepath.Join(r.real, name)
		to, err := os.Readlink(next)
		if errors.Is(err, syscall.EINVAL) { // no link
			r.real = next
			continue
		}
		if err != nil {
			return r, err
		}
		if r.links = append(r.links, r.real); len(r.links) > maxLinks {
			return r, &os.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
		}
		if filepath.IsAbs(to) {
			r.real = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return r, nil
}

// checkRoots refuses a root that links inside of another root lead out of it: commands can change those links, and
// would choose so what they may write next.
func checkRoots(roots []root) error {
	for _, r := range roots {
		for _, area := range roots {
			if area.real == r.real {
				continue
			}
			held := slices.ContainsFunc(r.links, func(dir string) bool { return within(dir, area.real) })
			if held && !within(r.real, area.real) {
				return fmt.Errorf("sandbox root %s is led to %s by a link inside of %s, which commands can change", r.named, r.real, area.real)
			}
		}
	}
	return nil
}

// checkReal fails when a resolved path leads through a link by now.
func checkReal(id identity) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, id.path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOSYS) {
		return nil // kernels before 5.6; the guest looks again
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
	}
	if err != nil || st.Dev != id.dev || st.Ino != id.ino {
		return fmt.Errorf("sandbox root %s changed while it was looked at", id.path)
	}
	return nil
}
