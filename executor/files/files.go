// Package files does the file operations of clients through a sandbox's file
// access.
//
// What the operating system refuses, and what an operation refuses by itself, is
// an outcome with a fault; an error is returned only when the sandbox or the
// context ended. A write appears at once and whole: readers see the old content
// or the new one. Functions may be called concurrently.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/protobuf/encoding/protodelim"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
)

const (
	// MaxFile is the largest file that is read or written, in bytes.
	MaxFile = 64 << 20
	// MaxEntries is the largest folder that is listed.
	MaxEntries = 100_000
	// staleTries bounds the repetitions of a write whose link was changed under it.
	staleTries = 20
)

// FS is the file access, as sandbox.FS. Paths are absolute; errors carry an
// errno.
type FS interface {
	ReadFile(ctx context.Context, path string, maxBytes int64) ([]byte, error)
	Stat(ctx context.Context, path string) (sandbox.FileInfo, error)
	Lstat(ctx context.Context, path string) (sandbox.FileInfo, error)
	ReadDir(ctx context.Context, path string, max int) ([]sandbox.DirEntry, error)
	WriteFile(ctx context.Context, path string, data []byte, o sandbox.WriteOptions) error
	Mkdir(ctx context.Context, path string, perm os.FileMode) error
	MkdirAll(ctx context.Context, path string, perm os.FileMode) error
	Remove(ctx context.Context, path string, recursive bool) error
	Copy(ctx context.Context, from, to string, recursive bool) error
}

