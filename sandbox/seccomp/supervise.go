package seccomp

import (
	"golang.org/x/sys/unix"
)

const retNotify = unix.SECCOMP_RET_USER_NOTIF

// superviseFlags: a call that was taken over is not interrupted, or it would be repeated after it was done.
const superviseFlags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV

// CanSupervise reports whether the kernel (5.19 or newer) can hand over connect to a supervisor.
func CanSupervise() bool {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, superviseFlags, 0)
	return errno == unix.EFAULT // the flags are known, the missing program is not accepted
}

// SuperviseProgram is a second filter, which a process puts on itself before it becomes a command and which its
// children inherit: connect is handed to a listener, unix datagram sockets are refused with ESOCKTNOSUPPORT because
// each message of theirs can name a receiver, and descriptors of other processes cannot be taken.
func SuperviseProgram() []unix.SockFilter {
	const and = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	return []unix.SockFilter{
		stmt(ldAbs, offNr), // calls of a foreign ABI do not get this far
		jump(jeq, unix.SYS_CONNECT, 10, 0),
		jump(jeq, unix.SYS_PIDFD_GETFD, 10, 0),
		jump(jeq, unix.SYS_SOCKET, 1, 0),
		jump(jeq, unix.SYS_SOCKETPAIR, 0, 6),
		stmt(ldAbs, offArg0),
		jump(jeq, unix.AF_UNIX, 0, 4),
		stmt(ldAbs, offArg1),
		stmt(and, 0xf), // without SOCK_CLOEXEC and SOCK_NONBLOCK
		jump(jeq, unix.SOCK_DGRAM, 4, 0),
		jump(jeq, unix.SOCK_RAW, 3, 0), // the same as datagram
		stmt(ret, retAllow),
		stmt(ret, retNotify),
		stmt(ret, retErrno|uint32(unix.EPERM)),
		stmt(ret, retErrno|uint32(unix.ESOCKTNOSUPPORT)),
	}
}
