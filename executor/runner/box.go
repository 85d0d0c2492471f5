package runner

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
)

// Boxes makes and ends sandboxes; *sandbox.Manager through Sandboxes is one.
type Boxes interface {
	Acquire(ctx context.Context, scope string, p sandbox.Policy) (Box, error)
	Release(ctx context.Context, scope string) error
}

// Box is one sandbox.
type Box interface {
	Start(ctx context.Context, c sandbox.Cmd) (Process, error)
	SetDeadline(t time.Time) error
	FS() Files
}

// Process is a started command, as *sandbox.Proc.
type Process interface {
	PID() int
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	Stdin() io.WriteCloser
	Resize(rows, cols uint16) error
	Signal(sig os.Signal) error
	Kill() error
	Done() <-chan struct{}
	Wait(ctx context.Context) (sandbox.Result, error)
}

// Files is file access inside a sandbox, as sandbox.FS.
type Files interface {
	ReadFile(ctx context.Context, path string, maxBytes int64) ([]byte, error)
	Stat(ctx context.Context, path string) (sandbox.FileInfo, error)
	Lstat(ctx context.Context, path string) (sandbox.FileInfo, error)
	WriteFile(ctx context.Context, path string, data []byte, o sandbox.WriteOptions) error
	MkdirAll(ctx context.Context, path string, perm os.FileMode) error
	Remove(ctx context.Context, path string, recursive bool) error
	Rename(ctx context.Context, from, to string, noReplace bool) error
	ReadDir(ctx context.Context, path string, max int) ([]sandbox.DirEntry, error)
	Mkdir(ctx context.Context, path string, perm os.FileMode) error
	Copy(ctx context.Context, from, to string, recursive bool) error
}

// Sandboxes is the Boxes of a sandbox manager.
type Sandboxes struct{ Manager *sandbox.Manager }

// Acquire implements Boxes.
func (s Sandboxes) Acquire(ctx context.Context, scope string, p sandbox.Policy) (Box, error) {
	b, err := s.Manager.Acquire(ctx, scope, p)
	if err != nil {
		return nil, err
	}
	return box{b}, nil
}

// Release implements Boxes.
func (s Sandboxes) Release(ctx context.Context, scope string) error {
	return s.Manager.Release(ctx, scope)
}

type box struct{ *sandbox.Sandbox }

func (b box) Start(ctx context.Context, c sandbox.Cmd) (Process, error) {
	p, err := b.Sandbox.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (b box) FS() Files { return b.Sandbox.FS() }
