// Package seccomp holds the system call filter of contained sandboxes and installs it on the whole process.
//
// The default is to allow. Calls that reach for more kernel than a build or a test needs fail with EPERM, as if
// the caller lacked the privilege; other socket families fail with EAFNOSUPPORT; calls of a foreign ABI fail
// with ENOSYS. Children inherit the filter. It is one layer among several: namespaces and mounts do not rely
// on it.
package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	retAllow = 0x7fff0000
	retErrno = 0x00050000

	offNr   = 0
	offArch = 4
	offArg0 = 16 // low half of the first argument, little endian
	offArg1 = 24
	offArg2 = 32

	setModeFilter = 1
	flagTsync     = 1

	// newNamespaces are the clone and unshare flags that make namespaces. CLONE_NEWTIME shares its bit with the
	// exit signal of clone, where it cannot be asked for.
	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// Options are what a filter does beside its list.
type Options struct {
	// Supervised leaves the right to take descriptors of other processes. The children of such a process get
	// SuperviseProgram, which refuses that to them.
	Supervised bool
	// Alone is for processes that no namespace separates from the host's: no network, no connecting to sockets, no
	// System V and POSIX message queues, semaphores and memory, nothing that changes how other processes run.
	Alone bool
	// Frozen refuses changes of mode, owner, times and attributes of files, which Landlock does not know.
	Frozen bool
}

// Install puts the filter on every thread of the calling process. no_new_privs must be set.
func Install(o Options) error {
	prog := program(o)
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, flagTsync, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return fmt.Errorf("install system call filter: %w", errno)
	}
	if r != 0 {
		return fmt.Errorf("install system call filter: thread %d could not be synchronized", r)
	}
	return nil
}

func stmt(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }

func jump(code uint16, k uint32, jt, jf int) unix.SockFilter {
	return unix.SockFilter{Code: code, K: k, Jt: uint8(jt), Jf: uint8(jf)}
}

const (
	ldAbs = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	jeq   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	jge   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	jset  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	ja    = unix.BPF_JMP | unix.BPF_JA
	ret   = unix.BPF_RET | unix.BPF_K
)

// program builds the filter. The refused calls come first, so that no block can let one of them pass, then a block
// for each call whose arguments matter, each ending in a return.
func program(o Options) []unix.SockFilter {
	errno := func(e unix.Errno) unix.SockFilter { return stmt(ret, retErrno|uint32(e)) }
	p := []unix.SockFilter{
		stmt(ldAbs, offArch),
		jump(jeq, auditArch, 1, 0),
		errno(unix.ENOSYS),
		stmt(ldAbs, offNr),
	}
	if foreignFrom != 0 {
		p = append(p, jump(jge, foreignFrom, 0, 1), errno(unix.ENOSYS))
	}
	calls := append(append([]uint32{}, refused...), refusedArch...)
	if !o.Supervised {
		calls = append(calls, unix.SYS_PIDFD_GETFD)
	}
	if o.Alone {
		calls = append(calls, aloneRefused...)
	}
	if o.Frozen {
		calls = append(append(calls, frozenRefused...), frozenArch...)
	}
	for i, nr := range calls {
		p = append(p, jump(jeq, nr, len(calls)-i, 0))
	}
	p = append(p, stmt(ja, 1), errno(unix.EPERM))
	block := func(nr uint32, body ...unix.SockFilter) {
		p = append(p, jump(jeq, nr, 0, len(body)))
		p = append(p, body...)
	}
	flags := func(off, mask uint32) []unix.SockFilter {
		return []unix.SockFilter{stmt(ldAbs, off), jump(jset, mask, 0, 1), errno(unix.EPERM), stmt(ret, retAllow)}
	}
	block(unix.SYS_CLONE, flags(offArg0, newNamespaces)...)
	block(unix.SYS_UNSHARE, flags(offArg0, newNamespaces|unix.CLONE_NEWTIME)...)
	// A program that gains its owner's rights outside, for whoever runs it there. One that is opened with this mode
	// loses it with the first write.
	block(unix.SYS_FCHMOD, flags(offArg1, unix.S_ISUID)...)
	block(unix.SYS_FCHMODAT, flags(offArg2, unix.S_ISUID)...)
	block(unix.SYS_FCHMODAT2, flags(offArg2, unix.S_ISUID)...)
	if sysChmod != 0 {
		block(sysChmod, flags(offArg1, unix.S_ISUID)...)
	}
	// Terminal injection; only the low half counts, as in the kernel's own comparison.
	block(unix.SYS_IOCTL, stmt(ldAbs, offArg1), jump(jeq, unix.TIOCSTI, 1, 0), jump(jeq, tiocLinux, 0, 1),
		errno(unix.EPERM), stmt(ret, retAllow))
	if o.Alone {
		p = append(p, aloneBlocks()...)
	} else {
		// The limits of another process: with them a command could take from the guest, and from other commands, what they
		// need to go on. Looking at them is allowed.
		block(unix.SYS_PRLIMIT64, stmt(ldAbs, offArg0), jump(jeq, 0, 5, 0), stmt(ldAbs, offArg2), jump(jeq, 0, 0, 2),
			stmt(ldAbs, offArg2+4), jump(jeq, 0, 1, 0), errno(unix.EPERM), stmt(ret, retAllow))
	}
	block(unix.SYS_SOCKET, stmt(ldAbs, offArg0), jump(jeq, unix.AF_UNIX, 3, 0), jump(jeq, unix.AF_INET, 2, 0),
		jump(jeq, unix.AF_INET6, 1, 0), jump(jeq, unix.AF_NETLINK, 0, 1), stmt(ret, retAllow), errno(unix.EAFNOSUPPORT))
	return append(p, stmt(ret, retAllow))
}

const tiocLinux = 0x541c

// refused lists the calls that every architecture has.
var refused = []uint32{
	// mounts and roots
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL,
	unix.SYS_QUOTACTL_FD,
	// kernel surface
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_FANOTIFY_INIT,
	unix.SYS_KCMP, unix.SYS_LOOKUP_DCOOKIE,
	// machine
	unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT,
	unix.SYS_ACCT, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG, unix.SYS_VHANGUP,
	unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_SETTIMEOFDAY, unix.SYS_ADJTIMEX,
}
