package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// Proc is a started command. Close the streams when done; Wait must be called.
type Proc struct {
	s      *Sandbox
	b      *box
	id     uint64
	pid    int
	leaf   *leaf // nil: the guest's subreaper is the kill domain
	proxy  *proxy
	exit   chan guestproto.Exit
	stdout io.ReadCloser
	stderr io.ReadCloser
	stdin  io.WriteCloser
	master *os.File

	denied   []string // sockets of the host; guarded by box.mu
	scan     *scanner // nil: nothing to look at afterwards
	before   limitCounts
	started  time.Time
	killed   atomic.Bool
	timedOut atomic.Bool
	diskLow  atomic.Bool
	done     chan struct{}
	result   Result // valid when done is closed
}

// PID is the process id as commands in the sandbox see it; 0 for a program that could not be executed.
func (p *Proc) PID() int { return p.pid }

// Stdout is the read end of standard output, or the terminal's master. It ends (io.EOF) when every process of
// the command is gone.
func (p *Proc) Stdout() io.ReadCloser { return p.stdout }

// Stderr is nil with TTY or MergeStderr.
func (p *Proc) Stderr() io.ReadCloser { return p.stderr }

// Stdin is nil unless StdinPipe or TTY was asked for. Closing a terminal's Stdin sends end-of-file (^D).
func (p *Proc) Stdin() io.WriteCloser { return p.stdin }

// Resize sets the terminal's size.
func (p *Proc) Resize(rows, cols uint16) error {
	if p.master == nil {
		return errors.New("resize: the command has no terminal")
	}
	return control(p.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// Signal sends a signal to the command's process group, with a terminal to its foreground group.
func (p *Proc) Signal(sig os.Signal) error {
	n, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %v is not supported", sig)
	}
	if isClosed(p.done) {
		return os.ErrProcessDone
	}
	if p.master != nil {
		if control(p.master, func(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCSIG, int(n)) }) == nil {
			return nil
		}
	}
	var e guestproto.Enc
	e.Int(int64(n))
	return p.b.conn.Send(guestproto.KSignal, p.id, e.B)
}

// Kill ends the command and everything it started. Wait reports it.
func (p *Proc) Kill() error {
	if isClosed(p.done) {
		return os.ErrProcessDone
	}
	p.killed.Store(true)
	return p.end()
}

func (p *Proc) end() error {
	if p.leaf != nil {
		return p.leaf.kill()
	}
	return p.b.conn.Send(guestproto.KKill, p.id, nil)
}

// Done is closed when the command and everything it started is gone.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Wait returns when the command and everything it started is gone. The error is only ctx's.
func (p *Proc) Wait(ctx context.Context) (Result, error) {
	select {
	case <-p.done:
		return p.result, nil
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
}
