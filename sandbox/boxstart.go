package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

func (b *box) startContained(theirs int) error {
	if b.m.cfg.NoNamespaces {
		return &UnenforceableError{Level: b.policy.Level, Cause: "namespaces are turned off by configuration"}
	}
	var err error
	spec := guestproto.Box{
		ID: b.id, CgroupName: groupName(boxPrefix, b.id), StateRoot: filepath.Join(b.m.owner.dir, "runc"), Rootfs: b.m.rootfs, Mounts: b.plan.mounts,
		Net: b.policy.Net == NetFull, Rootless: !privileged(), UID: os.Getuid(), GID: os.Getgid(), Umask: currentUmask(),
		ReadOnly: []string{"/proc/sys", "/proc/pressure", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"},
		Mask:     []string{"/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats"},
	}
	spec.Hostname, _ = os.Hostname()
	spec.Covers, spec.EmptyDir, spec.EmptyFile = b.plan.covering(), b.plan.emptyDir, b.plan.emptyFile
	if spec.Rootless {
		spec.Caps = []string{"CAP_SETFCAP"} // to map ids in the nested namespace; the guest drops it there
	} else {
		if spec.UIDMap, err = idRanges("/proc/self/uid_map"); err != nil {
			return err
		}
		if spec.GIDMap, err = idRanges("/proc/self/gid_map"); err != nil {
			return err
		}
		if b.plan.foreign {
			// Root's commands may write a workspace of another user only by overriding its permissions. The
			// mounts still bound what can be written.
			spec.Caps = []string{"CAP_DAC_OVERRIDE", "CAP_FOWNER"}
		}
	}
	v2 := b.limits
	if l := b.policy.Limits; len(b.m.limits.v2) == 0 && len(b.m.limits.v1) > 0 {
		spec.Memory, spec.Pids, spec.CPU = max(0, l.MemoryBytes), max(0, l.Pids), max(0, l.CPU)
	}
	for range 2 { // a keeper that has died is noticed by the first try
		var k *keeper
		if k, err = b.m.keeper(); err != nil {
			return err
		}
		var ended chan struct{}
		if ended, b.limits, err = k.create(spec, theirs); err == nil {
			b.ended = ended
			b.endless = func() { k.kill(b.id) }
			if v2.v2 {
				b.limits = v2
			}
			return nil
		}
		if !errors.Is(err, errKeeperGone) {
			break
		}
		<-k.gone
	}
	return b.m.unmade(b.policy.Level, err)
}

// startPlain starts the guest on the host itself, with rules under Landlock.
func (b *box) startPlain(theirs int, rules *os.File) error {
	fd, err := unix.FcntlInt(uintptr(theirs), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	sock := os.NewFile(uintptr(fd), "guest-control")
	defer sock.Close()
	c := helperCommand(b.m.helper, "guest", sock)
	if rules != nil {
		c.ExtraFiles, c.Env = append(c.ExtraFiles, rules), append(c.Env, landlockEnv())
	}
	stderr := &tail{}
	c.Stderr = stderr
	if err := c.Start(); err != nil {
		return fmt.Errorf("start guest: %w", err)
	}
	if !b.limits.v2 {
		if b.limits, err = limitV1(b.m.limits.v1, groupName(boxPrefix, b.id), c.Process.Pid, b.policy.Limits); err != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
			b.limits.remove()
			return err
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Wait(); err != nil {
			b.m.log.Warn("guest ended", "err", err, "stderr", stderr.String())
		}
	}()
	b.ended = ended
	b.endless = func() { _ = c.Process.Kill() }
	return nil
}

func (b *box) configure() error {
	s := guestproto.Setup{Version: guestproto.Version, Contained: b.namespaced(), Shim: b.cgroup == "",
		GraceMS: int(b.m.cfg.DrainGrace.Milliseconds()), FileBytes: max(0, b.policy.Limits.FileBytes)}
	if s.Contained && !b.m.limits.has("pids") {
		s.Pids = max(0, b.policy.Limits.Pids)
	}
	s.Scope = b.policy.Level.Contained() && b.m.landlock >= landlockSignals
	if b.landlock {
		s.Landlock, s.Frozen, s.Guarded = true, b.policy.Level == ReadOnly, b.plan.guardedPaths()
	}
	s.Connect, s.HostTmp = b.supervised(), b.policy.Tmp == TmpHost
	var fds []int
	if b.cgroup != "" && !s.Contained {
		kill, err := os.OpenFile(filepath.Join(b.cgroup, "cgroup.kill"), os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("open cgroup: %w", err)
		}
		defer kill.Close()
		fds = append(fds, int(kill.Fd()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupLimit)
	defer cancel()
	_, err := b.call(ctx, guestproto.KSetup, s.Encode(), fds...)
	if err != nil {
		return b.m.unmade(b.policy.Level, fmt.Errorf("start guest: %w", err))
	}
	b.sizes, err = b.privateSizes()
	return err
}

func currentUmask() uint32 {
	mask := uint32(0o022)
	_ = eachLine("/proc/self/status", func(l string) {
		if v, ok := strings.CutPrefix(l, "Umask:"); ok {
			fmt.Sscanf(strings.TrimSpace(v), "%o", &mask)
		}
	})
	return mask
}

// idRanges reads which ids exist in this process's user namespace.
func idRanges(file string) ([]guestproto.IDRange, error) {
	var out []guestproto.IDRange
	err := eachLine(file, func(l string) {
		var first, host, n int64
		if k, _ := fmt.Sscan(l, &first, &host, &n); k == 3 {
			out = append(out, guestproto.IDRange{First: first, Size: n})
		}
	})
	return out, err
}
