package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

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

// Supervise puts a second filter on the calling thread, which its children inherit: connect is handed to the
// listener that is returned (close-on-exec), unix datagram sockets are refused with ESOCKTNOSUPPORT because each
// message of theirs can name a receiver, and descriptors of other processes cannot be taken.
func Supervise() (listener int, err error) {
	prog := superviseProgram()
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, superviseFlags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return -1, fmt.Errorf("install connect filter: %w", errno)
	}
	return int(r), nil
}

func superviseProgram() []unix.SockFilter {
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
