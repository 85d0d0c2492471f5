package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

const (
	// maxConnects bounds calls that are being performed at once; each may block a thread. More wait.
	maxConnects = 128
	// maxDenials bounds what one command can report.
	maxDenials = 16
	maxAddr    = 128 // sockaddr_storage

	notifyIDValid  = 0x40082102 // SECCOMP_IOCTL_NOTIF_ID_VALID
	notifySetFlags = 0x40082104 // SECCOMP_IOCTL_NOTIF_SET_FLAGS
)

// connector performs the connect calls of commands. A mount cannot keep a command from connecting to a socket
// file of the host, and a filter cannot see the address, which lies in memory that the command can change at any
// time. So the call is taken over: the address is copied once, judged, and used on a copy of the command's socket.
// The call is never let through, whatever its family. A socket file is connected to when it was bound in this
// sandbox, which its network namespace tells. A name without a file is looked for in that namespace only.
type connector struct {
	slots   chan struct{}
	private []uint64 // devices of file systems that only this sandbox can see
	tell    func(id uint64, path string)
}

func newConnector(hostTmp bool, tell func(id uint64, path string)) *connector {
	c := &connector{slots: make(chan struct{}, maxConnects), tell: tell}
	dirs := []string{"/run", "/dev/shm", "/dev"}
	if !hostTmp {
		dirs = append(dirs, "/tmp")
	}
	for _, d := range dirs {
		var st unix.Stat_t
		if unix.Stat(d, &st) == nil {
			c.private = append(c.private, st.Dev)
		}
	}
	return c
}

// notification is struct seccomp_notif.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// follow serves the calls of one command and what it started until the last of them has ended.
func (c *connector) follow(command uint64, listener int) {
	_ = unix.SetNonblock(listener, true) // so that waiting takes no thread
	// Both sides run on one processor then, where the kernel knows how (6.6).
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), notifySetFlags, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	f := os.NewFile(uintptr(listener), "connect-calls")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return
	}
	var wg sync.WaitGroup
	var told denials
	_ = raw.Read(func(fd uintptr) bool {
		for {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(p, 0); errors.Is(err, unix.EINTR) {
				continue
			}
			if p[0].Revents&unix.POLLIN == 0 {
				return p[0].Revents&unix.POLLHUP != 0
			}
			var n notification
			if ioctl(int(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != nil {
				continue // the caller has died meanwhile
			}
			c.slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-c.slots }()
				c.answer(int(fd), n, func(path string) {
					if told.first(path) {
						c.tell(command, path)
					}
				})
			})
		}
	})
	wg.Wait()
	f.Close()
}

// denials remembers what was told.
type denials struct {
	mu   sync.Mutex
	seen []string
}

func (d *denials) first(path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.seen {
		if s == path {
			return false
		}
	}
	if len(d.seen) == maxDenials {
		return false
	}
	d.seen = append(d.seen, path)
	return true
}

func ioctl(fd int, req uint, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

func (c *connector) answer(listener int, n notification, deny func(path string)) {
	r := response{id: n.id}
	valid := func() bool { return ioctl(listener, notifyIDValid, unsafe.Pointer(&n.id)) == nil }
	if err := c.connect(n, valid, deny); err != nil {
		errno := unix.EACCES
		_ = errors.As(err, &errno)
		r.errno = -int32(errno)
	}
	_ = ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) // fails only for a caller that is gone
}

// connect does what the caller asked for. An error without an errno is a refusal.
func (c *connector) connect(n notification, valid func() bool, deny func(path string)) error {
	tid, size := int(n.pid), int(int32(n.args[2]))
	if size < 0 || size > maxAddr {
		return unix.EINVAL
	}
	addr, err := readMemory(tid, uintptr(n.args[1]), size)
	if err != nil {
		return err
	}
	sock, err := takeDescriptor(tid, int(int32(n.args[0])))
	if err != nil {
		return err
	}
	defer unix.Close(sock)
	path, named := socketPath(addr)
	if !named {
		if !valid() { // the number may mean another process by now
			return unix.ESRCH
		}
		err := connectTo(sock, addr)
		if name, ok := abstractName(addr); ok && errors.Is(err, unix.ECONNREFUSED) {
			deny(name) // no such name in this sandbox; who can see the host's knows whether it is one of those
		}
		return err
	}
	file, err := openSocket(tid, path)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	if !valid() {
		return unix.ESRCH
	}
	if !c.inside(file) {
		deny(path)
		return errNotInside
	}
	// By descriptor: exactly the file that was judged.
	return connectTo(sock, sockaddr("/proc/self/fd/"+strconv.Itoa(file)))
}

