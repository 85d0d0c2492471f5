package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// FS is file access performed by the guest, so that the sandbox's mounts decide. Paths are absolute. Errors
// are *fs.PathError with the kernel's errno inside, so errors.Is works with fs.ErrNotExist, fs.ErrExist and
// fs.ErrPermission (a read-only path gives syscall.EROFS).
type FS struct{ s *Sandbox }

const (
	defaultReadMax = 64 << 20
	defaultDirMax  = 100_000
	inlineMax      = 64 << 10 // larger data goes in a memory file
)

// do performs one action in a live instance. Descriptors in the answer are the caller's.
func (f FS) do(ctx context.Context, name string, req guestproto.File, fds ...int) (answer, error) {
	for range 2 {
		b, err := f.s.use(ctx)
		if err != nil {
			return answer{}, err
		}
		sc := f.s.scanner()
		if !req.Op.Changes() {
			sc = nil
		}
		if sc != nil {
			sc.begin()
		}
		a, err := b.call(ctx, guestproto.KFile, req.Encode(), fds...)
		b.release()
		if sc != nil {
			sc.touched()
		}
		var ge *guestError
		switch {
		case err == nil:
			return a, nil
		case errors.As(err, &ge):
			return answer{}, &fs.PathError{Op: name, Path: req.Path, Err: ge.errno}
		case !errors.Is(err, ErrLost):
			return answer{}, err
		case req.Op.Changes():
			return answer{}, &fs.PathError{Op: name, Path: req.Path, Err: ErrLost} // it may have happened
		}
	}
	return answer{}, &fs.PathError{Op: name, Path: req.Path, Err: ErrLost}
}

// ReadFile reads a regular file of at most maxBytes (0: 64 MiB); a larger one is ErrTooLarge.
func (f FS) ReadFile(ctx context.Context, path string, maxBytes int64) ([]byte, error) {
	if maxBytes <= 0 {
		maxBytes = defaultReadMax
	}
	tooLarge := &fs.PathError{Op: "read", Path: path, Err: ErrTooLarge}
	a, err := f.do(ctx, "read", guestproto.File{Op: guestproto.OpRead, Path: path, Max: maxBytes})
	if errors.Is(err, syscall.EFBIG) {
		return nil, tooLarge
	}
	if err != nil {
		return nil, err
	}
	if len(a.files) != 1 {
		closeFDs(a.files)
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("guest sent no file")}
	}
	file := os.NewFile(uintptr(a.files[0]), path)
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err == nil && int64(len(data)) > maxBytes {
		return nil, tooLarge
	}
	return data, err
}

// Stat follows symbolic links; Lstat does not.
func (f FS) Stat(ctx context.Context, path string) (FileInfo, error) {
	return f.stat(ctx, "stat", path, 0)
}

// Lstat describes the name itself.
func (f FS) Lstat(ctx context.Context, path string) (FileInfo, error) {
	return f.stat(ctx, "lstat", path, guestproto.FlagNoFollow)
}

func (f FS) stat(ctx context.Context, name, path string, flags uint32) (FileInfo, error) {
	a, err := f.do(ctx, name, guestproto.File{Op: guestproto.OpStat, Path: path, Flags: flags})
	if err != nil {
		return FileInfo{}, err
	}
	d := guestproto.Dec{B: a.Body}
	st := guestproto.TakeStat(&d)
	return FileInfo{Mode: fileMode(st.Mode), Size: st.Size, ModTime: time.Unix(0, st.MtimeNS), Link: st.Link,
		UID: st.UID, GID: st.GID, Nlink: st.Nlink}, d.Err
}

// fileMode translates the kernel's st_mode.
func fileMode(m uint32) os.FileMode {
	mode := os.FileMode(m & 0o777)
	for bit, f := range map[uint32]os.FileMode{unix.S_ISUID: os.ModeSetuid, unix.S_ISGID: os.ModeSetgid, unix.S_ISVTX: os.ModeSticky} {
		if m&bit != 0 {
			mode |= f
		}
	}
	switch m & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= os.ModeDir
	case unix.S_IFLNK:
		mode |= os.ModeSymlink
	case unix.S_IFIFO:
		mode |= os.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= os.ModeSocket
	case unix.S_IFBLK:
		mode |= os.ModeDevice
	case unix.S_IFCHR:
		mode |= os.ModeDevice | os.ModeCharDevice
	}
	return mode
}

// ReadDir lists at most max names (0: 100,000), sorted.
func (f FS) ReadDir(ctx context.Context, path string, max int) ([]DirEntry, error) {
	if max <= 0 {
		max = defaultDirMax
	}
	a, err := f.do(ctx, "readdir", guestproto.File{Op: guestproto.OpReadDir, Path: path, Max: int64(max)})
	if err != nil {
		return nil, err
	}
	d := guestproto.Dec{B: a.Body}
	list := make([]DirEntry, 0, min(d.Uint(), uint64(max)))
	for range cap(list) {
		list = append(list, DirEntry{Name: d.Str(), Type: os.FileMode(d.Uint())})
	}
	return list, d.Err
}

// WriteFile replaces or creates a file.
func (f FS) WriteFile(ctx context.Context, path string, data []byte, o WriteOptions) error {
	req := guestproto.File{Op: guestproto.OpWrite, Path: path, Root: o.Root, Mode: uint32(o.Mode.Perm())}
	for bit, on := range map[uint32]bool{guestproto.FlagExclusive: o.Exclusive, guestproto.FlagMustExist: o.MustExist,
		guestproto.FlagMkdirAll: o.MkdirAll, guestproto.FlagInPlace: o.InPlace, guestproto.FlagSync: o.Sync} {
		if on {
			req.Flags |= bit
		}
	}
	if len(data) <= inlineMax {
		req.Data = data
		_, err := f.do(ctx, "write", req)
		return err
	}
	fd, err := unix.MemfdCreate("heddle-data", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	mem := os.NewFile(uintptr(fd), "heddle-data")
	defer mem.Close()
	if _, err := mem.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if _, err := mem.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.do(ctx, "write", req, fd)
	return err
}

// MkdirAll makes a directory and its missing parents.
func (f FS) MkdirAll(ctx context.Context, path string, perm os.FileMode) error {
	_, err := f.do(ctx, "mkdir", guestproto.File{Op: guestproto.OpMkdirAll, Path: path, Mode: uint32(perm.Perm())})
	return err
}

// Remove removes a file or an empty directory, or with recursive a whole tree.
func (f FS) Remove(ctx context.Context, path string, recursive bool) error {
	req := guestproto.File{Op: guestproto.OpRemove, Path: path}
	if recursive {
		req.Flags = guestproto.FlagRecursive
	}
	_, err := f.do(ctx, "remove", req)
	return err
}

// Rename moves a file; with noReplace it fails with fs.ErrExist when the target exists.
func (f FS) Rename(ctx context.Context, from, to string, noReplace bool) error {
	req := guestproto.File{Op: guestproto.OpRename, Path: from, To: to}
	if noReplace {
		req.Flags = guestproto.FlagNoReplace
	}
	_, err := f.do(ctx, "rename", req)
	return err
}
