package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// Names of cgroups tell who made them, so that any later manager can tell leftovers of the dead from what is in
// use: prefix, pid namespace, process id and start time of the owner, and a random part.
const (
	ownerPrefix = "heddle-owner-" // cgroup v2: an owner's commands
	selfPrefix  = "heddle-self-"  // cgroup v2: the owner itself, where its cgroup must be empty to have limits
	boxPrefix   = "heddle-box-"   // cgroup v1: a sandbox
)

// groupName makes the name of a cgroup of this process.
func groupName(prefix, id string) string {
	return fmt.Sprintf("%s%d-%d-%d-%s", prefix, pidNamespace(), os.Getpid(), startTime(os.Getpid()), id)
}

// ofDead reports whether a cgroup of this name was made by a process of this pid namespace that is gone.
func ofDead(name string) bool {
	rest := ""
	for _, p := range []string{ownerPrefix, selfPrefix, boxPrefix} {
		if r, ok := strings.CutPrefix(name, p); ok {
			rest = r
		}
	}
	f := strings.Split(rest, "-")
	if len(f) != 4 {
		return false
	}
	ns, err1 := strconv.ParseUint(f[0], 10, 64)
	pid, err2 := strconv.Atoi(f[1])
	start, err3 := strconv.ParseUint(f[2], 10, 64)
	return err1 == nil && err2 == nil && err3 == nil && ns == pidNamespace() && ns != 0 && start != 0 && startTime(pid) != start
}

func pidNamespace() uint64 {
	link, _ := os.Readlink("/proc/self/ns/pid")
	n, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]"), 10, 64)
	return n
}

// startTime returns when a process was started, in ticks since boot; 0 when there is none.
func startTime(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name may hold anything
	if i := strings.LastIndex(string(b), ") "); i >= 0 {
		rest = string(b)[i+2:]
	}
	f := strings.Fields(rest)
	if len(f) < 20 || f[0] == "Z" {
		return 0
	}
	n, _ := strconv.ParseUint(f[19], 10, 64)
	return n
}

// sweepGroups removes what dead owners left beside our own cgroups, whatever their state directory was.
func sweepGroups(log *slog.Logger) {
	if base, err := ownCgroup(); err == nil {
		for _, dir := range deadIn(base) {
			if err := guestproto.RemoveCgroup(dir); err != nil {
				log.Warn("sweep: cgroup of a dead owner stays", "cgroup", dir, "err", err)
			}
		}
	}
	for _, base := range v1Groups() {
		for _, dir := range deadIn(base) {
			for range 50 { // the guest has lost its owner, and is ending if it has not
				if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
					break
				}
				time.Sleep(2 * time.Millisecond)
			}
		}
	}
}

func deadIn(base string) []string {
	ents, err := os.ReadDir(base)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range ents {
		if e.Type()&fs.ModeDir != 0 && ofDead(e.Name()) {
			out = append(out, filepath.Join(base, e.Name()))
		}
	}
	return out
}

// v1Groups returns the directories of our own cgroups in the version 1 hierarchies, by controller.
func v1Groups() map[string]string {
	out := map[string]string{}
	_ = eachLine("/proc/self/cgroup", func(l string) {
		f := strings.SplitN(l, ":", 3)
		if len(f) != 3 || f[1] == "" {
			return
		}
		mount := strings.TrimPrefix(f[1], "name=")
		dir := filepath.Join("/sys/fs/cgroup", mount, f[2])
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			return
		}
		for c := range strings.SplitSeq(f[1], ",") {
			out[c] = dir
		}
	})
	return out
}
