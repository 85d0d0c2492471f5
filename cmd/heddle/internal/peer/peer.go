// Package peer decides who may talk to heddle's own listeners.
//
// A local listener serves one user, and a process inside one of our sandboxes
// must not use it to leave the sandbox (design, section 8). Both are decided
// when a connection is accepted, from facts of the kernel: the credentials of
// the socket and the namespaces of the process behind it. What cannot be told
// is refused. All functions may be called concurrently.
package peer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Identity is the process at the other end of a unix socket when it connected.
type Identity struct {
	PID int
	UID int
}

// ErrRefused is wrapped by every refusal.
var ErrRefused = errors.New("peer refused")

// OfUnix reads the identity from the socket. The connection stays usable.
func OfUnix(c *net.UnixConn) (Identity, error) {
	var cred *unix.Ucred
	err := control(c, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return Identity{}, fmt.Errorf("read peer credentials: %w", err)
	}
	return Identity{PID: int(cred.Pid), UID: int(cred.Uid)}, nil
}

// SameUser fails unless the other end of a unix socket runs as this process's
// user. Clients use it on the server.
func SameUser(c *net.UnixConn) (Identity, error) {
	id, err := OfUnix(c)
	if err != nil {
		return id, err
	}
	if id.UID != os.Geteuid() {
		return id, fmt.Errorf("%w: socket belongs to uid %d, this is uid %d", ErrRefused, id.UID, os.Geteuid())
	}
	return id, nil
}

// CheckUnix fails unless the client of a unix socket is a live process of this
// user outside of every nested pid namespace. Each contained sandbox has a pid
// namespace of its own, so this tells them without reading anything that needs
// the right to trace the peer.
func CheckUnix(c *net.UnixConn) (Identity, error) {
	id, err := SameUser(c)
	if err != nil {
		return id, err
	}
	if id.PID <= 0 {
		return id, fmt.Errorf("%w: its process is not visible from here (another pid namespace)", ErrRefused)
	}
	// The descriptor of the process that connected pins its id: as long as it
	// is alive, /proc/PID is that process and no later one.
	pidfd, pinned := peerPidfd(c)
	if pinned {
		defer unix.Close(pidfd)
	}
	nested, err := inNestedPidNamespace(id.PID)
	if err != nil {
		return id, fmt.Errorf("%w: process %d cannot be examined: %w", ErrRefused, id.PID, err)
	}
	if nested {
		return id, fmt.Errorf("%w: process %d runs inside a sandbox", ErrRefused, id.PID)
	}
	if pinned {
		if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil && !errors.Is(err, unix.EPERM) {
			return id, fmt.Errorf("%w: process %d ended: %w", ErrRefused, id.PID, err)
		}
	}
	return id, nil
}

// soPeerPidfd is SO_PEERPIDFD of Linux 6.5.
const soPeerPidfd = 77

func peerPidfd(c *net.UnixConn) (fd int, ok bool) {
	err := control(c, func(sock int) (err error) {
		fd, err = unix.GetsockoptInt(sock, unix.SOL_SOCKET, soPeerPidfd)
		return err
	})
	return fd, err == nil
}

func control(c *net.UnixConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// inNestedPidNamespace reads NSpid, which lists a process's id in each pid
// namespace from ours down to its own.
func inNestedPidNamespace(pid int) (bool, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false, err
	}
	sc := bufio.NewScanner(bytes.NewReader(data))
	for sc.Scan() {
		if rest, ok := strings.CutPrefix(sc.Text(), "NSpid:"); ok {
			return len(strings.Fields(rest)) > 1, nil
		}
	}
	return false, errors.New("status has no NSpid line (kernel older than 4.1)")
}
