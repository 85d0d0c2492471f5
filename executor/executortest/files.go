package executortest

import (
	"context"
	"io/fs"
	"os"
	"syscall"

	"github.com/heddle-dev/heddle/sandbox"
)

func (noFiles) ReadDir(_ context.Context, path string, _ int) ([]sandbox.DirEntry, error) {
	return nil, &fs.PathError{Op: "readdir", Path: path, Err: syscall.ENOENT}
}

func (noFiles) Mkdir(context.Context, string, os.FileMode) error { return errNoFiles }
func (noFiles) Copy(context.Context, string, string, bool) error { return errNoFiles }