var errNotInside = errors.New("socket of the host")

func connectTo(sock int, addr []byte) error {
	buf := make([]byte, maxAddr)
	copy(buf, addr)
	for {
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(sock), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(addr)))
		runtime.KeepAlive(buf)
		switch errno {
		case 0:
			return nil
		case unix.EINTR: // our own interruption; the call goes on where it was
		default:
			return errno
		}
	}
}

// socketPath returns the file name in a unix address; abstract and empty ones have none.
func socketPath(addr []byte) (string, bool) {
	if len(addr) <= 2 || binary.NativeEndian.Uint16(addr) != unix.AF_UNIX || addr[2] == 0 {
		return "", false
	}
	name := addr[2:]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	return string(name), true
}

// abstractName returns the name in a unix address that is no file's, with the NUL byte it begins with.
func abstractName(addr []byte) (string, bool) {
	if len(addr) <= 3 || binary.NativeEndian.Uint16(addr) != unix.AF_UNIX || addr[2] != 0 {
		return "", false
	}
	return string(addr[2:]), true
}

func sockaddr(path string) []byte {
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX)
	return append(append(b, path...), 0)
}

func readMemory(tid int, at uintptr, size int) ([]byte, error) {
	b := make([]byte, size)
	if size == 0 {
		return b, nil
	}
	local := []unix.Iovec{{Base: &b[0], Len: uint64(size)}}
	n, err := unix.ProcessVMReadv(tid, local, []unix.RemoteIovec{{Base: at, Len: size}}, 0)
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, unix.EACCES
	case err != nil:
		return nil, err
	case n != size:
		return nil, unix.EFAULT
	}
	return b, nil
}

// takeDescriptor copies a descriptor of a thread.
func takeDescriptor(tid, fd int) (int, error) {
	p, err := unix.PidfdOpen(tid, unix.PIDFD_THREAD)
	if errors.Is(err, unix.EINVAL) { // kernels before 6.9 know only whole processes
		p, err = unix.PidfdOpen(processOf(tid), 0)
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(p)
	sock, err := unix.PidfdGetfd(p, fd, 0)
	if errors.Is(err, unix.EPERM) {
		err = unix.EACCES
	}
	return sock, err
}

// processOf returns the process that a thread belongs to.
func processOf(tid int) int {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
	_, rest, _ := strings.Cut(string(b), "\nTgid:")
	line, _, _ := strings.Cut(rest, "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return tid
	}
	return pid
}

// openSocket opens what a path means to a thread. Nothing can be done with the result but to look at it and
// to connect to it, so that it is enough to judge what it turned out to be.
func openSocket(tid int, path string) (int, error) {
	proc := "/proc/" + strconv.Itoa(tid)
	dir := unix.AT_FDCWD
	for _, self := range []string{"/proc/self/", "/proc/thread-self/"} {
		if rest, ok := strings.CutPrefix(path, self); ok {
			path = proc + "/" + rest
		}
	}
	if rest, ok := strings.CutPrefix(path, "/dev/fd/"); ok {
		path = proc + "/fd/" + rest
	}
	if !strings.HasPrefix(path, "/") {
		d, err := unix.Open(proc+"/cwd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		defer unix.Close(d)
		dir = d
	}
	return unix.Openat(dir, path, unix.O_PATH|unix.O_CLOEXEC, 0)
}

// inside reports whether connecting to an open file stays in the sandbox.
func (c *connector) inside(file int) bool {
	var st unix.Stat_t
	if unix.Fstat(file, &st) != nil {
		return false
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return true // nobody listens there
	}
	for _, d := range c.private {
		if st.Dev == d {
			return true
		}
	}
	return boundHere(file, st)
}

// denied tells the owner.
func (s *server) denied(command uint64, path string) {
	_ = s.conn.Send(guestproto.KDenied, command, []byte(path))
}
