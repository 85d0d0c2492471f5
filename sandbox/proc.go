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

// diskInterval is how often the free space is looked at while a command runs.
const diskInterval = 100 * time.Millisecond

// Start starts a command.
func (s *Sandbox) Start(ctx context.Context, c Cmd) (*Proc, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("start command: empty argument list")
	}
	for range 2 { // the instance may be lost between the check and the start
		b, err := s.use(ctx)
		if err != nil {
			return nil, err
		}
		p, err := s.startIn(ctx, b, c)
		if err == nil {
			return p, nil
		}
		b.release()
		if !errors.Is(err, ErrLost) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("start command: %w", ErrLost)
}

func (s *Sandbox) startIn(ctx context.Context, b *box, c Cmd) (_ *Proc, err error) {
	p := &Proc{s: s, b: b, exit: make(chan guestproto.Exit, 1), done: make(chan struct{})}
	req := guestproto.Start{Argv: c.Argv, Env: s.env(b, c.Env), Dir: c.Dir, TTY: c.TTY, Rows: c.Rows, Cols: c.Cols}
	if req.Dir == "" {
		req.Dir = b.plan.dir
	}
	if !b.namespaced() { // no mount holds the folder in its place
		if folder, below := b.policy.pinnedDir(req.Dir); folder != "" {
			req.Below, req.Dir = folder, below
		}
	}
	if p.proxy, err = b.startProxy(ctx, c.Network); err != nil {
		return nil, err
	}
	req.Env = p.proxy.env(req.Env)
	var pipes pipeSet
	defer pipes.closeTheirs()
	defer func() {
		if err != nil {
			pipes.closeOurs()
		}
	}()
	id, answers, err := b.register(p)
	if err != nil {
		p.proxy.close()
		return nil, err
	}
	var fds []int
	if b.cgroup != "" {
		if p.leaf, err = b.leaves.take(); err != nil {
			b.unregister(id)
			p.proxy.close()
			return nil, err
		}
		req.HasCgroup = true
		fds = append(fds, p.leaf.fd)
	}
	if c.TTY && b.landlock {
		err = b.openTTY(c, &req, p, &pipes)
	} else {
		err = pipes.open(c, &req, p)
	}
	if err != nil {
		p.drop()
		return nil, err
	}
	fds = append(fds, pipes.theirs...)
	if p.scan = s.scanner(); p.scan != nil {
		p.scan.begin()
	}
	p.before = b.limits.count()
	p.started = time.Now()
	if err = b.conn.Send(guestproto.KStart, id, req.Encode(), fds...); err != nil {
		p.drop()
		if errors.Is(err, syscall.E2BIG) {
			return nil, fmt.Errorf("start command: %w", err)
		}
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	select {
	case a := <-answers:
		if err = p.accept(a, req.Dir, c.TTY); err != nil {
			p.drop()
			return nil, err
		}
	case <-ctx.Done():
		b.hold()
		go func() { // it may have started: end it when the guest answers
			if p.accept(<-answers, req.Dir, c.TTY) != nil {
				p.drop()
				b.release()
				return
			}
			_ = p.Kill()
			p.follow(0)
		}()
		return nil, ctx.Err()
	}
	go p.follow(c.Timeout)
	return p, nil
}

// accept takes the guest's answer to a start.
func (p *Proc) accept(a answer, dir string, tty bool) error {
	if a.err != nil {
		return a.err
	}
	if a.Errno != 0 {
		closeFDs(a.files)
		e := &guestError{errno: syscall.Errno(a.Errno), text: a.Text}
		if string(a.Body) == "dir" {
			return fmt.Errorf("%w: %s: %w", ErrBadDir, dir, e.errno)
		}
		return fmt.Errorf("start command: %w", e)
	}
	d := guestproto.Dec{B: a.Body}
	p.pid = int(d.Uint())
	if tty && p.master == nil && len(a.files) == 1 {
		_ = unix.SetNonblock(a.files[0], true)
		p.master = os.NewFile(uintptr(a.files[0]), "terminal")
		p.stdout, p.stdin = &masterReader{p.master}, &masterWriter{f: p.master}
	}
	return d.Err
}

// drop forgets a command that did not start.
func (p *Proc) drop() {
	p.b.unregister(p.id)
	p.proxy.close()
	if p.scan != nil {
		p.scan.leave()
	}
	if p.leaf != nil {
		if _, err := p.b.leaves.finish(p.leaf, 0); err != nil {
			p.s.m.log.Warn("cgroup of a command stays", "err", err)
		}
	}
}

// follow waits for the end of the main process, ends what it left behind, and publishes the result.
func (p *Proc) follow(timeout time.Duration) {
	defer p.b.release()
	defer close(p.done)
	var alarm <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(time.Until(p.started.Add(timeout)))
		defer t.Stop()
		alarm = t.C
	}
	var look <-chan time.Time
	disk := p.b.watchDisk()
	if disk != nil {
		t := time.NewTicker(diskInterval)
		defer t.Stop()
		look = t.C
	}
	for waiting := true; waiting; {
		select {
		case <-look:
			if disk.reached() {
				p.diskLow.Store(true)
				look = nil
				_ = p.end()
			}
		case x := <-p.exit:
			p.take(x)
			waiting = false
		case <-alarm:
			p.timedOut.Store(true)
			_ = p.end()
		case <-p.b.lost:
			select {
			case x := <-p.exit: // told before the end
				p.take(x)
			default:
				p.result.SandboxLost, p.result.ExitCode, p.result.Signal = true, 128+int(unix.SIGKILL), int(unix.SIGKILL)
			}
			waiting = false
		}
	}
	p.result.Duration = time.Since(p.started)
	p.b.unregister(p.id)
	if p.b.isLost() {
		<-p.b.clean // everything in it is gone then
		if p.leaf != nil {
			p.leaf.forget()
		}
	} else if p.leaf != nil {
		killed, err := p.b.leaves.finish(p.leaf, p.grace())
		p.result.Leftovers = killed
		if err != nil {
			p.s.m.log.Error("end of a command", "err", err)
		}
	}
	p.proxy.close()
	p.result.OOMKilled, p.result.PidsHit = p.b.limits.hits(p.before)
	p.result.DiskLow = p.diskLow.Load()
	p.b.mu.Lock()
	for _, path := range p.denied {
		p.result.Violations = append(p.result.Violations, Violation{Path: path, What: "connecting to this socket of the host was refused"})
	}
	p.b.mu.Unlock()
	p.result.TimedOut, p.result.Killed = p.timedOut.Load(), p.killed.Load()
	p.s.mu.Lock()
	p.result.Violations = append(append(p.result.Violations, p.s.pending...), p.s.audit(p.b)...)
	p.s.pending = nil
	p.s.mu.Unlock()
	if p.scan != nil {
		p.result.Violations = append(p.result.Violations, p.scan.end(p.result.Duration)...)
	}
	p.result.Violations = boundViolations(p.result.Violations)
}

func (p *Proc) grace() time.Duration {
	if p.timedOut.Load() || p.killed.Load() || p.diskLow.Load() {
		return 0
	}
	return p.s.m.cfg.DrainGrace
}

func (p *Proc) take(x guestproto.Exit) {
	ws := syscall.WaitStatus(x.Status)
	if ws.Signaled() {
		p.result.Signal = int(ws.Signal())
		p.result.ExitCode = 128 + p.result.Signal
	} else {
		p.result.ExitCode = ws.ExitStatus()
	}
	p.result.Leftovers = x.Leftovers
	p.result.UserTime = time.Duration(x.UserUS) * time.Microsecond
	p.result.SystemTime = time.Duration(x.SystemUS) * time.Microsecond
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
