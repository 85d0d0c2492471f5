package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heddle-dev/heddle/sandbox/netproxy"
)

// Level says what commands may change. The zero value is ReadOnly.
type Level uint8

const (
	// ReadOnly: the whole host file system is visible and nothing of it can be written. /tmp, /run and
	// /dev/shm are private to the sandbox and vanish with it.
	ReadOnly Level = iota
	// WorkspaceWrite: as ReadOnly, but the workspace and the extra writable roots can be written, apart
	// from the protected names in them.
	WorkspaceWrite
	// FullAccess: no containment. Processes still get their own session and kill domain, a fence, a
	// clean descriptor table and exactly the environment given.
	FullAccess
	// External: somebody else contains this process. Runs like FullAccess and says so.
	External
)

var levelNames = [...]string{"read-only", "workspace-write", "danger-full-access", "external-sandbox"}

// String returns the name used in settings and reports.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// ParseLevel is the inverse of String.
func ParseLevel(s string) (Level, error) {
	if i := slices.Index(levelNames[:], s); i >= 0 {
		return Level(i), nil
	}
	return 0, fmt.Errorf("unknown sandbox level %q (want one of %s)", s, strings.Join(levelNames[:], ", "))
}

// Contained reports whether the level puts commands into namespaces.
func (l Level) Contained() bool { return l == ReadOnly || l == WorkspaceWrite }

// TmpMode says what commands see as /tmp.
type TmpMode uint8

const (
	// TmpPrivate is an empty, bounded in-memory /tmp that lives as long as the sandbox.
	TmpPrivate TmpMode = iota
	// TmpHost is the host's /tmp, writable at WorkspaceWrite.
	TmpHost
)

// NetMode says which network commands have.
type NetMode uint8

const (
	// NetOff is a network namespace of its own in which only loopback exists, and works.
	NetOff NetMode = iota
	// NetFull is the host's network, its loopback and abstract sockets included.
	NetFull
	// NetProxied is NetOff with one way out: a proxy on 127.0.0.1 that decides about each destination by
	// Policy.Proxy and Cmd.Network, and that HTTP_PROXY and the like name. Contained levels only.
	NetProxied
)

// Fallback says what to do where a contained level cannot be enforced with namespaces.
type Fallback uint8

const (
	// FallbackNone fails.
	FallbackNone Fallback = iota
	// FallbackLandlock contains commands with Landlock and a system call filter instead. It cannot give everything
	// that namespaces do, see LandlockGaps; policies that ask for what it cannot do at all still fail.
	FallbackLandlock
)

// GitMode says what WorkspaceWrite commands may do to the repository of a writable root.
type GitMode uint8

const (
	// GitProtected keeps .git read-only.
	GitProtected GitMode = iota
	// GitCommit lets git add, commit, branch, stash, rebase and use worktrees, also in a linked worktree and a
	// submodule whose git directory lies elsewhere. What could make git run something later (hooks,
	// configuration, attributes, links to other directories) stays read-only, or is moved away and told.
	GitCommit
)

const gitName = ".git"

// Limits bounds what the commands of one sandbox may use. Zero means the stated default. A limit that
// the host cannot enforce appears as a Gap in Report.
type Limits struct {
	// MemoryBytes is the memory of all processes of the sandbox together. Default: none.
	MemoryBytes int64
	// Pids is the number of tasks of the sandbox, the guest's own (about 10) included. Default 4096 at contained
	// levels, else none; negative means none. Without a cgroup controller it is enforced per user namespace, at
	// contained levels of an ordinary user, and hits are not counted.
	Pids int64
	// CPU is the processor time of all processes of the sandbox together, in thousandths of one processor.
	// Default: none.
	CPU int64
	// TmpBytes caps the private /tmp. Default 1 GiB.
	TmpBytes int64
	// FileBytes caps the size of any one file written (RLIMIT_FSIZE). Default: none.
	FileBytes int64
	// MinFreeBytes ends a command when it leaves less than this on a file system that it can write (the
	// workspace's at full access). Default 64 MiB; negative means none.
	MinFreeBytes int64
}

