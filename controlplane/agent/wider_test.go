package agent

import (
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// A process is outside when it may do anything that the thread may not do now.
func TestWider(t *testing.T) {
	const (
		ro, ww, full = heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
		off, all     = heddlev1.NetworkMode_NETWORK_MODE_OFF, heddlev1.NetworkMode_NETWORK_MODE_FULL
		proxied      = heddlev1.NetworkMode_NETWORK_MODE_PROXIED
	)
	type policy = heddlev1.SandboxPolicy
	for _, c := range []struct {
		name   string
		a      *policy
		aspace string
		b      *policy
		want   bool
	}{
		{"the same", &policy{Level: ww, Network: off, DenyRead: []string{"x"}}, "/w", &policy{Level: ww, Network: off, DenyRead: []string{"x"}}, false},
		{"less", &policy{Level: ro, Network: off}, "/w", &policy{Level: ww, Network: all}, false},
		{"full and full", &policy{Level: full, Network: all}, "/w", &policy{Level: full, Network: all}, false},
		{"full", &policy{Level: full, Network: all}, "/w", &policy{Level: ww, Network: all}, true},
		{"outside's sandbox", &policy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL}, "/w", &policy{Level: ww}, true},
		{"writes", &policy{Level: ww, Network: off}, "/w", &policy{Level: ro, Network: off}, true},
		{"network", &policy{Level: ro, Network: all}, "/w", &policy{Level: ro, Network: off}, true},
		{"network and proxy", &policy{Level: ro, Network: all}, "/w", &policy{Level: ro, Network: proxied}, true},
		{"proxy", &policy{Level: ro, Network: proxied}, "/w", &policy{Level: ro, Network: off}, true},
		{"other hosts", &policy{Level: ro, Network: proxied, NetworkAllow: []string{"a"}}, "/w", &policy{Level: ro, Network: proxied}, true},
		{"the same hosts", &policy{Level: ro, Network: proxied, NetworkAllow: []string{"a"}}, "/w", &policy{Level: ro, Network: proxied, NetworkAllow: []string{"a"}}, false},
		{"proxy and network", &policy{Level: ro, Network: proxied}, "/w", &policy{Level: ro, Network: all}, false},
		{"reads", &policy{Level: ro, Network: off}, "/w", &policy{Level: ro, Network: off, DenyRead: []string{"x"}}, true},
		{"root", &policy{Level: ww, WritableRoots: []string{"/r"}}, "/w", &policy{Level: ww}, true},
		{"workspace", &policy{Level: ww}, "/other", &policy{Level: ww}, true},
		{"workspace that is a root", &policy{Level: ww}, "/other", &policy{Level: ww, WritableRoots: []string{"/other"}}, false},
		{"reading elsewhere", &policy{Level: ro}, "/other", &policy{Level: ww}, false},
		{"git", &policy{Level: ww, Git: heddlev1.GitMode_GIT_MODE_COMMIT}, "/w", &policy{Level: ww}, true},
		{"tmp", &policy{Level: ww, HostTmp: true}, "/w", &policy{Level: ww}, true},
	} {
		if got := wider(c.a, c.aspace, c.b, "/w"); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
