// Package guestproto is the protocol between the owner of a sandbox, its keeper and its guest: frames over a
// stream socket pair, with descriptors passed beside them.
//
// Both ends are always built from the same source, so there is no version negotiation beyond one number that
// is compared at the start. A Conn may be written by many goroutines and read by one.
package guestproto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Version is bumped when frames change meaning.
const Version = 3

const (
	headerLen = 16
	// MaxBody bounds a frame: the kernel's argument limit plus room.
	MaxBody = 8 << 20
	maxFDs  = 8
)

// Msg is one frame. Files are open descriptors that now belong to the receiver.
type Msg struct {
	Kind  Kind
	ID    uint64
	Body  []byte
	Files []int
}

// CloseFiles closes the descriptors that the receiver does not want to keep.
func (m *Msg) CloseFiles() {
	for _, fd := range m.Files {
		unix.Close(fd)
	}
	m.Files = nil
}

// TakeFile hands over the i-th descriptor, or -1 when there is none.
func (m *Msg) TakeFile(i int) int {
	if i >= len(m.Files) {
		return -1
	}
	fd := m.Files[i]
	m.Files[i] = -1
	return fd
}

// Conn sends and receives frames.
type Conn struct {
	sock *net.UnixConn
	wmu  sync.Mutex
	buf  []byte // received, not yet consumed
	fds  []int  // received descriptors, in order
	oob  []byte
}

// NewConn takes ownership of a connected stream socket descriptor.
func NewConn(fd int) (*Conn, error) {
	f := os.NewFile(uintptr(fd), "sandbox-control")
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("open control socket: not a unix socket")
	}
	return &Conn{sock: u, oob: make([]byte, unix.CmsgSpace(4*maxFDs))}, nil
}

// Pair returns two connected close-on-exec stream sockets.
func Pair() (ours, theirs int, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("make control socket: %w", err)
	}
	return p[0], p[1], nil
}

// Close ends both directions.
func (c *Conn) Close() error { return c.sock.Close() }

// Send writes one frame. The descriptors stay the caller's.
func (c *Conn) Send(kind Kind, id uint64, body []byte, fds ...int) error {
	if len(body) > MaxBody || len(fds) > maxFDs {
		return fmt.Errorf("send %v: message of %d bytes and %d descriptors is too large: %w", kind, len(body), len(fds), syscall.E2BIG)
	}
	msg := make([]byte, headerLen+len(body))
	binary.LittleEndian.PutUint32(msg, uint32(len(body)))
	msg[4], msg[5] = byte(kind), byte(len(fds))
	binary.LittleEndian.PutUint64(msg[8:], id)
	copy(msg[headerLen:], body)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	for len(msg) > 0 {
		n, _, err := c.sock.WriteMsgUnix(msg, oob, nil)
		if err != nil {
			return fmt.Errorf("send %v: %w", kind, err)
		}
		msg, oob = msg[n:], nil
	}
	return nil
}

// Recv reads one frame. At the end of the stream it returns io.EOF.
func (c *Conn) Recv() (Msg, error) {
	if err := c.fill(headerLen); err != nil {
		return Msg{}, err
	}
	n := int(binary.LittleEndian.Uint32(c.buf))
	nf := int(c.buf[5])
	if n > MaxBody || nf > maxFDs {
		return Msg{}, fmt.Errorf("receive: frame of %d bytes is too large", n)
	}
	if err := c.fill(headerLen + n); err != nil {
		return Msg{}, err
	}
	m := Msg{Kind: Kind(c.buf[4]), ID: binary.LittleEndian.Uint64(c.buf[8:])}
	m.Body = append([]byte(nil), c.buf[headerLen:headerLen+n]...)
	rest := c.buf[headerLen+n:]
	if len(rest) == 0 && cap(c.buf) > 1<<16 {
		c.buf = nil // do not keep the memory of a rare large frame
	} else {
		c.buf = append(c.buf[:0], rest...)
	}
	if len(c.fds) < nf {
		return Msg{}, fmt.Errorf("receive %v: %d descriptors announced, %d came", m.Kind, nf, len(c.fds))
	}
	m.Files = append([]int(nil), c.fds[:nf]...)
	c.fds = append(c.fds[:0], c.fds[nf:]...)
	return m, nil
}

// fill reads until the buffer holds at least n bytes.
func (c *Conn) fill(n int) error {
	for len(c.buf) < n {
		old := len(c.buf)
		if cap(c.buf) < n || cap(c.buf) == old {
			grown := make([]byte, old, max(n, 4096))
			copy(grown, c.buf)
			c.buf = grown
		}
		k, oobn, flags, _, err := c.sock.ReadMsgUnix(c.buf[old:cap(c.buf)], c.oob)
		if oobn > 0 {
			if perr := c.takeRights(c.oob[:oobn]); perr != nil {
				return perr
			}
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return errors.New("receive: descriptors were cut off (descriptor limit reached)")
		}
		if err != nil {
			return err
		}
		if k == 0 {
			if old > 0 {
				return io.ErrUnexpectedEOF
			}
			return io.EOF
		}
		c.buf = c.buf[:old+k]
	}
	return nil
}

func (c *Conn) takeRights(oob []byte) error {
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("receive descriptors: %w", err)
	}
	for i := range cmsgs {
		fds, err := unix.ParseUnixRights(&cmsgs[i])
		if err != nil {
			return fmt.Errorf("receive descriptors: %w", err)
		}
		c.fds = append(c.fds, fds...)
	}
	return nil
}
