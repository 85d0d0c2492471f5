package agent

import (
	"slices"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// outside reports whether the process may do what the thread may not do now: it
// was started without the sandbox, or before the thread's permissions were taken
// back. Of a process from before a restart only the former is known.
func (p *process) outside(s *heddlev1.ThreadSettings) bool {
	was := p.action.GetPolicy()
	return p.escalated || was != nil && wider(was, p.action.GetWorkspace(), s.GetSandbox(), s.GetCwd())
}

// wider reports whether one policy with its workspace lets something be done that
// another does not.
func wider(a *heddlev1.SandboxPolicy, aspace string, b *heddlev1.SandboxPolicy, bspace string) bool {
	switch {
	case !contained(b):
		return false
	case !contained(a), a.GetLevel() > b.GetLevel(), reach(a) > reach(b):
		return true
	case reach(a) == 1 && reach(b) == 1 && !sameLists(a, b):
		return true
	case slices.ContainsFunc(b.GetDenyRead(), func(d string) bool { return !slices.Contains(a.GetDenyRead(), d) }):
		return true
	case a.GetLevel() != heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE:
		return false
	}
	roots := append([]string{bspace}, b.GetWritableRoots()...)
	return a.GetGit() > b.GetGit() || a.GetHostTmp() && !b.GetHostTmp() ||
		slices.ContainsFunc(append([]string{aspace}, a.GetWritableRoots()...), func(r string) bool { return !slices.Contains(roots, r) })
}

func contained(p *heddlev1.SandboxPolicy) bool {
	return p.GetLevel() <= heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE
}

// reach orders networks: none, through the proxy, all.
func reach(p *heddlev1.SandboxPolicy) int {
	switch p.GetNetwork() {
	case heddlev1.NetworkMode_NETWORK_MODE_FULL:
		return 2
	case heddlev1.NetworkMode_NETWORK_MODE_PROXIED:
		return 1
	case heddlev1.NetworkMode_NETWORK_MODE_OFF, heddlev1.NetworkMode_NETWORK_MODE_UNSPECIFIED:
	}
	return 0
}

// sameLists reports whether two proxies let the same through.
func sameLists(a, b *heddlev1.SandboxPolicy) bool {
	return a.GetNetworkMiss() == b.GetNetworkMiss() && slices.Equal(a.GetNetworkAllow(), b.GetNetworkAllow()) &&
		slices.Equal(a.GetNetworkDeny(), b.GetNetworkDeny()) && slices.Equal(a.GetNetworkPorts(), b.GetNetworkPorts())
}