func (l Limits) normalized(level Level) Limits {
	if l.TmpBytes <= 0 {
		l.TmpBytes = 1 << 30
	}
	if l.Pids == 0 && level.Contained() {
		l.Pids = 4096
	}
	if l.MinFreeBytes == 0 {
		l.MinFreeBytes = 64 << 20
	}
	return l
}

// DefaultProtected are the names that stay read-only directly under each writable root.
func DefaultProtected() []string { return []string{".git", ".codex", ".agents", ".heddle"} }

// Policy is what a sandbox enforces. It is a value: two equal policies of one scope share a sandbox.
type Policy struct {
	Level Level
	// Workspace is an absolute path. At WorkspaceWrite it is the first writable root.
	Workspace string
	// WritableRoots are further absolute paths that WorkspaceWrite can write.
	WritableRoots []string
	// Pins say where the workspace and the writable roots led when they were given. Acquire, and every call on a
	// sandbox, fails with *MovedError when one of them leads elsewhere.
	Pins []Pin
	// Protected are names directly under each writable root that stay read-only. nil means
	// DefaultProtected; an empty, non-nil slice protects nothing.
	Protected []string
	// DenyRead are paths that commands must not be able to read: a directory appears empty, a file appears empty. They
	// are absolute, below ~, or below the workspace and each writable root. With * ? or [...] they are patterns, in
	// which ** stands for any number of folders. The manager's own state directory is always denied.
	DenyRead []string
	Tmp      TmpMode
	Net      NetMode
	// Fallback is about hosts without usable namespaces.
	Fallback Fallback
	// Git is about the protected name .git; it has no effect when that is not protected.
	Git GitMode
	// Proxy are the destinations of NetProxied; ignored at other modes.
	Proxy  netproxy.Lists
	Limits Limits
}

// normalized returns p with defaults filled in and paths cleaned and sorted, or says what is wrong.
func (p Policy) normalized() (Policy, error) {
	if int(p.Level) >= len(levelNames) {
		return p, fmt.Errorf("sandbox policy: unknown level %d", p.Level)
	}
	if p.Git > GitCommit {
		return p, fmt.Errorf("sandbox policy: unknown git mode %d", p.Git)
	}
	if p.Protected == nil {
		p.Protected = DefaultProtected()
	}
	for _, n := range p.Protected {
		if n == "" || n == "." || n == ".." || strings.ContainsAny(n, "/\x00") {
			return p, fmt.Errorf("sandbox policy: protected name %q is not a plain file name", n)
		}
	}
	if p.Workspace == "" && p.Level == WorkspaceWrite {
		return p, fmt.Errorf("sandbox policy: level %s needs a workspace", p.Level)
	}
	var err error
	if p.Proxy, err = p.normalizedProxy(); err != nil {
		return p, err
	}
	clean := func(what, path string) string {
		if err == nil && (!filepath.IsAbs(path) || strings.ContainsRune(path, 0)) {
			err = fmt.Errorf("sandbox policy: %s %q is not an absolute path", what, path)
		}
		return filepath.Clean(path)
	}
	if p.Workspace != "" {
		p.Workspace = clean("workspace", p.Workspace)
	}
	list := func(what string, in []string) []string {
		out := make([]string, 0, len(in))
		for _, s := range in {
			out = append(out, clean(what, s))
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	p.WritableRoots = list("writable root", p.WritableRoots)
	if perr := p.normalizePins(); err == nil {
		err = perr
	}
	if derr := checkDenied(p.DenyRead); err == nil {
		err = derr
	}
	p.DenyRead = slices.Compact(slices.Sorted(slices.Values(p.DenyRead)))
	p.Protected = slices.Compact(slices.Sorted(slices.Values(p.Protected)))
	p.Limits = p.Limits.normalized(p.Level)
	return p, err
}

// Key identifies a policy: equal keys mean equal enforcement.
func (p Policy) Key() string {
	b, err := json.Marshal(p)
	if err != nil { // only plain fields: cannot fail
		return err.Error()
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}
