package guest

import (
	"bytes"
	"errors"
	"os"
	"sort"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// file performs one file action and answers it.
func (s *server) file(m *guestproto.Msg) {
	fd, body, err := s.perform(m)
	switch {
	case err != nil:
		s.reply(m.ID, failure(err))
	case fd >= 0:
		s.reply(m.ID, guestproto.Reply{Body: body}, fd)
		unix.Close(fd)
	default:
		s.reply(m.ID, guestproto.Reply{Body: body})
	}
}

// perform does what a message asks for. The descriptor of a file that was opened for the owner is not negative.
func (s *server) perform(m *guestproto.Msg) (fd int, body []byte, err error) {
	f, err := guestproto.DecodeFile(m.Body)
	if err != nil {
		return -1, nil, err
	}
	switch f.Op {
	case guestproto.OpVerify:
		return -1, verify(f.Data), nil
	case guestproto.OpMounts:
		body, err = mountTable(f.Max)
		return -1, body, err
	}
	p, err := openPlace(f.Root)
	if err != nil {
		return -1, nil, err
	}
	defer p.close()
	if err := s.guarded(p, f); err != nil {
		return -1, nil, err
	}
	switch f.Op {
	case guestproto.OpRead:
		return readFile(p, f)
	case guestproto.OpStat:
		body, err = stat(p, f)
	case guestproto.OpReadDir:
		body, err = readDir(p, f)
	case guestproto.OpWrite:
		err = write(p, f, m)
	case guestproto.OpMkdirAll:
		err = mkdirAll(p, f)
	case guestproto.OpRemove:
		err = remove(p, f)
	case guestproto.OpRename:
		err = rename(p, f)
	case guestproto.OpMkdir:
		err = mkdir(p, f)
	case guestproto.OpCopy:
		err = copyPath(p, f)
	default:
		err = syscall.ENOSYS
	}
	return -1, body, err
}

func mkdirAll(p place, f guestproto.File) error {
	rel, err := p.rel(f.Path)
	if err != nil {
		return err
	}
	return p.mkdirAll(rel, f.Mode)
}

func fileStat(fd int) (guestproto.Stat, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return guestproto.Stat{}, err
	}
	r := guestproto.Stat{Dev: st.Dev, Ino: st.Ino, Mode: st.Mode, UID: st.Uid, GID: st.Gid, Nlink: uint64(st.Nlink), //nolint:unconvert // 32 bits on arm64

		Size: st.Size, MtimeNS: st.Mtim.Nano()}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		var b [unix.PathMax]byte
		if n, err := unix.Readlinkat(fd, "", b[:]); err == nil {
			r.Link = string(b[:n])
		}
	}
	return r, nil
}

func stat(p place, f guestproto.File) ([]byte, error) {
	flags := unix.O_PATH
	if f.Flags&guestproto.FlagNoFollow != 0 {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := p.open(f.Path, flags)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	st, err := fileStat(fd)
	if err != nil {
		return nil, err
	}
	var e guestproto.Enc
	st.Append(&e)
	return e.B, nil
}

// readFile opens a regular file for the owner. Opening never blocks and never takes a terminal.
func readFile(p place, f guestproto.File) (int, []byte, error) {
	fd, err := p.open(f.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return -1, nil, err
	}
	st, err := fileStat(fd)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		err = syscall.EISDIR
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = syscall.EINVAL
	case f.Max > 0 && st.Size > f.Max:
		err = syscall.EFBIG
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	var e guestproto.Enc
	st.Append(&e)
	return fd, e.B, nil
}

func readDir(p place, f guestproto.File) ([]byte, error) {
	fd, err := p.open(f.Path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), f.Path)
	defer dir.Close()
	list, err := dir.ReadDir(int(f.Max))
	if err != nil && len(list) == 0 && f.Max <= 0 {
		return nil, err
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name() < list[j].Name() })
	var e guestproto.Enc
	e.Uint(uint64(len(list)))
	for _, d := range list {
		e.Str(d.Name())
		e.Uint(uint64(d.Type()))
	}
	if len(e.B) > guestproto.MaxBody-4096 {
		return nil, syscall.EOVERFLOW
	}
	return e.B, nil
}

func remove(p place, f guestproto.File) error {
	dir, base, err := p.parent(f.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	err = unix.Unlinkat(dir, base, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
	}
	if f.Flags&guestproto.FlagRecursive == 0 || err == nil || !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return err
	}
	r, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(dir))
	if err != nil {
		return err
	}
	defer r.Close()
	return r.RemoveAll(base)
}

func rename(p place, f guestproto.File) error {
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
	var flags uint
	if f.Flags&guestproto.FlagNoReplace != 0 {
		flags = unix.RENAME_NOREPLACE
	}
	return unix.Renameat2(from, fromName, to, toName, flags)
}

// mountTable reads the mounts of the sandbox into about size bytes at once: there may be many thousands, and memory that
// grows step by step is paid for at each.
func mountTable(size int64) ([]byte, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := bytes.NewBuffer(make([]byte, 0, min(max(size, 4<<10), guestproto.MaxBody)))
	_, err = b.ReadFrom(f)
	return b.Bytes(), err
}

// verify describes names as the sandbox sees them, without following any link, so that the owner can compare
// them with what it meant to mount.
func verify(list []byte) []byte {
	d := guestproto.Dec{B: list}
	paths := d.Strs()
	var e guestproto.Enc
	e.Uint(uint64(len(paths)))
	for _, path := range paths {
		st := verifyOne(path)
		st.Append(&e)
	}
	return e.B
}

func verifyOne(path string) guestproto.Stat {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return guestproto.Stat{Absent: true}
	}
	defer unix.Close(fd)
	st, err := fileStat(fd)
	if err != nil {
		return guestproto.Stat{Absent: true}
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err == nil {
		st.ReadOnly = fs.Flags&unix.ST_RDONLY != 0
	}
	return st
}
