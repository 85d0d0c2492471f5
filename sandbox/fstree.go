package sandbox

import (
	"context"
	"os"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// Mkdir makes one directory. It fails with fs.ErrExist when the path exists and with fs.ErrNotExist when its
// parent does not.
func (f FS) Mkdir(ctx context.Context, path string, perm os.FileMode) error {
	_, err := f.do(ctx, "mkdir", guestproto.File{Op: guestproto.OpMkdir, Path: path, Mode: uint32(perm.Perm())})
	return err
}

// Copy copies a regular file with its mode, a symbolic link as a link, or with recursive a directory into a
// new or an existing one. Special files inside a directory are left out, one by itself is syscall.EINVAL. A
// copy that fails halfway leaves what it made. Trees are bounded in depth (256) and names (1,000,000).
func (f FS) Copy(ctx context.Context, from, to string, recursive bool) error {
	req := guestproto.File{Op: guestproto.OpCopy, Path: from, To: to}
	if recursive {
		req.Flags = guestproto.FlagRecursive
	}
	_, err := f.do(ctx, "copy", req)
	return err
}
