package sandbox

import (
	"os"
	"strings"
)

// knownCauses maps failure texts of making a namespace sandbox to what an operator needs to know.
var knownCauses = []struct{ text, cause, fix string }{
	{"failed to unshare user namespace: no space left", "user namespaces are turned off (user.max_user_namespaces=0) or their number is used up",
		"sysctl user.max_user_namespaces=15000"},
	{"failed to unshare user namespace", "this process may not make user namespaces",
		"in a container run it with --security-opt seccomp=unconfined or --privileged; on the host set kernel.unprivileged_userns_clone=1"},
	{`mounting "proc"`, "/proc of this container is masked, so that a new one cannot be mounted",
		"run the container with --security-opt systempaths=unconfined (docker) or --security-opt unmask=ALL (podman)"},
	{"operation not permitted", "this process lacks the right to mount in its own user namespace", ""},
}

// unenforceable turns a failure to make a contained sandbox into the error that names cause and fix.
func unenforceable(l Level, err error) error {
	if !l.Contained() {
		return err
	}
	e := &UnenforceableError{Level: l, Cause: err.Error()}
	low := strings.ToLower(err.Error())
	for _, k := range knownCauses {
		if strings.Contains(low, strings.ToLower(k.text)) {
			e.Cause, e.Fix = k.cause+" ("+err.Error()+")", k.fix
			break
		}
	}
	if b, rerr := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); rerr == nil && strings.TrimSpace(string(b)) == "1" && os.Geteuid() != 0 {
		e.Cause = "AppArmor forbids unprivileged user namespaces (kernel.apparmor_restrict_unprivileged_userns=1): " + err.Error()
		e.Fix = "load an AppArmor profile with the rule \"userns,\" for this program, or set the sysctl to 0"
	}
	return e
}
