package seccomp

import "golang.org/x/sys/unix"

const sysFchmodat2 = 452

// aloneBlocks are the calls whose arguments matter for processes without namespaces. Sockets are those of unix
// streams, and cannot be connected: what is left is socketpair, and listening for others. A call that names another
// process is refused, 0 being the caller.
func aloneBlocks() []unix.SockFilter {
	eperm := stmt(ret, retErrno|uint32(unix.EPERM))
	var p []unix.SockFilter
	for _, nr := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		p = append(p,
			jump(jeq, nr, 0, 9),
			stmt(ldAbs, offArg0),
			jump(jeq, unix.AF_UNIX, 1, 0),
			stmt(ret, retErrno|uint32(unix.EAFNOSUPPORT)),
			stmt(ldAbs, offArg1),
			stmt(andK, 0xf), // without SOCK_CLOEXEC and SOCK_NONBLOCK
			jump(jeq, unix.SOCK_STREAM, 2, 0),
			jump(jeq, unix.SOCK_SEQPACKET, 1, 0),
			stmt(ret, retErrno|uint32(unix.ESOCKTNOSUPPORT)),
			stmt(ret, retAllow))
	}
	other := func(off uint32, calls ...uint32) {
		for _, nr := range calls {
			p = append(p, jump(jeq, nr, 0, 4), stmt(ldAbs, off), jump(jeq, 0, 1, 0), eperm, stmt(ret, retAllow))
		}
	}
	other(offArg0, unix.SYS_PRLIMIT64, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETAFFINITY)
	other(offArg1, unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET)
	return p
}

const andK = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K

var aloneRefused = []uint32{
	unix.SYS_CONNECT,
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

var frozenRefused = []uint32{
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, sysFchmodat2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
	sysSetxattrat, sysRemovexattrat, sysFileSetattr,
}

// Newer than the list of calls that is used here, the same on every architecture.
const (
	sysSetxattrat    = 463
	sysRemovexattrat = 466
	sysFileSetattr   = 469
)

// AloneProgram is a second filter for the commands of such a process: clone3, whose arguments no filter can see, does
// not exist, so that programs use clone, where new namespaces are refused.
func AloneProgram() []unix.SockFilter {
	return []unix.SockFilter{
		stmt(ldAbs, offNr), // calls of a foreign ABI do not get this far
		jump(jeq, unix.SYS_CLONE3, 0, 1),
		stmt(ret, retErrno|uint32(unix.ENOSYS)),
		stmt(ret, retAllow),
	}
}
