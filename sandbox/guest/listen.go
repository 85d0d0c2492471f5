package guest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// listenBacklog is how many connections may wait for the owner to accept them.
const listenBacklog = 128

// listen opens a listener on the loopback interface of this network namespace and gives it to the owner, who
// accepts on it from outside. The guest keeps nothing of it.
func (s *server) listen(m *guestproto.Msg) {
	fd, port, err := loopbackListener()
	if err != nil {
		s.reply(m.ID, failure(fmt.Errorf("listen for the proxy: %w", err)))
		return
	}
	defer unix.Close(fd)
	var e guestproto.Enc
	e.Uint(uint64(port))
	s.reply(m.ID, guestproto.Reply{Body: e.B}, fd)
}

func loopbackListener() (fd, port int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, 0, os.NewSyscallError("socket", err)
	}
	err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, listenBacklog))
	}
	if err == nil {
		var sa unix.Sockaddr
		if sa, err = unix.Getsockname(fd); err == nil {
			if in, ok := sa.(*unix.SockaddrInet4); ok {
				return fd, in.Port, nil
			}
			err = unix.EAFNOSUPPORT
		}
	}
	unix.Close(fd)
	return -1, 0, err
}
