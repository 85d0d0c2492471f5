package guest

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// write creates or replaces a file. The new content appears at once, by rename, unless in place is asked for.
func write(p place, f guestproto.File, m *guestproto.Msg) error {
	src, closeSrc := source(f, m)
	defer closeSrc()
	rel, err := p.rel(f.Path)
	if err != nil {
		return err
	}
	if f.Flags&guestproto.FlagMkdirAll != 0 {
		if err := p.mkdirAll(filepath.Dir(rel), 0o777); err != nil {
			return err
		}
	}
	old, err := p.openRel(rel, unix.O_PATH)
	switch {
	case err == nil:
		defer unix.Close(old)
		if f.Flags&guestproto.FlagExclusive != 0 {
			return syscall.EEXIST
		}
		return p.overwrite(old, f, src)
	case !errors.Is(err, unix.ENOENT):
		return err
	case f.Flags&guestproto.FlagMustExist != 0:
		return syscall.ENOENT
	}
	dir, base, err := p.parent(f.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	mode := f.Mode
	if mode == 0 {
		mode = 0o666
	}
	return replace(dir, base, src, written{mode: mode, flags: f.Flags, fresh: true})
}

func source(f guestproto.File, m *guestproto.Msg) (io.Reader, func()) {
	if fd := m.TakeFile(0); fd >= 0 {
		file := os.NewFile(uintptr(fd), "data")
		return file, func() { file.Close() }
	}
	return strings.NewReader(string(f.Data)), func() {}
}

// overwrite gives an existing file new content. A symbolic link keeps pointing where it points: its target is
// written.
func (p place) overwrite(old int, f guestproto.File, src io.Reader) error {
	st, err := fileStat(old)
	if err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return syscall.EISDIR
	default:
		return syscall.EINVAL
	}
	if f.Flags&guestproto.FlagInPlace != 0 {
		return inPlace(old, f.Flags, src)
	}
	// The name by which the kernel knows the file, links resolved; checked to be the same file below.
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(old))
	if err != nil {
		return err
	}
	exact := place{root: "/", resolve: unix.RESOLVE_NO_SYMLINKS}
	if exact.fd, err = unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	defer exact.close()
	dir, base, err := exact.parent(real)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var now unix.Stat_t
	if err := unix.Fstatat(dir, base, &now, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if now.Dev != st.Dev || now.Ino != st.Ino {
		return syscall.ESTALE
	}
	if unix.Faccessat2(dir, base, unix.W_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW) != nil {
		// A file that may not be written must not be replaced either. The access check names the reason.
		return unix.Faccessat(dir, base, unix.W_OK, unix.AT_EACCESS)
	}
	return replace(dir, base, src, written{mode: st.Mode & 0o7777, owner: &st, flags: f.Flags})
}

func inPlace(old int, flags uint32, src io.Reader) error {
	out, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(old), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, src)
	if err == nil && flags&guestproto.FlagSync != 0 {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// written says what a file is like that is written.
type written struct {
	mode  uint32
	owner *guestproto.Stat // who has it then, with exactly that mode; nil: us, with the mode less the umask
	flags uint32
	fresh bool // it must not exist yet
}

// replace writes a temporary file in dir and renames it to base.
func replace(dir int, base string, src io.Reader, w written) (err error) {
	create := uint32(0o600)
	if w.fresh {
		create = w.mode
	}
	t, err := newTemp(dir, create)
	if err != nil {
		return err
	}
	defer func() { t.close(err != nil) }()
	if _, err = io.Copy(t.out, src); err != nil {
		return err
	}
	fd := int(t.out.Fd())
	if w.owner != nil {
		_ = unix.Fchown(fd, int(w.owner.UID), int(w.owner.GID)) // best effort: only root may
		if err = unix.Fchmod(fd, w.mode); err != nil {
			return err
		}
	}
	if w.flags&guestproto.FlagSync != 0 {
		if err = t.out.Sync(); err != nil {
			return err
		}
	}
	return t.rename(base, w.fresh)
}

// temp is a file that is being written in dir. It has no name before it is whole, where the file system can do
// that: a guest that is killed meanwhile leaves nothing behind.
type temp struct {
	dir   int
	name  string
	named bool
	out   *os.File
}

func newTemp(dir int, mode uint32) (*temp, error) {
	var rnd [8]byte
	rand.Read(rnd[:])
	t := &temp{dir: dir, name: ".heddle-" + hex.EncodeToString(rnd[:]) + ".tmp"}
	fd, err := unix.Openat(dir, ".", unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, mode)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		t.named = true
		fd, err = unix.Openat(dir, t.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	}
	if err != nil {
		return nil, err
	}
	t.out = os.NewFile(uintptr(fd), t.name)
	return t, nil
}

// rename gives the file its name, taking the place of what had it unless fresh is set.
func (t *temp) rename(base string, fresh bool) error {
	if !t.named {
		if err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(t.out.Fd())), t.dir, t.name, unix.AT_SYMLINK_FOLLOW); err != nil {
			return err
		}
		t.named = true
	}
	var flags uint
	if fresh {
		flags = unix.RENAME_NOREPLACE
	}
	return unix.Renameat2(t.dir, t.name, t.dir, base, flags)
}

// close ends the writing; with remove set the file goes.
func (t *temp) close(remove bool) {
	t.out.Close()
	if remove && t.named {
		_ = unix.Unlinkat(t.dir, t.name, 0)
	}
}
