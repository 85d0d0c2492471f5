package sandbox

import (
	"context"
	"errors"
	"fmt"
)

// BackendLandlock is Policy.Fallback in force.
const BackendLandlock Backend = "landlock"

// FallbackReport is what Policy.Fallback gives on a host without usable namespaces.
type FallbackReport struct {
	// Levels maps each contained level's name to whether the fallback can enforce it.
	Levels map[string]bool `json:"levels"`
	// Cause says why it cannot; empty when it can.
	Cause string `json:"cause,omitempty"`
	// Gaps are what it cannot protect, beside those of the report.
	Gaps []Gap `json:"gaps,omitempty"`
}

const landlockFix = "make user namespaces available, then the fallback is not used"

// LandlockGaps names what Landlock cannot protect at an ABI.
func LandlockGaps(abi int) []Gap {
	gap := func(guarantee, why string) Gap { return Gap{Guarantee: guarantee, Why: why, Fix: landlockFix} }
	g := []Gap{
		gap("protected names (.git, .codex, .agents, .heddle) stay as they are", "Landlock can take nothing out of a writable folder; file actions refuse them, and after each command new names are moved to quarantine and what git would run from .git is looked for, but other changes in them stay"),
		gap("modes, owners, times and attributes of files outside of the roots stay as they are", "Landlock does not know these calls; they are refused at read-only only"),
		gap("processes of the host are not seen", "there is no pid namespace: their command lines show in /proc; environment, memory and descriptors do not"),
		gap("/proc belongs to the sandbox", "there is one /proc, read-only but for what is reached through open descriptors: /proc/self cannot be written, and kernel settings show the host's values"),
		gap("loopback and sockets work inside", "there is no network namespace: IP sockets, netlink, unix datagrams and every connect are refused; a network other than off is refused as a policy"),
		gap("a private, bounded /tmp and /dev/shm", "there are no mounts: the host's /tmp and /dev/shm are read-only, TMPDIR names a private folder on disk without a limit of its own"),
		gap("names in denied folders are not seen", "Landlock grants listing for whole trees: the content cannot be read, the names can be listed; what appears beside a denied path later cannot be read at all"),
		gap("terminals other than the command's own", "/dev/pts is the host's and stays closed, so a program cannot open its terminal by name"),
		gap("System V and POSIX message queues, semaphores and shared memory", "there is no namespace for them, so their calls are refused"),
		gap("the limit of processes without a cgroup controller", "it would count all processes of the user"),
	}
	if abi < landlockSignals {
		g = append(g, gap("processes of the host are not signalled", fmt.Sprintf("signal scopes need Landlock ABI %d (kernel 6.12), this kernel has %d", landlockSignals, abi)))
	}
	if abi < 5 {
		g = append(g, gap("devices take no commands", fmt.Sprintf("ioctl on devices needs Landlock ABI 5 (kernel 6.10), this kernel has %d", abi)))
	}
	return g
}

// probeFallback tries the fallback.
func (m *Manager) probeFallback(ctx context.Context, ws string) *FallbackReport {
	f := &FallbackReport{Levels: map[string]bool{}}
	for _, l := range []Level{ReadOnly, WorkspaceWrite} {
		_, err := m.try(ctx, Policy{Level: l, Workspace: ws, Fallback: FallbackLandlock}, "true")
		f.Levels[l.String()] = err == nil
		var ue *UnenforceableError
		if errors.As(err, &ue) {
			f.Cause = ue.Cause
		} else if err != nil {
			f.Cause = err.Error()
		}
	}
	if f.Cause == "" {
		f.Gaps = LandlockGaps(m.landlock)
	}
	return f
}
