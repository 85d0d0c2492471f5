package sandbox

import (
	"errors"
	"fmt"
)

// Backend names the mechanism that contains commands on this host.
type Backend string

const (
	BackendRoot Backend = "runc-root" // made by root
	BackendUser Backend = "runc-user" // made by an ordinary user in a user namespace
	BackendNone Backend = "none"      // contained levels fail
)

// Gap is one guarantee that does not hold on this host.
type Gap struct {
	Guarantee string `json:"guarantee"` // what is missing, in words of the attack table
	Why       string `json:"why"`       // the fact of this host that causes it
	Fix       string `json:"fix"`       // what the operator can do about it
}

// Report is what Probe found by doing the real thing once.
type Report struct {
	Backend Backend `json:"backend"`
	// Levels maps each level's name to whether it can be enforced.
	Levels map[string]bool `json:"levels"`
	// Cause and Fix say why contained levels cannot be enforced; empty when they can.
	Cause string `json:"cause,omitempty"`
	Fix   string `json:"fix,omitempty"`
	// UserNamespaces tells whether a user namespace can be made and used.
	UserNamespaces bool `json:"userNamespaces"`
	// CgroupKill: every command gets a cgroup of its own that the kernel ends as a whole.
	CgroupKill bool `json:"cgroupKill"`
	// Cgroup is the directory below which command cgroups are made; empty without CgroupKill.
	Cgroup string `json:"cgroup,omitempty"`
	// Controllers are the resource controllers (memory, pids, cpu) that can limit sandboxes.
	Controllers []string `json:"controllers,omitempty"`
	// DeniedPaths: what a policy denies to read is hidden, patterns included.
	DeniedPaths bool `json:"deniedPaths"`
	// Landlock is the ABI version of the kernel, 0 when it has none.
	Landlock int `json:"landlock"`
	// Kernel is the kernel's release.
	Kernel string `json:"kernel"`
	Gaps   []Gap  `json:"gaps,omitempty"`
	// Fallback is what Policy.Fallback would give; nil where namespaces work and nothing needs it.
	Fallback *FallbackReport `json:"fallback,omitempty"`
}

// Supports reports whether l can be enforced.
func (r Report) Supports(l Level) bool { return r.Levels[l.String()] }

// UnenforceableError says that a requested level cannot be enforced here. Nothing was run.
type UnenforceableError struct {
	Level Level
	Cause string // the fact of this host
	Fix   string // what to do about it
}

func (e *UnenforceableError) Error() string {
	if e.Fix == "" {
		return e.Reason()
	}
	return e.Reason() + "; to fix: " + e.Fix
}

// Reason is the error without the fix, for who tells that by itself.
func (e *UnenforceableError) Reason() string {
	return fmt.Sprintf("sandbox level %s cannot be enforced on this host: %s", e.Level, e.Cause)
}

var (
	// ErrClosed is returned by calls on a manager or sandbox that was closed or released.
	ErrClosed = errors.New("sandbox is closed")
	// ErrLost is returned when the sandbox ended while a call was in flight. The next call gets a new one.
	ErrLost = errors.New("sandbox lost")
	// ErrDiskFull is wrapped when a sandbox cannot be made because the file system of the state directory is full.
	ErrDiskFull = errors.New("the disk that holds the sandbox state is full")
	// ErrBadDir is wrapped by the error of Start for a working directory that does not exist or cannot be used.
	ErrBadDir = errors.New("working directory cannot be used")
	// ErrTooLarge is wrapped when a file is larger than the caller's limit.
	ErrTooLarge = errors.New("file is larger than the limit")
)
