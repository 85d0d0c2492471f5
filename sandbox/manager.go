package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

var errNotBuilt = errors.New("sandbox manager is not built yet")

// Manager makes, caches and ends sandboxes.
type Manager struct{}

// NewManager prepares the state directory and sweeps what dead owners left: processes, cgroups, files.
func NewManager(ctx context.Context, cfg Config) (*Manager, error) { return nil, errNotBuilt }

// Acquire returns the sandbox of (scope, p), making it when there is none yet. Concurrent calls share one
// creation. Acquire early to have it warm. The sandbox lives until Release or Close.
func (m *Manager) Acquire(ctx context.Context, scope string, p Policy) (*Sandbox, error) {
	return nil, errNotBuilt
}

// Release ends every sandbox of the scope with all its processes. Unknown scopes are not an error.
func (m *Manager) Release(ctx context.Context, scope string) error { return errNotBuilt }

// Close ends every sandbox and waits until nothing of them remains.
func (m *Manager) Close(ctx context.Context) error { return errNotBuilt }

// Probe does the real thing once and reports what holds on this host.
func Probe(ctx context.Context, cfg Config) Report { return Report{Backend: BackendNone} }

// Sandbox is one scope's containment under one policy. The instance behind it is replaced when it is stale
// or lost; processes that still run in an old instance keep it alive until they end.
type Sandbox struct{}

// Policy returns the normalized policy that is enforced.
func (s *Sandbox) Policy() Policy { return Policy{} }

// Start starts a command.
func (s *Sandbox) Start(ctx context.Context, c Cmd) (*Proc, error) { return nil, errNotBuilt }

// SetDeadline sets the fence: when t passes, the guest ends everything in the sandbox and itself, whether or
// not the owner still runs. A later call moves it; the zero time removes it.
func (s *Sandbox) SetDeadline(t time.Time) error { return errNotBuilt }

// FS returns file access performed inside the sandbox.
func (s *Sandbox) FS() FS { return FS{} }

// Close ends this sandbox with all its processes.
func (s *Sandbox) Close(ctx context.Context) error { return errNotBuilt }

// Proc is a started command. Close the streams when done; Wait must be called.
type Proc struct{}

// PID is the process id as commands in the sandbox see it.
func (p *Proc) PID() int { return 0 }

// Stdout is the read end of standard output, or the terminal's master. It ends (io.EOF) when every process of
// the command is gone.
func (p *Proc) Stdout() io.ReadCloser { return nil }

// Stderr is nil with TTY or MergeStderr.
func (p *Proc) Stderr() io.ReadCloser { return nil }

// Stdin is nil unless StdinPipe or TTY was asked for. Closing a terminal's Stdin sends end-of-file (^D).
func (p *Proc) Stdin() io.WriteCloser { return nil }

// Resize sets the terminal's size.
func (p *Proc) Resize(rows, cols uint16) error { return errNotBuilt }

// Signal sends a signal to the command's process group (a terminal's foreground group for SIGINT).
func (p *Proc) Signal(sig os.Signal) error { return errNotBuilt }

// Kill ends the command and everything it started. Wait reports it.
func (p *Proc) Kill() error { return errNotBuilt }

// Done is closed when the command and everything it started is gone.
func (p *Proc) Done() <-chan struct{} { return nil }

// Wait returns when the command and everything it started is gone. The error is only ctx's.
func (p *Proc) Wait(ctx context.Context) (Result, error) { return Result{}, errNotBuilt }

// FS is file access performed by the guest, so that the sandbox's mounts decide. Paths are absolute. Errors
// are *fs.PathError with the kernel's errno inside, so errors.Is works with fs.ErrNotExist, fs.ErrExist and
// fs.ErrPermission (a read-only path gives syscall.EROFS).
type FS struct{}

// ReadFile reads a regular file of at most maxBytes (0: 64 MiB); a larger one is ErrTooLarge.
func (f FS) ReadFile(ctx context.Context, path string, maxBytes int64) ([]byte, error) {
	return nil, errNotBuilt
}

// Stat follows symbolic links; Lstat does not.
func (f FS) Stat(ctx context.Context, path string) (FileInfo, error) { return FileInfo{}, errNotBuilt }

// Lstat describes the name itself.
func (f FS) Lstat(ctx context.Context, path string) (FileInfo, error) { return FileInfo{}, errNotBuilt }

// ReadDir lists at most max names (0: 100,000), sorted.
func (f FS) ReadDir(ctx context.Context, path string, max int) ([]DirEntry, error) {
	return nil, errNotBuilt
}

// WriteFile replaces or creates a file.
func (f FS) WriteFile(ctx context.Context, path string, data []byte, o WriteOptions) error {
	return errNotBuilt
}

// MkdirAll makes a directory and its missing parents.
func (f FS) MkdirAll(ctx context.Context, path string, perm os.FileMode) error { return errNotBuilt }

// Remove removes a file or an empty directory, or with recursive a whole tree.
func (f FS) Remove(ctx context.Context, path string, recursive bool) error { return errNotBuilt }

// Rename moves a file; with noReplace it fails with fs.ErrExist when the target exists.
func (f FS) Rename(ctx context.Context, from, to string, noReplace bool) error { return errNotBuilt }
