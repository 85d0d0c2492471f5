package config

import (
	"slices"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// limitsTable bounds what the commands of one sandbox may use together:
//
//	[sandbox]
//	memory_bytes = 8589934592
//	pids = 4096              # processes and threads
//	cpu_millis = 2000        # thousandths of one processor
//	file_bytes = 2147483648  # of any one file
//	tmp_bytes = 1073741824   # of the private /tmp
//	min_free_bytes = 67108864
//
// A key that is not set has the executor's default. Beside them is
//
//	deny_read = ["~/.ssh", "**/.env"]  # see SandboxPolicy.deny_read
//
// of which every layer's entries count: a later one cannot lift an earlier one.
const limitsTable = "sandbox"

var limitKeys = []string{"memory_bytes", "pids", "cpu_millis", "file_bytes", "tmp_bytes", "min_free_bytes"}

// Limits returns the configured limits, nil when there are none.
func (c *Config) Limits() *heddlev1.SandboxLimits {
	l := &heddlev1.SandboxLimits{}
	set := false
	for i, to := range []*int64{&l.MemoryBytes, &l.Pids, &l.CpuMillis, &l.FileBytes, &l.TmpBytes, &l.MinFreeBytes} {
		*to = c.num(limitsTable, limitKeys[i])
		set = set || *to != 0
	}
	if !set {
		return nil
	}
	return l
}

// DenyRead are the paths that commands must not read.
func (c *Config) DenyRead() []string {
	var out []string
	for _, l := range c.layers {
		for _, path := range texts(lookup(l.Tree, limitsTable, "deny_read")) {
			if !slices.Contains(out, path) {
				out = append(out, path)
			}
		}
	}
	for _, path := range texts(lookup(c.tree, limitsTable, "deny_read")) { // of a profile
		if !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

// LandlockFallback is sandbox.fallback = "landlock".
func (c *Config) LandlockFallback() bool { return c.str(limitsTable, "fallback") == "landlock" }

func limitNodes() map[string]*node {
	out := map[string]*node{}
	for _, k := range limitKeys {
		out[k] = &node{kind: integer}
	}
	out["fallback"] = oneOf("none", "landlock")
	out["deny_read"] = &node{kind: textList}
	return out
}
