package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
)

// limitGroups are the cgroup directories that hold a sandbox's limits; empty where there are none.
type limitGroups struct{ memory, pids string }

// limitCounts are the kernel's counters of limits that were hit.
type limitCounts struct{ oom, pids int64 }

// sandboxLimits reports whether limits of memory and tasks can be put on contained sandboxes.
func (m *Manager) sandboxLimits() bool {
	if os.Geteuid() != 0 {
		return false
	}
	v1 := func(c string) bool {
		_, err := os.Stat(filepath.Join("/sys/fs/cgroup", c, "cgroup.procs"))
		return err == nil
	}
	return v1("memory") && v1("pids")
}

func (l limitGroups) count() limitCounts {
	if l.memory == "" && l.pids == "" {
		return limitCounts{}
	}
	return limitCounts{oom: counter(filepath.Join(l.memory, "memory.oom_control"), "oom_kill"), pids: counter(filepath.Join(l.pids, "pids.events"), "max")}
}

// hits compares with the counters at a command's start.
func (l limitGroups) hits(before limitCounts) (oom, pids bool) {
	now := l.count()
	return now.oom > before.oom, now.pids > before.pids
}

// counter reads the number beside a key, 0 when there is none.
func counter(file, key string) int64 {
	var found int64
	_ = eachLine(file, func(l string) {
		var k string
		var n int64
		if c, _ := fmt.Sscan(l, &k, &n); c == 2 && k == key {
			found = n
		}
	})
	return found
}
