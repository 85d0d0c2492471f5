// Package sandbox runs commands and file actions at a stated level of containment, enforced by the kernel.
//
// A Manager keeps one long-lived sandbox per scope (a thread, a connection, a task) and policy. Inside it a
// small program, the guest, starts commands on request; standard streams are passed to it as descriptors,
// so output never goes through it. Guarantees:
//
//   - A level is enforced or the call fails with *UnenforceableError; there is no silent fallback.
//   - When Wait returns, every process the command started is gone, and its output reads to EOF.
//   - When the guest or the process that owns the Manager dies by any cause, everything in its sandboxes ends.
//   - Mounts are compared with the host before every call; a stale sandbox is replaced without the caller noticing.
//   - Nothing is created in a workspace by this package.
//
// All exported methods may be called concurrently. Linux only.
package sandbox

import (
	"log/slog"
	"os"
	"time"
)

// Config configures a Manager.
type Config struct {
	// StateDir is an absolute directory for bookkeeping, mode 0700; it is created when missing, and is never
	// readable inside a contained sandbox. Several managers may share it.
	StateDir string
	// Hide are more paths that are never readable inside a contained sandbox, as in Policy.DenyRead.
	Hide []string
	// Keep are directories that contained commands never change, in whatever root they lie, also as the workspace. One
	// that Policy.WritableRoots names, and a root within one, are writable.
	Keep []string
	// GuestPath is the helper binary. Empty: the embedded one, else $HEDDLE_GUEST, else heddle-guest beside
	// the executable.
	GuestPath string
	// Home is the home folder whose git configuration counts; see docs/git.md. Default: $HOME.
	Home string
	// Logger receives diagnostics. Default: discard.
	Logger *slog.Logger
	// DrainGrace is how long leftovers of a finished command may finish writing before they are killed
	// (`exec > >(tee log)`). Default 100 ms.
	DrainGrace time.Duration
	// Existing makes NewManager fail, instead of making the directories above StateDir, when they are gone. It is
	// for work in the background that must not bring back what was deleted meanwhile.
	Existing bool
	// IdleAfter is how long an instance may be unused before it is ended, when its private /tmp and /dev/shm are
	// empty. Default 10 minutes; negative means for ever.
	IdleAfter time.Duration
	// NoNamespaces makes the manager act as on a host without usable namespaces.
	NoNamespaces bool
	// NoCgroup makes the manager act as on a host without a usable cgroup v2 hierarchy.
	NoCgroup bool
}

// StdinMode says what a command reads as standard input.
type StdinMode uint8

const (
	StdinNone StdinMode = iota // /dev/null
	StdinPipe                  // Proc.Stdin, until closed
)

// Cmd describes one command.
type Cmd struct {
	// Argv is the program and its arguments, byte-exact. A program without a slash is looked up in the PATH
	// of Env, inside the sandbox. A missing program is not an error of Start: the result is exit code 127 and
	// one line on standard error, 126 for one that cannot be executed.
	Argv []string
	// Env is the whole environment, passed as given (see FilterEnv), except that TMPDIR is set to /tmp when it
	// is present and /tmp is private, and that a proxied network sets the variables that name its proxy.
	Env []string
	// Dir is the working directory as an absolute path; empty means the workspace. One that does not exist,
	// or that lies in /proc, makes Start fail with ErrBadDir.
	Dir string
	// TTY gives the command a terminal of Rows x Cols as all three streams; Stdin and Stdout are its master.
	TTY        bool
	Rows, Cols uint16
	// Stdin is ignored with TTY.
	Stdin StdinMode
	// MergeStderr sends standard error to the same pipe as standard output; Proc.Stderr is then nil.
	MergeStderr bool
	// Timeout ends the command, with everything it started, when it is positive and has passed.
	Timeout time.Duration
	// Network takes part in the decisions of a proxied network.
	Network Network
}

// Violation is something a command did that its policy forbids and no mount could prevent.
type Violation struct {
	// Path is where it was found.
	Path string
	// What says what happened, for people.
	What string
	// Quarantine is where it was moved to; empty if it was left in place.
	Quarantine string
}

// Result is how a command ended. Facts come from the kernel, not from guesses about exit codes.
type Result struct {
	// ExitCode is the exit status, or 128+Signal when a signal ended the command.
	ExitCode int
	// Signal that ended the command, 0 for a normal exit.
	Signal int
	// TimedOut: Cmd.Timeout passed and the command was killed for it.
	TimedOut bool
	// Killed: Proc.Kill ended the command.
	Killed bool
	// OOMKilled, PidsHit: a limit of the sandbox was hit while the command ran, by the kernel's counters.
	OOMKilled, PidsHit bool
	// DiskLow: the command was ended because it left less than Limits.MinFreeBytes.
	DiskLow bool
	// SandboxLost: the guest died; how the command ended is not known.
	SandboxLost bool
	// Leftovers tells that processes were still alive after the main process ended and were killed.
	Leftovers bool
	// Duration from start to the end of the main process.
	Duration time.Duration
	// UserTime and SystemTime of the main process and the children it waited for.
	UserTime, SystemTime time.Duration
	Violations           []Violation
}

// FileInfo describes a file as the guest sees it.
type FileInfo struct {
	Mode    os.FileMode // type and permission bits
	Size    int64
	ModTime time.Time
	Link    string // target, for a symbolic link
	UID     uint32
	GID     uint32
	Nlink   uint64
}

// DirEntry is one name in a directory.
type DirEntry struct {
	Name string
	Type os.FileMode // type bits only
}

// WriteOptions controls FS.WriteFile.
type WriteOptions struct {
	// Root, when set, confines the write: the path must lie below this directory and no step may leave it.
	Root string
	// Mode are the permission bits of a new file before umask. Default 0666. An existing file keeps its mode.
	Mode os.FileMode
	// Exclusive makes the write fail with fs.ErrExist when the path exists.
	Exclusive bool
	// MustExist makes it fail with fs.ErrNotExist when the path does not.
	MustExist bool
	// MkdirAll creates missing parent directories.
	MkdirAll bool
	// InPlace writes through the existing file (keeping hard links and the inode) instead of replacing it by
	// rename. The default is to write a temporary file beside it and rename.
	InPlace bool
	// Sync makes the data durable before the call returns.
	Sync bool
}
