package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	sockDiagByFamily = 20
	diagHeader       = 16 // struct unix_diag_msg
	diagName         = 0
	diagFile         = 1
	diagShow         = 1<<diagName | 1<<diagFile
)

// boundSocket is a socket with a name in the file system.
type boundSocket struct {
	name     string
	ino, dev uint32 // the kernel's own numbers, cut to 32 bits
}

// boundHere reports whether a socket of this network namespace is bound to an open file. Every process of the
// sandbox and none of the host is in that namespace.
func boundHere(file int, st unix.Stat_t) bool {
	list, err := boundSockets()
	if err != nil {
		return false
	}
	dev, plain := fileSystem(file, st)
	for _, b := range list {
		if b.ino != uint32(st.Ino) || b.dev != dev {
			continue
		}
		if plain && st.Ino <= math.MaxUint32 {
			return true
		}
		// The numbers are not the whole truth here: the name it was bound to must lead to the same file too.
		var named unix.Stat_t
		if strings.HasPrefix(b.name, "/") && unix.Stat(b.name, &named) == nil && named.Dev == st.Dev && named.Ino == st.Ino {
			return true
		}
	}
	return false
}

// fileSystem returns the number of the file system that holds an open file, and whether the numbers that stat
// shows are the kernel's own. On btrfs and overlays they are not.
func fileSystem(file int, st unix.Stat_t) (dev uint32, plain bool) {
	dev = unix.Major(st.Dev)<<20 | unix.Minor(st.Dev)
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(file))
	if err != nil {
		return dev, true
	}
	_, rest, _ := strings.Cut(string(info), "mnt_id:")
	id, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return dev, true
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		var major, minor uint32
		if len(f) < 3 || f[0] != id {
			continue
		}
		if n, _ := fmt.Sscanf(f[2], "%d:%d", &major, &minor); n == 2 {
			real := major<<20 | minor
			return real, real == dev
		}
	}
	return dev, true
}

// boundSockets lists the unix sockets of this network namespace that have a file.
func boundSockets() ([]boundSocket, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	ne := binary.NativeEndian
	req := make([]byte, 0, 40)
	req = ne.AppendUint32(req, 40)
	req = ne.AppendUint16(req, sockDiagByFamily)
	req = ne.AppendUint16(req, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	req = append(req, 1, 0, 0, 0, 0, 0, 0, 0) // sequence, port
	req = append(req, unix.AF_UNIX, 0, 0, 0)
	for _, v := range []uint32{math.MaxUint32, 0, diagShow, 0, 0} { // states, inode, show, cookie
		req = ne.AppendUint32(req, v)
	}
	if err := unix.Sendto(s, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var out []boundSocket
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(s, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		more, err := diagMessages(buf[:n], &out)
		if !more || err != nil {
			return out, err
		}
	}
}

// diagMessages takes the sockets out of one datagram and tells whether more follow.
func diagMessages(b []byte, out *[]boundSocket) (more bool, err error) {
	ne := binary.NativeEndian
	for len(b) >= unix.NLMSG_HDRLEN {
		n, kind := int(ne.Uint32(b)), ne.Uint16(b[4:])
		if n < unix.NLMSG_HDRLEN || n > len(b) {
			return false, unix.EBADMSG
		}
		switch kind {
		case unix.NLMSG_DONE:
			return false, nil
		case unix.NLMSG_ERROR:
			return false, unix.EPROTO
		case sockDiagByFamily:
			if s, ok := diagSocket(b[unix.NLMSG_HDRLEN:n]); ok {
				*out = append(*out, s)
			}
		}
		b = b[min(len(b), (n+3)&^3):]
	}
	return true, nil
}

func diagSocket(b []byte) (s boundSocket, ok bool) {
	if len(b) < diagHeader {
		return s, false
	}
	ne := binary.NativeEndian
	for b = b[diagHeader:]; len(b) >= 4; {
		n, kind := int(ne.Uint16(b)), ne.Uint16(b[2:])
		if n < 4 || n > len(b) {
			return s, false
		}
		switch data := b[4:n]; {
		case kind == diagName:
			s.name = strings.TrimRight(string(data), "\x00")
		case kind == diagFile && len(data) >= 8:
			s.ino, s.dev, ok = ne.Uint32(data), ne.Uint32(data[4:]), true
		}
		b = b[min(len(b), (n+3)&^3):]
	}
	return s, ok
}
