package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cpuPeriod is the time over which processor use is counted, in microseconds.
const cpuPeriod = 100000

// limitGroups are the cgroup directories that hold a sandbox's limits; empty where there are none.
type limitGroups struct {
	memory, pids string
	v2           bool
	own          []string // made by us, to be removed

	oomFile, pidsFile *os.File // counters, open because they are read for every command
}

// limitCounts are the kernel's counters of limits that were hit.
type limitCounts struct{ oom, pids int64 }

// limiters says which limits can be put on sandboxes here, and by what.
type limiters struct {
	v2 []string          // controllers of cgroup v2, below the owner's directory
	v1 map[string]string // directories of our own cgroups by controller, when we may make some below them
}

// findLimiters looks for version 1 hierarchies that we may use.
func findLimiters(v2 []string) limiters {
	l := limiters{v2: v2}
	if !privileged() {
		return l
	}
	l.v1 = v1Groups()
	return l
}

// has reports whether a controller ("memory", "pids", "cpu") can limit sandboxes.
func (l limiters) has(controller string) bool {
	return slices.Contains(l.v2, controller) || l.v1[controller] != ""
}

// limitV2 puts limits on the directory that holds the cgroups of a sandbox's commands.
func limitV2(dir string, l Limits, have []string) (limitGroups, error) {
	g := limitGroups{}
	put := func(controller, file, value string) error {
		if !slices.Contains(have, controller) {
			return nil
		}
		return put(filepath.Join(dir, file), value)
	}
	var errs []error
	if l.MemoryBytes > 0 {
		errs = append(errs, put("memory", "memory.max", strconv.FormatInt(l.MemoryBytes, 10)))
		// Without this the limit only moves pages out. A kernel without swap has no such file.
		if err := put("memory", "memory.swap.max", "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		g.memory = dir
	}
	if l.Pids > 0 {
		errs = append(errs, put("pids", "pids.max", strconv.FormatInt(l.Pids, 10)))
		g.pids = dir
	}
	if l.CPU > 0 {
		errs = append(errs, put("cpu", "cpu.max", fmt.Sprintf("%d %d", max(1000, l.CPU*cpuPeriod/1000), cpuPeriod)))
	}
	g.v2 = len(have) > 0
	if !g.v2 {
		return limitGroups{}, nil
	}
	return g, errors.Join(errs...)
}

// limitV1 makes cgroups with limits for a guest that has no container's, and moves it into them.
func limitV1(bases map[string]string, name string, pid int, l Limits) (g limitGroups, err error) {
	defer func() {
		if err != nil {
			g.remove()
			g = limitGroups{}
		}
	}()
	group := func(controller string, files map[string]int64) (string, error) {
		base := bases[controller]
		if base == "" {
			return "", nil
		}
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("make cgroup with limits: %w", err)
		}
		g.own = append(g.own, dir)
		for file, v := range files {
			if err := put(filepath.Join(dir, file), strconv.FormatInt(v, 10)); err != nil {
				return "", err
			}
		}
		return dir, put(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
	}
	if l.MemoryBytes > 0 {
		if g.memory, err = group("memory", map[string]int64{"memory.limit_in_bytes": l.MemoryBytes}); err != nil {
			return g, err
		}
	}
	if l.Pids > 0 {
		if g.pids, err = group("pids", map[string]int64{"pids.max": l.Pids}); err != nil {
			return g, err
		}
	}
	if l.CPU > 0 {
		_, err = group("cpu", map[string]int64{"cpu.cfs_quota_us": max(1000, l.CPU*cpuPeriod/1000)})
	}
	return g, err
}

func put(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0) // never made: these are the kernel's
	if err == nil {
		_, err = f.WriteString(value)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("set limit: %w", err)
	}
	return nil
}

func (g limitGroups) remove() {
	for _, d := range g.own {
		_ = os.Remove(d)
	}
}

// open opens the counters. One that cannot be read counts nothing.
func (g *limitGroups) open() {
	if g.memory != "" {
		name := "memory.oom_control"
		if g.v2 {
			name = "memory.events"
		}
		g.oomFile, _ = os.Open(filepath.Join(g.memory, name))
	}
	if g.pids != "" {
		g.pidsFile, _ = os.Open(filepath.Join(g.pids, "pids.events"))
	}
}

func (g *limitGroups) close() {
	g.oomFile.Close()
	g.pidsFile.Close()
}

func (g *limitGroups) count() limitCounts {
	return limitCounts{oom: counter(g.oomFile, "oom_kill"), pids: counter(g.pidsFile, "max")}
}

// hits compares with the counters at a command's start.
func (g *limitGroups) hits(before limitCounts) (oom, pids bool) {
	now := g.count()
	return now.oom > before.oom, now.pids > before.pids
}

// counter reads the number beside a key, 0 when there is none.
func counter(f *os.File, key string) int64 {
	if f == nil {
		return 0
	}
	var buf [512]byte
	n, _ := f.ReadAt(buf[:], 0)
	for line := range strings.Lines(string(buf[:n])) {
		if v, ok := strings.CutPrefix(line, key+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}

// lowDisk watches the space that is left on the file systems of the writable roots.
type lowDisk struct {
	roots []string
	min   uint64
}

// watchDisk returns a watch, or nil when there is nothing to watch: nothing can be written, or there is less than
// the limit already, which is not the command's doing.
func (b *box) watchDisk() *lowDisk {
	l := &lowDisk{roots: b.plan.roots, min: uint64(max(0, b.policy.Limits.MinFreeBytes))}
	if b.policy.Level == FullAccess {
		l.roots = []string{b.plan.dir}
	}
	if l.min == 0 || len(l.roots) == 0 || l.reached() {
		return nil
	}
	return l
}

// reached reports whether less than the limit is left somewhere.
func (l *lowDisk) reached() bool {
	for _, r := range l.roots {
		var st unix.Statfs_t
		if unix.Statfs(r, &st) == nil && st.Bavail*uint64(st.Bsize) < l.min {
			return true
		}
	}
	return false
}
