package actionhash_test

import (
	"encoding/hex"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
)

func policy() *heddlev1.SandboxPolicy {
	return &heddlev1.SandboxPolicy{
		Level:         heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE,
		WritableRoots: []string{"/srv/a"},
		Network:       heddlev1.NetworkMode_NETWORK_MODE_OFF,
	}
}

func proxied() *heddlev1.SandboxPolicy {
	p := policy()
	p.Network = heddlev1.NetworkMode_NETWORK_MODE_PROXIED
	p.NetworkAllow, p.NetworkDeny = []string{"example.org", "*.test:8080"}, []string{"bad.test"}
	p.NetworkPorts, p.NetworkMiss = []uint32{443, 8443}, heddlev1.NetworkMiss_NETWORK_MISS_ASK
	return p
}

func bareProxied() *heddlev1.SandboxPolicy {
	p := policy()
	p.Network, p.NetworkMiss = heddlev1.NetworkMode_NETWORK_MODE_PROXIED, heddlev1.NetworkMiss_NETWORK_MISS_DENY
	return p
}

// TestNetworkCounts: every field of a proxied network is in the hash, and none of any other.
func TestNetworkCounts(t *testing.T) {
	hash := func(p *heddlev1.SandboxPolicy) string {
		return string(actionhash.Process([]string{"a"}, "/", nil, false, p, "/"))
	}
	for name, change := range map[string]func(*heddlev1.SandboxPolicy){
		"allow": func(p *heddlev1.SandboxPolicy) { p.NetworkAllow = append(p.NetworkAllow, "x") },
		"deny":  func(p *heddlev1.SandboxPolicy) { p.NetworkDeny = nil },
		"moved": func(p *heddlev1.SandboxPolicy) { p.NetworkAllow, p.NetworkDeny = p.NetworkDeny, p.NetworkAllow },
		"ports": func(p *heddlev1.SandboxPolicy) { p.NetworkPorts = p.NetworkPorts[:1] },
		"miss":  func(p *heddlev1.SandboxPolicy) { p.NetworkMiss = heddlev1.NetworkMiss_NETWORK_MISS_DENY },
		"mode":  func(p *heddlev1.SandboxPolicy) { p.Network = heddlev1.NetworkMode_NETWORK_MODE_FULL },
	} {
		p := proxied()
		change(p)
		if hash(p) == hash(proxied()) {
			t.Errorf("%s: another network has the same hash", name)
		}
	}
}

// The golden values were computed from the encoding in the package comment by
// an independent program; they must never change under one Tag.
func TestGoldenVectors(t *testing.T) {
	git := policy()
	git.Git = heddlev1.GitMode_GIT_MODE_COMMIT
	limited := policy()
	limited.Limits = &heddlev1.SandboxLimits{MemoryBytes: 1 << 30, Pids: 100, CpuMillis: 2000, FileBytes: 5, TmpBytes: 6, MinFreeBytes: 7}
	denied := policy()
	denied.DenyRead = []string{"**/.env", "~/.ssh"}
	cases := map[string]struct {
		got  []byte
		want string
	}{
		"denied":  {actionhash.Process([]string{"/bin/bash", "-lc", "true"}, "/w", []string{"A=1"}, false, denied, "/w"), goldenDenied},
		"limits":  {actionhash.Process([]string{"/bin/bash", "-lc", "true"}, "/w", []string{"A=1"}, false, limited, "/w"), goldenLimits},
		"process": {actionhash.Process([]string{"/bin/bash", "-lc", "true"}, "/w", []string{"A=1"}, false, policy(), "/w"), goldenProcess},
		"git":     {actionhash.Process([]string{"/bin/bash", "-lc", "true"}, "/w", []string{"A=1"}, false, git, "/w"), goldenGit},
		"patch":   {actionhash.Patch("*** Begin Patch\n*** End Patch\n", "/w", map[string][]byte{"/w/b": {2}, "/w/a": {1}}, policy(), "/w"), goldenPatch},
		"stdin":   {actionhash.Stdin("act-1", []byte("y\n")), goldenStdin},

		"proxied":       {actionhash.Process([]string{"/bin/bash", "-lc", "true"}, "/w", []string{"A=1"}, false, proxied(), "/w"), goldenProxied},
		"proxied, bare": {actionhash.Process([]string{"/bin/bash", "-lc", "true"}, "/w", []string{"A=1"}, false, bareProxied(), "/w"), goldenProxiedBare},
		"proxied patch": {actionhash.Patch("*** Begin Patch\n*** End Patch\n", "/w", map[string][]byte{"/w/b": {2}, "/w/a": {1}}, proxied(), "/w"), goldenProxiedPatch},
	}
	for name, c := range cases {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: hash %s, want %s", name, got, c.want)
		}
	}
}

func TestEveryFieldCounts(t *testing.T) {
	base := actionhash.Process([]string{"a", "b"}, "/w", []string{"A=1"}, false, policy(), "/w")
	loose := policy()
	loose.Network = heddlev1.NetworkMode_NETWORK_MODE_FULL
	others := map[string][]byte{
		"argv split": actionhash.Process([]string{"ab"}, "/w", []string{"A=1"}, false, policy(), "/w"),
		"cwd":        actionhash.Process([]string{"a", "b"}, "/w/", []string{"A=1"}, false, policy(), "/w"),
		"env":        actionhash.Process([]string{"a", "b"}, "/w", []string{"A=2"}, false, policy(), "/w"),
		"tty":        actionhash.Process([]string{"a", "b"}, "/w", []string{"A=1"}, true, policy(), "/w"),
		"policy":     actionhash.Process([]string{"a", "b"}, "/w", []string{"A=1"}, false, loose, "/w"),
		"workspace":  actionhash.Process([]string{"a", "b"}, "/w", []string{"A=1"}, false, policy(), "/v"),
	}
	for name, h := range others {
		if string(h) == string(base) {
			t.Errorf("%s: a different action has the same hash", name)
		}
	}
}