// Do does one operation. content is called for a write and returns what to
// write; out takes the content of a read, or the entries of a folder as
// length-delimited messages.
func Do(ctx context.Context, f FS, op *heddlev1.FileOperation, content func() ([]byte, error), out io.Writer) (*heddlev1.FileOutcome, error) {
	var err error
	switch o := op.GetOperation().(type) {
	case *heddlev1.FileOperation_Read:
		err = read(ctx, f, o.Read, out)
	case *heddlev1.FileOperation_Write:
		err = write(ctx, f, o.Write, content)
	case *heddlev1.FileOperation_CreateDirectory:
		err = createDirectory(ctx, f, o.CreateDirectory)
	case *heddlev1.FileOperation_ListDirectory:
		err = list(ctx, f, o.ListDirectory.GetPath(), out)
	case *heddlev1.FileOperation_Stat:
		var st *heddlev1.FileStatus
		if st, err = status(ctx, f, o.Stat.GetPath()); err == nil {
			return &heddlev1.FileOutcome{Outcome: &heddlev1.FileOutcome_Status{Status: st}}, nil
		}
	case *heddlev1.FileOperation_Remove:
		err = remove(ctx, f, o.Remove)
	case *heddlev1.FileOperation_Copy:
		err = copyPath(ctx, f, o.Copy)
	default:
		err = refuse(heddlev1.FileFault_KIND_UNSPECIFIED, "this executor does not know file operations of kind %T", o)
	}
	if err == nil {
		return &heddlev1.FileOutcome{Outcome: &heddlev1.FileOutcome_Done{Done: &heddlev1.FileDone{}}}, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if fault := Fault(err); fault != nil {
		return &heddlev1.FileOutcome{Outcome: &heddlev1.FileOutcome_Fault{Fault: fault}}, nil
	}
	return nil, err
}

// refusal is an operation that is refused before the operating system is asked.
type refusal struct{ fault *heddlev1.FileFault }

func (r *refusal) Error() string { return r.fault.GetMessage() }

func refuse(kind heddlev1.FileFault_Kind, format string, args ...any) error {
	return &refusal{&heddlev1.FileFault{Kind: kind, Message: fmt.Sprintf(format, args...)}}
}

// Fault describes an error of the operating system or a refusal; nil for any
// other error.
func Fault(err error) *heddlev1.FileFault {
	var r *refusal
	if errors.As(err, &r) {
		return r.fault
	}
	if errors.Is(err, sandbox.ErrTooLarge) {
		return &heddlev1.FileFault{Kind: heddlev1.FileFault_KIND_TOO_LARGE, Message: fmt.Sprintf("file is too large to read: limit is %d bytes", MaxFile)}
	}
	var no syscall.Errno
	if !errors.As(err, &no) {
		return nil
	}
	text := no.Error()
	return &heddlev1.FileFault{Kind: heddlev1.FileFault_KIND_SYSTEM, Errno: int32(no), Message: strings.ToUpper(text[:1]) + text[1:]}
}

func read(ctx context.Context, f FS, o *heddlev1.FileRead, out io.Writer) error {
	limit := o.GetMaxBytes()
	if limit <= 0 || limit > MaxFile {
		limit = MaxFile
	}
	data, err := f.ReadFile(ctx, o.GetPath(), limit)
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EINVAL) {
		return refuse(heddlev1.FileFault_KIND_NOT_A_FILE, "path is not a file")
	}
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

func write(ctx context.Context, f FS, o *heddlev1.FileWrite, content func() ([]byte, error)) error {
	if o.GetSize() > MaxFile {
		return refuse(heddlev1.FileFault_KIND_TOO_LARGE, "content is too large to write: limit is %d bytes", MaxFile)
	}
	data, err := content()
	if err != nil {
		return err
	}
	if int64(len(data)) != o.GetSize() {
		return fmt.Errorf("write %s: %d bytes of content came instead of %d", o.GetPath(), len(data), o.GetSize())
	}
	opts, at := sandbox.WriteOptions{}, o.GetPath()
	if st, err := f.Stat(ctx, o.GetPath()); err == nil && st.Nlink > 1 {
		opts.InPlace = true // the other names keep pointing to the same file
	}
	for range staleTries {
		err = f.WriteFile(ctx, at, data, opts)
		switch {
		case errors.Is(err, syscall.ESTALE):
			// A link on the way was exchanged; what it means now counts.
		case errors.Is(err, syscall.EEXIST):
			// A link to a file that is not there yet, or a name that came just now.
			if at, err = real(ctx, f, o.GetPath()); err != nil {
				return err
			}
		case !opts.InPlace && replaceRefused(err):
			// The folder takes no new names, or the name is a mount; the file
			// itself may still be writable.
			opts.InPlace, opts.MustExist = true, true
			if again := f.WriteFile(ctx, at, data, opts); !errors.Is(again, fs.ErrNotExist) {
				err = again
			}
			return err
		default:
			return err
		}
	}
	return err
}

func replaceRefused(err error) bool {
	for _, no := range []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.EBUSY, syscall.EROFS, syscall.EXDEV, syscall.ENAMETOOLONG} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

func createDirectory(ctx context.Context, f FS, o *heddlev1.DirectoryCreate) error {
	if !o.GetRecursive() {
		return f.Mkdir(ctx, o.GetPath(), 0o777)
	}
	err := f.MkdirAll(ctx, o.GetPath(), 0o777)
	if errors.Is(err, syscall.ENOTDIR) {
		if _, is := f.Lstat(ctx, o.GetPath()); is == nil {
			return syscall.EEXIST // the path itself is something else
		}
	}
	return err
}

func list(ctx context.Context, f FS, dir string, out io.Writer) error {
	names, err := f.ReadDir(ctx, dir, MaxEntries+1)
	if err != nil {
		return err
	}
	if len(names) > MaxEntries {
		return refuse(heddlev1.FileFault_KIND_TOO_LARGE, "directory is too large to read: limit is %d entries", MaxEntries)
	}
	for _, n := range names {
		e := &heddlev1.DirectoryEntry{Name: []byte(n.Name), IsDirectory: n.Type.IsDir(), IsFile: n.Type.IsRegular()}
		// A link leads elsewhere; some file systems tell no types.
		if n.Type&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
			if st, err := f.Stat(ctx, path.Join(dir, n.Name)); err == nil {
				e.IsDirectory, e.IsFile = st.Mode.IsDir(), st.Mode.IsRegular()
			} else if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		if _, err := protodelim.MarshalTo(out, e); err != nil {
			return err
		}
	}
	return nil
}

func status(ctx context.Context, f FS, p string) (*heddlev1.FileStatus, error) {
	st, err := f.Stat(ctx, p)
	if err != nil {
		return nil, err
	}
	name, err := f.Lstat(ctx, p)
	if err != nil {
		return nil, err
	}
	return &heddlev1.FileStatus{
		IsDirectory: st.Mode.IsDir(), IsFile: st.Mode.IsRegular(), IsSymlink: name.Mode&fs.ModeSymlink != 0,
		Size: st.Size, ModifiedMs: st.ModTime.UnixMilli(),
	}, nil
}

func remove(ctx context.Context, f FS, o *heddlev1.FileRemove) error {
	err := f.Remove(ctx, o.GetPath(), o.GetRecursive())
	if o.GetForce() && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func copyPath(ctx context.Context, f FS, o *heddlev1.FileCopy) error {
	st, err := f.Lstat(ctx, o.GetSource())
	if err != nil {
		return err
	}
	switch {
	case st.Mode.IsDir() && !o.GetRecursive():
		return refuse(heddlev1.FileFault_KIND_NOT_RECURSIVE, "a directory is copied with recursive only")
	case st.Mode.IsDir():
		inside, err := within(ctx, f, o.GetSource(), o.GetDestination())
		if err != nil {
			return err
		}
		if inside {
			return refuse(heddlev1.FileFault_KIND_INTO_ITSELF, "a directory cannot be copied into itself")
		}
	case !st.Mode.IsRegular() && st.Mode&fs.ModeSymlink == 0:
		return refuse(heddlev1.FileFault_KIND_SPECIAL_FILE, "only files, directories and links are copied")
	}
	return f.Copy(ctx, o.GetSource(), o.GetDestination(), o.GetRecursive())
}

// within reports whether dst leads to src or below it.
func within(ctx context.Context, f FS, src, dst string) (bool, error) {
	a, err := real(ctx, f, src)
	if err != nil {
		return false, err
	}
	b, err := real(ctx, f, dst)
	if err != nil {
		return false, err
	}
	return a == b || strings.HasPrefix(b, strings.TrimSuffix(a, "/")+"/"), nil
}

const maxLinks = 40

// real resolves the links of the part of a path that exists.
func real(ctx context.Context, f FS, p string) (string, error) {
	todo := strings.Split(path.Clean(p), "/")
	slices.Reverse(todo) // next part last
	at := "/"
	for links := 0; len(todo) > 0; {
		part := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		st, err := f.Lstat(ctx, next)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if err != nil || st.Mode&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		if path.IsAbs(st.Link) {
			at = "/"
		}
		target := strings.Split(st.Link, "/")
		slices.Reverse(target)
		todo = append(todo, target...)
	}
	return at, nil
}
