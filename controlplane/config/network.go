package config

import (
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// networkTable holds the destinations of a proxied network:
//
//	[network]
//	allow = ["example.org", "*.example.net", "git.example.com:22"]
//	deny = ["uploads.example.com"]
//	ports = [80, 443]     # of entries that name none
//	on_miss = "ask"       # or "deny": what becomes of hosts that are on no list
const networkTable = "network"

// Proxied reports whether the config names destinations. Network access then
// goes through a proxy that lets only these through.
func (c *Config) Proxied() bool {
	t, ok := lookup(c.tree, networkTable).(map[string]any)
	return ok && len(t) > 0
}

// Network makes a policy's full network a proxied one where the config names
// destinations. Levels without a sandbox keep the host's network: nothing could
// hold them to a list.
func (c *Config) Network(p *heddlev1.SandboxPolicy) {
	if p.GetNetwork() == heddlev1.NetworkMode_NETWORK_MODE_FULL {
		c.proxy(p)
	}
}

// defaultNetwork is the network of a policy that comes from the config alone: the
// table says that there is a way out, unless network_access = false says not.
func (c *Config) defaultNetwork(p *heddlev1.SandboxPolicy) {
	access, set := lookup(c.tree, "sandbox_workspace_write", "network_access").(bool)
	if p.GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE && set && !access {
		return
	}
	c.proxy(p)
}

func (c *Config) proxy(p *heddlev1.SandboxPolicy) {
	contained := p.GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY || p.GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE
	if !contained || !c.Proxied() {
		return
	}
	p.Network = heddlev1.NetworkMode_NETWORK_MODE_PROXIED
	p.NetworkAllow = texts(lookup(c.tree, networkTable, "allow"))
	p.NetworkDeny = texts(lookup(c.tree, networkTable, "deny"))
	p.NetworkPorts = nil
	list, _ := lookup(c.tree, networkTable, "ports").([]any)
	for _, v := range list {
		if n, ok := v.(int64); ok {
			p.NetworkPorts = append(p.NetworkPorts, uint32(n)) // checked when it was loaded
		}
	}
	p.NetworkMiss = heddlev1.NetworkMiss_NETWORK_MISS_ASK
	if c.str(networkTable, "on_miss") == "deny" {
		p.NetworkMiss = heddlev1.NetworkMiss_NETWORK_MISS_DENY
	}
}

func isPortList(v any) bool {
	l, ok := v.([]any)
	if !ok || len(l) == 0 {
		return false
	}
	for _, e := range l {
		if n, ok := e.(int64); !ok || n < 1 || n > 65535 {
			return false
		}
	}
	return true
}

// isHostList finds the usual slips; the sandbox reads the entries exactly.
func isHostList(v any) bool {
	if !isTextList(v) {
		return false
	}
	for _, s := range texts(v) {
		name, _, _ := strings.Cut(s, ":")
		bare := strings.TrimPrefix(name, "*.")
		if s == "" || strings.ContainsAny(s, " \t\r\n@?#\x00") || strings.Contains(s, "://") || strings.Contains(bare, "*") || bare == "" && !strings.Contains(s, "::") {
			return false
		}
	}
	return true
}
