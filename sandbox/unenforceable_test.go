package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCauses: each way in which a host fails has its own words and its own fix. The texts are those that the
// kernel and libcontainer gave on such hosts.
func TestCauses(t *testing.T) {
	const nsexec = "start sandbox: unable to start container process: can't get final child's PID from pipe: EOF; runc init error(s): "
	for _, c := range []struct {
		name, text string
		facts      hostFacts
		cause, fix string
	}{
		{"no user namespaces", nsexec + "nsexec-1[1]: failed to unshare user namespace: No space left on device", hostFacts{}, "user.max_user_namespaces=0", "sysctl user.max_user_namespaces"},
		{"the same beside a full disk", nsexec + "nsexec-1[1]: failed to unshare user namespace: No space left on device", hostFacts{fullDisk: "/s"}, "user.max_user_namespaces=0", "sysctl"},
		{"seccomp", nsexec + "nsexec-1[1]: failed to unshare user namespace: Operation not permitted", hostFacts{}, "seccomp", "seccomp=unconfined"},
		{"masked proc", `start sandbox: error mounting "proc" to rootfs at "/proc": mount src=proc: operation not permitted`, hostFacts{}, "masked", "systempaths=unconfined"},
		{"no mount right", "start sandbox: error mounting \"/usr\" to rootfs: operation not permitted", hostFacts{}, "CAP_SYS_ADMIN", "--cap-add SYS_ADMIN"},
		{"dropped capabilities", nsexec + "nsexec-0[1]: mapping tool not present", hostFacts{}, "CAP_SETFCAP", "ordinary user"},
		{"AppArmor", "start sandbox: error mounting: permission denied", hostFacts{apparmor: true}, "apparmor_restrict_unprivileged_userns=1", "userns,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e *UnenforceableError
			if err := judge(WorkspaceWrite, errors.New(c.text), c.facts); !errors.As(err, &e) {
				t.Fatalf("%v is not unenforceable", err)
			}
			if !strings.Contains(e.Cause, c.cause) || !strings.Contains(e.Fix, c.fix) || !strings.Contains(e.Error(), c.fix) {
				t.Errorf("cause %q, fix %q", e.Cause, e.Fix)
			}
			if err := judge(FullAccess, errors.New(c.text), c.facts); errors.As(err, &e) {
				t.Errorf("full access: %v", err)
			}
		})
	}
}

// TestFullDiskIsNoLevel: a full disk is told as such, at every level.
func TestFullDiskIsNoLevel(t *testing.T) {
	for _, c := range []struct {
		err   error
		facts hostFacts
	}{
		{fmt.Errorf("make cgroup: %w", syscall.ENOSPC), hostFacts{}},
		{fmt.Errorf("write state: %w", syscall.EDQUOT), hostFacts{}},
		{errors.New("create sandbox: write state.json: no space left on device"), hostFacts{fullDisk: "/s"}},
	} {
		for _, l := range []Level{ReadOnly, FullAccess} {
			var un *UnenforceableError
			if err := judge(l, c.err, c.facts); !errors.Is(err, ErrDiskFull) || errors.As(err, &un) {
				t.Errorf("%s: %v", l, err)
			}
		}
	}
}

// TestFullDisk fills a real file system.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("full", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("GAP: this user cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(dir+"/fill", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill: %v", err)
	}
	if f := readFacts(dir); f.fullDisk != dir {
		t.Errorf("facts: %+v", f)
	}
	r := Probe(t.Context(), Config{StateDir: dir + "/state", GuestPath: os.Args[0]})
	if len(r.Gaps) != 1 || !strings.Contains(r.Cause, ErrDiskFull.Error()) || !strings.Contains(r.Gaps[0].Fix, "free space") {
		t.Errorf("report: %+v", r)
	}
}
