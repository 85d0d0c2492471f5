package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// pipeSet are the pipes of one command: our ends go to the Proc, theirs to the guest. The descriptors of a
// command are blocking, as programs expect; ours are not, so that the runtime can wait for many.
type pipeSet struct {
	theirs []int
	ours   []*os.File
}

func (s *pipeSet) open(c Cmd, req *guestproto.Start, p *Proc) error {
	if c.TTY {
		return nil // the guest makes the terminal
	}
	if c.Stdin == StdinPipe {
		w, err := s.pipe(true)
		if err != nil {
			return err
		}
		p.stdin, req.HasStdin = w, true
	}
	r, err := s.pipe(false)
	if err != nil {
		return err
	}
	p.stdout, req.HasStdout = r, true
	if !c.MergeStderr {
		if r, err = s.pipe(false); err != nil {
			return err
		}
		p.stderr, req.HasStderr = r, true
	}
	return nil
}

// pipe makes a pipe of which we keep the write end or the read end.
func (s *pipeSet) pipe(write bool) (*os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	ours, theirs := fds[0], fds[1]
	if write {
		ours, theirs = theirs, ours
	}
	s.theirs = append(s.theirs, theirs)
	if err := unix.SetNonblock(ours, true); err != nil {
		unix.Close(ours)
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	f := os.NewFile(uintptr(ours), "pipe")
	s.ours = append(s.ours, f)
	return f, nil
}

func (s *pipeSet) closeTheirs() { closeFDs(s.theirs) }

func (s *pipeSet) closeOurs() {
	for _, f := range s.ours {
		f.Close()
	}
}

// masterReader reads a terminal's master; the kernel's EIO there means that the last user is gone.
type masterReader struct{ f *os.File }

func (r *masterReader) Read(b []byte) (int, error) {
	n, err := r.f.Read(b)
	if n == 0 && errors.Is(err, syscall.EIO) {
		return 0, io.EOF
	}
	return n, err
}

func (r *masterReader) Close() error { return r.f.Close() }

// masterWriter types into a terminal. The master itself is closed with the reader.
type masterWriter struct{ f *os.File }

const endOfTransmission = 4

func (w *masterWriter) Write(b []byte) (int, error) { return w.f.Write(b) }

func (w *masterWriter) Close() error {
	_, err := w.f.Write([]byte{endOfTransmission})
	return err
}

func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}
