package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// knownCauses maps failure texts of making a namespace sandbox to what an operator needs to know.
var knownCauses = []struct{ text, cause, fix string }{
	{"failed to unshare user namespace: no space left", "user namespaces are turned off (user.max_user_namespaces=0) or their number is used up",
		"sysctl user.max_user_namespaces=15000"},
	{"failed to unshare user namespace", "this process may not make user namespaces: a seccomp filter, as of a container, or a kernel setting forbids it",
		"in a container run it with --security-opt seccomp=unconfined or --privileged; on the host set kernel.unprivileged_userns_clone=1"},
	{`mounting "proc"`, "/proc of this container is masked, so that a new one cannot be mounted",
		"run the container with --security-opt systempaths=unconfined (docker) or --security-opt unmask=ALL (podman)"},
	{"mapping tool not present", "this process is root without root's rights (dropped capabilities, no_new_privs): without CAP_SETFCAP the kernel lets nobody map id 0",
		"run heddle as an ordinary user, or give the container the capability (--cap-add SETFCAP)"},
	{"operation not permitted", "this process lacks the right to mount in its own user namespace, as in a container without CAP_SYS_ADMIN",
		"run the container with --cap-add SYS_ADMIN or --privileged, or allow mounts in its seccomp and AppArmor profile"},
	{"permission denied", "something that making a sandbox needs is denied to this process", "see the text for what it was; a security module's log (dmesg, audit) says which rule"},
}

// hostFacts are what decides about a cause and cannot be seen in an error's text.
type hostFacts struct {
	apparmor bool   // AppArmor restricts user namespaces of ordinary users
	fullDisk string // the state directory, when its file system is full
}

func readFacts(stateDir string) hostFacts {
	f := hostFacts{}
	b, err := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	f.apparmor = err == nil && strings.TrimSpace(string(b)) == "1" && !privileged()
	var st unix.Statfs_t
	// A file system without files to count reports none.
	if unix.Statfs(stateDir, &st) == nil && (st.Bavail*uint64(st.Bsize) < 64<<10 || st.Files > 0 && st.Ffree == 0) {
		f.fullDisk = stateDir
	}
	return f
}

// unmade says why a sandbox could not be made: a full disk is one, and at contained levels everything else is taken
// to mean that this host cannot enforce the level.
func (m *Manager) unmade(l Level, err error) error {
	return judge(l, err, readFacts(m.cfg.StateDir))
}

func judge(l Level, err error, f hostFacts) error {
	low := strings.ToLower(err.Error())
	namespace := strings.Contains(low, "failed to unshare")
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		f.fullDisk != "" && (strings.Contains(low, "no space left on device") || strings.Contains(low, "disk quota exceeded"))
	if full && !namespace {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	if !l.Contained() {
		return err
	}
	e := &UnenforceableError{Level: l, Cause: err.Error()}
	for _, k := range knownCauses {
		if strings.Contains(low, k.text) {
			e.Cause, e.Fix = k.cause+" ("+err.Error()+")", k.fix
			break
		}
	}
	if f.apparmor {
		e.Cause = "AppArmor forbids unprivileged user namespaces (kernel.apparmor_restrict_unprivileged_userns=1): " + err.Error()
		e.Fix = "load an AppArmor profile with the rule \"userns,\" for this program, or set the sysctl to 0"
	}
	return e
}
