package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Names of guarantees that hosts may lack.
const (
	GapLevels      = "read-only and workspace-write"
	GapCgroup      = "every command is ended as a whole by the kernel"
	GapLimits      = "memory, processor and counted process limits"
	GapUnixSockets = "unix sockets of the host are unreachable"
	GapDenied      = "denied paths cannot be read"
	GapSignals     = "commands of one sandbox cannot signal each other"
)

const landlockSignals = 6 // ABI with signal scopes

// Probe does the real thing once and reports what holds on this host. cfg.StateDir is used; a manager may be
// using it at the same time.
func Probe(ctx context.Context, cfg Config) Report {
	r := Report{Backend: BackendNone, Levels: map[string]bool{}, Landlock: landlockABI(), Kernel: kernelRelease()}
	m, err := NewManager(ctx, cfg)
	if err != nil {
		r.Cause = err.Error()
		r.Gaps = append(r.Gaps, Gap{"every level", err.Error(), unstartedFix(err)})
		return r
	}
	defer func() {
		if err := m.Close(context.WithoutCancel(ctx)); err != nil {
			r.Gaps = append(r.Gaps, Gap{"no residue", err.Error(), ""})
		}
	}()
	ws := filepath.Join(m.owner.dir, "probe")
	if err := os.Mkdir(ws, 0o755); err != nil {
		r.Cause = err.Error()
		return r
	}
	for _, l := range []Level{ReadOnly, WorkspaceWrite, FullAccess, External} {
		err := m.tryLevel(ctx, l, ws)
		r.Levels[l.String()] = err == nil
		var ue *UnenforceableError
		if errors.As(err, &ue) {
			r.Cause, r.Fix = ue.Cause, ue.Fix
		} else if err != nil {
			r.Cause = err.Error()
		}
	}
	if r.Supports(WorkspaceWrite) {
		r.UserNamespaces = true
		r.Backend = BackendUser
		if privileged() {
			r.Backend = BackendRoot
		}
	}
	if !r.Supports(WorkspaceWrite) {
		r.Fallback = m.probeFallback(ctx, ws)
	}
	r.CgroupKill, r.Cgroup = m.owner.cgroup != "", m.owner.cgroup
	if r.CgroupKill {
		r.Cgroup = filepath.Dir(m.owner.cgroup)
	}
	for _, c := range []string{"memory", "pids", "cpu"} {
		if m.limits.has(c) {
			r.Controllers = append(r.Controllers, c)
		}
	}
	if r.Supports(ReadOnly) {
		err := m.tryDenied(ctx, ws)
		if r.DeniedPaths = err == nil; !r.DeniedPaths {
			r.Gaps = append(r.Gaps, Gap{GapDenied, err.Error(), "leave patterns out of deny_read, or run the executor where it may enter the namespaces that it makes"})
		}
	}
	r.Gaps = append(r.Gaps, m.gaps(r)...)
	return r
}

// unstartedFix says what to do when not even a manager can be made.
func unstartedFix(err error) string {
	switch {
	case errors.Is(err, ErrDiskFull):
		return "free space on the file system of the home"
	case errors.Is(err, errNoHelper):
		return "put heddle-guest beside heddle or set HEDDLE_GUEST"
	}
	return "make the home writable for this user"
}

// tryLevel makes a sandbox and runs a command in it.
func (m *Manager) tryLevel(ctx context.Context, l Level, ws string) error {
	// The workspace lies in the denied state directory, so it is covered; that is enough to try the mounts.
	_, err := m.try(ctx, Policy{Level: l, Workspace: ws}, "true")
	return err
}

// tryDenied hides two files that every host has: the first by a mount, the second as the many are.
func (m *Manager) tryDenied(ctx context.Context, ws string) error {
	res, err := m.try(ctx, Policy{Level: ReadOnly, Workspace: ws, DenyRead: []string{"/etc/passw?", "/etc/grou?"}}, "sh", "-c", "! test -s /etc/passwd && ! test -s /etc/group")
	if err == nil && res.ExitCode != 0 {
		err = errors.New("a denied file could be read")
	}
	return err
}

func (m *Manager) try(ctx context.Context, p Policy, argv ...string) (Result, error) {
	s, err := m.Acquire(ctx, "probe", p)
	if err != nil {
		return Result{}, err
	}
	return runProbe(ctx, s, argv)
}

func runProbe(ctx context.Context, s *Sandbox, argv []string) (Result, error) {
	p, err := s.Start(ctx, Cmd{Argv: argv, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		return Result{}, err
	}
	res, err := p.Wait(ctx)
	p.Stdout().Close()
	p.Stderr().Close()
	if err == nil && res.SandboxLost {
		err = ErrLost
	}
	return res, err
}

func (m *Manager) gaps(r Report) []Gap {
	var g []Gap
	if !r.Supports(WorkspaceWrite) {
		g = append(g, Gap{GapLevels, r.Cause, r.Fix})
	}
	if !r.CgroupKill {
		g = append(g, Gap{GapCgroup, fmt.Sprintf("%v; a subreaper does it instead, which a command with full access can kill first", m.cgroupErr),
			"start heddle from a systemd unit with Delegate=yes, or as root with cgroup v2 mounted writable"})
	}
	if !m.limits.has("memory") || !m.limits.has("pids") || !m.limits.has("cpu") {
		g = append(g, Gap{GapLimits, "this process cannot make cgroups with the memory, pids and cpu controllers; the number of processes is limited without a count of hits",
			"start heddle from a systemd unit with Delegate=yes, or run the executor as root, or bound it as a whole from outside (systemd MemoryMax, TasksMax)"})
	}
	if r.Landlock < landlockSignals {
		g = append(g, Gap{GapSignals, fmt.Sprintf("the kernel has no Landlock ABI %d (it has %d)", landlockSignals, r.Landlock), "use kernel 6.12 or newer"})
	}
	if m.connectErr != nil {
		g = append(g, Gap{GapUnixSockets, fmt.Sprintf("%v, so sockets on disk are hidden one by one when a sandbox is made: one that the host binds later outside of /run, /tmp and /dev/shm can be connected to",
			m.connectErr), "use kernel 5.19 or newer with kernel.yama.ptrace_scope at most 1, or keep service sockets in /run"})
	}
	return g
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
