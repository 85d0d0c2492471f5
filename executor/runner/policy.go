package runner

import (
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
)

// policy is what an action's sandbox enforces on this host.
func (r *Runner) policy(m *executorv1.Action) sandbox.Policy {
	p := policyOf(m)
	for _, at := range m.GetPlaces() {
		if at.GetHost() == r.host {
			p.Pins = append(p.Pins, sandbox.Pin{Path: at.GetPath(), Real: at.GetReal()})
		}
	}
	return p
}

// policyOf translates an action's policy. What is not said gets the strictest
// meaning.
func policyOf(m *executorv1.Action) sandbox.Policy {
	p := m.GetPolicy()
	out := sandbox.Policy{Level: sandbox.ReadOnly, Workspace: m.GetWorkspace(), Net: sandbox.NetOff, Tmp: sandbox.TmpPrivate}
	switch p.GetLevel() {
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE:
		out.Level, out.WritableRoots = sandbox.WorkspaceWrite, p.GetWritableRoots()
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS:
		out.Level = sandbox.FullAccess
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL:
		out.Level = sandbox.External
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, heddlev1.SandboxLevel_SANDBOX_LEVEL_UNSPECIFIED:
	}
	switch p.GetNetwork() {
	case heddlev1.NetworkMode_NETWORK_MODE_FULL:
		out.Net = sandbox.NetFull
	case heddlev1.NetworkMode_NETWORK_MODE_PROXIED:
		out.Net, out.Proxy = sandbox.NetProxied, listsOf(p)
	case heddlev1.NetworkMode_NETWORK_MODE_OFF, heddlev1.NetworkMode_NETWORK_MODE_UNSPECIFIED:
	}
	if p.GetHostTmp() && !p.GetExcludeSlashTmp() {
		out.Tmp = sandbox.TmpHost
	}
	if p.GetGit() == heddlev1.GitMode_GIT_MODE_COMMIT {
		out.Git = sandbox.GitCommit
	}
	if out.Level.Contained() {
		out.DenyRead = p.GetDenyRead()
	}
	if p.GetLandlockFallback() {
		out.Fallback = sandbox.FallbackLandlock
	}
	l := p.GetLimits()
	out.Limits = sandbox.Limits{
		MemoryBytes: l.GetMemoryBytes(), Pids: l.GetPids(), CPU: l.GetCpuMillis(), FileBytes: l.GetFileBytes(),
		TmpBytes: l.GetTmpBytes(), MinFreeBytes: l.GetMinFreeBytes(),
	}
	return out
}

// ReportOf translates what a probe found.
func ReportOf(r sandbox.Report) *heddlev1.SandboxReport {
	out := &heddlev1.SandboxReport{Backend: string(r.Backend), CgroupKill: r.CgroupKill, LandlockAbi: int32(r.Landlock)}
	for _, g := range r.Gaps {
		out.Gaps = append(out.Gaps, &heddlev1.SandboxGap{Guarantee: valid(g.Guarantee), Why: valid(g.Why), Fix: valid(g.Fix)})
	}
	if r.Cause != "" {
		out.Gaps = append(out.Gaps, &heddlev1.SandboxGap{Guarantee: gapContained, Why: valid(r.Cause), Fix: valid(r.Fix)})
	}
	if f := r.Fallback; f != nil {
		for _, g := range f.Gaps {
			out.FallbackGaps = append(out.FallbackGaps, &heddlev1.SandboxGap{Guarantee: valid(g.Guarantee), Why: valid(g.Why), Fix: valid(g.Fix)})
		}
	}
	for _, l := range []struct {
		level sandbox.Level
		wire  heddlev1.SandboxLevel
	}{
		{sandbox.ReadOnly, heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY},
		{sandbox.WorkspaceWrite, heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE},
		{sandbox.FullAccess, heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS},
		{sandbox.External, heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL},
	} {
		if r.Supports(l.level) {
			out.Levels = append(out.Levels, l.wire)
		} else if r.Fallback != nil && r.Fallback.Levels[l.level.String()] {
			out.FallbackLevels = append(out.FallbackLevels, l.wire)
		}
	}
	return out
}

// reportFor is the report of a thread whose policy may have needed the fallback: it is the backend then, and what it
// cannot give are gaps as any other.
func reportFor(r *heddlev1.SandboxReport, p sandbox.Policy) *heddlev1.SandboxReport {
	if p.Fallback != sandbox.FallbackLandlock || !p.Level.Contained() || len(r.GetFallbackLevels()) == 0 {
		return r
	}
	out := proto.CloneOf(r)
	out.Backend, out.Levels = string(sandbox.BackendLandlock), append(out.FallbackLevels, out.Levels...)
	out.Gaps, out.FallbackGaps, out.FallbackLevels = out.FallbackGaps, nil, nil
	for _, g := range r.GetGaps() {
		if g.GetGuarantee() != sandbox.GapLevels && g.GetGuarantee() != gapContained {
			out.Gaps = append(out.Gaps, g)
		}
	}
	return out
}

const gapContained = "contained levels"

// roots tells which paths a policy lets its commands write. It is for asking a
// person beforehand; the sandbox enforces.
type roots struct {
	all       bool
	dirs      []string
	protected []string
}

func rootsOf(p sandbox.Policy) roots {
	r := roots{protected: sandbox.DefaultProtected()}
	switch p.Level {
	case sandbox.FullAccess, sandbox.External:
		r.all = true
	case sandbox.WorkspaceWrite:
		for _, d := range append([]string{p.Workspace, "/tmp"}, p.WritableRoots...) {
			r.dirs = append(r.dirs, resolve(d))
		}
	case sandbox.ReadOnly:
	}
	return r
}

// writable reports whether a resolved path is below a root and not protected.
func (r roots) writable(path string) bool {
	if r.all {
		return true
	}
	inside := false
	for _, d := range r.dirs {
		rel, err := filepath.Rel(d, path)
		if err != nil || rel == "." || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		first, _, _ := strings.Cut(rel, "/")
		if slices.Contains(r.protected, first) {
			return false
		}
		inside = true
	}
	return inside
}

// resolve follows the symbolic links of the part of a path that exists.
func resolve(path string) string {
	path = filepath.Clean(path)
	rest := ""
	for p := path; ; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(real, rest)
		}
		if p == filepath.Dir(p) {
			return path
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

// valid makes text fit for a protobuf string.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
