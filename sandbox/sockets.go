package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
	"github.com/heddle-dev/heddle/sandbox/seccomp"
)

const (
	// maxSockets bounds how many sockets of the host one sandbox covers.
	maxSockets = 512
	// maxDenied bounds what is kept of a command's refused connections.
	maxDenied = 16
)

// supervised reports whether the guest performs connect for the commands. With the host's network the host's
// sockets are part of what was granted.
func (b *box) supervised() bool {
	return b.namespaced() && b.policy.Net != NetFull && b.m.connectErr == nil
}

// canSupervise returns why the guest cannot perform connect for commands, or nil.
func canSupervise() error {
	if !seccomp.CanSupervise() {
		return errors.New("the kernel has no uninterruptible supervision of system calls (5.19)")
	}
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if s := strings.TrimSpace(string(b)); err == nil && s != "0" && s != "1" {
		return fmt.Errorf("kernel.yama.ptrace_scope is %s, which keeps the sandbox from acting for its commands", s)
	}
	return nil
}

// coverSockets is for hosts where connect cannot be supervised. It hides the sockets of the host that are bound
// below a visible directory now: a read-only mount does not stop connecting to one. Those of the sandbox itself live in its own network namespace, are not seen here
// and stay usable. Later ones are not covered, because a new instance for each would cost its /tmp; see
// GapUnixSockets.
func (pl *plan) coverSockets(o *owner) {
	for _, path := range pl.visibleSockets() {
		pl.mounts = append(pl.mounts, guestproto.Mount{Kind: guestproto.MountBind, Source: o.emptyFil, Dest: path, ReadOnly: true})
	}
}

func (pl *plan) visibleSockets() []string {
	var out []string
	_ = eachLine("/proc/net/unix", func(l string) {
		f := strings.SplitN(l, " /", 2) // the path is the last field and may hold spaces
		if len(f) != 2 {
			return
		}
		path := "/" + f[1]
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return
		}
		path = filepath.Join(dir, filepath.Base(path))
		if pl.hidden(path) && !slices.ContainsFunc(pl.roots, func(r string) bool { return within(path, r) }) {
			return
		}
		if fi, err := os.Lstat(path); err == nil && fi.Mode()&os.ModeSocket != 0 {
			out = append(out, path)
		}
	})
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxSockets)]
}

// shownName is an abstract name as the kernel and people write it.
func shownName(name string) string { return strings.ReplaceAll(name, "\x00", "@") }

// boundOnHost reports whether a socket of the host has an abstract name.
func boundOnHost(name string) bool {
	found := false
	_ = eachLine("/proc/net/unix", func(l string) {
		found = found || strings.HasSuffix(l, " "+name)
	})
	return found
}
