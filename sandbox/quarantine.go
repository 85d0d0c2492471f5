package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// openDir opens a directory by its real path. No component may be a link, so that a workspace whose directories are
// swapped for links while it is looked at leads nowhere else.
func openDir(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
}

// openBelow opens a file below dir without following any link.
func openBelow(dir int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: uint64(flags | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_BENEATH})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// errTooLong says that a file has more bytes than it may have.
var errTooLong = errors.New("file is too long")

// readBelow reads a regular file of at most limit bytes.
func readBelow(dir int, name string, limit int64) ([]byte, error) {
	f, err := openBelow(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = errTooLong
	}
	return b, err
}

// remove moves path into the quarantine. Across file systems it is copied. What cannot be moved is told.
func remove(path, quarantine, what string) Violation {
	v := Violation{Path: path, What: what}
	to, err := moveAway(path, quarantine)
	if err != nil {
		v.What += fmt.Sprintf("; it is still there: %v", err)
		return v
	}
	v.Quarantine = to
	return v
}

func moveAway(path, quarantine string) (string, error) {
	if err := mkdir(quarantine, 0o700); err != nil {
		return "", err
	}
	dir, err := openDir(filepath.Dir(path))
	if err != nil {
		return "", &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(dir)
	to := filepath.Join(quarantine, randomID()+"-"+filepath.Base(path))
	err = unix.Renameat(dir, filepath.Base(path), unix.AT_FDCWD, to)
	if errors.Is(err, unix.EACCES) && permit(dir, filepath.Base(path)) == nil {
		err = unix.Renameat(dir, filepath.Base(path), unix.AT_FDCWD, to)
	}
	if errors.Is(err, unix.EXDEV) {
		err = moveAcross(dir, filepath.Base(path), to)
	}
	if err != nil {
		return "", &os.PathError{Op: "move", Path: path, Err: err}
	}
	return to, nil
}

// permit gives us back the right to move a directory of ours, of which a command took it.
func permit(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return os.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700)
}

// maxCopy bounds what is copied of a file that goes to another file system.
const maxCopy = 16 << 20

// moveAcross takes a name out of use first, by renaming it in place, and then copies it. os.Root keeps the copy
// from following a link out of the tree.
func moveAcross(dir int, name, to string) error {
	aside := ".heddle-quarantine-" + randomID()
	if err := unix.Renameat(dir, name, dir, aside); err != nil {
		return err
	}
	r, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(dir))
	if err != nil {
		return err
	}
	defer r.Close()
	fi, err := r.Lstat(aside)
	if err != nil {
		return err
	}
	switch {
	case fi.IsDir():
		sub, err := r.OpenRoot(aside)
		if err != nil {
			return err
		}
		keepCopy(sub, to)
		sub.Close()
	case fi.Mode()&os.ModeSymlink != 0:
		if link, err := r.Readlink(aside); err == nil {
			_ = os.Symlink(link, to)
		}
	default:
		if b, err := readBelow(dir, aside, maxCopy); err == nil || errors.Is(err, errTooLong) {
			_ = os.WriteFile(to, b, 0o600)
		}
	}
	return r.RemoveAll(aside)
}

// maxKept bounds how many names are copied of a directory.
const maxKept = 10000

// keepCopy copies what it can of the directories and regular files in r, within the bounds: a command could have made
// more than fits where the copy goes. The rest is not worth keeping.
func keepCopy(r *os.Root, to string) {
	names, left := 0, int64(4*maxCopy)
	_ = fs.WalkDir(r.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir
		}
		if names++; names > maxKept || left <= 0 {
			return fs.SkipAll
		}
		at := filepath.Join(to, name)
		switch {
		case d.IsDir():
			return os.Mkdir(at, 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		from, err := r.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil
		}
		defer from.Close()
		fi, err := from.Stat()
		if err != nil || !fi.Mode().IsRegular() {
			return nil
		}
		out, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		n, err := io.Copy(out, io.LimitReader(from, min(left, maxCopy)))
		left -= n
		return errors.Join(err, out.Close())
	})
}

// replaceBelow keeps a copy of a file in the quarantine and gives it new content, with owner and mode kept.
func replaceBelow(dir int, name string, old, content []byte, quarantine string) (string, error) {
	if err := mkdir(quarantine, 0o700); err != nil {
		return "", err
	}
	to := filepath.Join(quarantine, randomID()+"-"+name)
	if err := os.WriteFile(to, old, 0o600); err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", err
	}
	tmp := ".heddle-" + randomID()
	nf, err := unix.Openat(dir, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(nf), tmp)
	_, err = f.Write(content)
	if err == nil {
		_ = unix.Fchown(nf, int(st.Uid), int(st.Gid)) // best effort: only root may
		err = unix.Fchmod(nf, st.Mode&0o777)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = unix.Renameat(dir, tmp, dir, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, tmp, 0)
	}
	return to, err
}
