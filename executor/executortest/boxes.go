package executortest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/heddle-dev/heddle/executor/runner"
	"github.com/heddle-dev/heddle/sandbox"
)

// Boxes are sandboxes in memory. Their processes do what a test tells them; a
// box ends its processes when its deadline passes, as a guest does.
type Boxes struct {
	// StartErr, when set, fails every start.
	StartErr error
	// AcquireErr, when set, fails every acquisition.
	AcquireErr error
	// Hold, when set, makes Acquire wait until it is closed.
	Hold chan struct{}
	// HoldRelease, when set, makes Release wait until it is closed.
	HoldRelease chan struct{}

	mu     sync.Mutex
	boxes  map[string]map[string]*Box
	starts int
	procs  chan *Proc
}

// NewBoxes returns no boxes.
func NewBoxes() *Boxes {
	return &Boxes{boxes: map[string]map[string]*Box{}, procs: make(chan *Proc, 1024)}
}

// Acquire implements runner.Boxes.
func (b *Boxes) Acquire(ctx context.Context, scope string, p sandbox.Policy) (runner.Box, error) {
	if b.Hold != nil {
		select {
		case <-b.Hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.AcquireErr != nil {
		return nil, b.AcquireErr
	}
	if b.boxes[scope] == nil {
		b.boxes[scope] = map[string]*Box{}
	}
	x := b.boxes[scope][p.Key()]
	if x == nil {
		x = &Box{all: b, Policy: p, live: map[*Proc]bool{}}
		b.boxes[scope][p.Key()] = x
	}
	return x, nil
}

// Release implements runner.Boxes.
func (b *Boxes) Release(ctx context.Context, scope string) error {
	if b.HoldRelease != nil {
		select {
		case <-b.HoldRelease:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.mu.Lock()
	list := b.boxes[scope]
	delete(b.boxes, scope)
	b.mu.Unlock()
	for _, x := range list {
		x.endAll()
	}
	return nil
}

// Scopes returns how many scopes have boxes.
func (b *Boxes) Scopes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.boxes)
}

// Starts returns how many processes were started.
func (b *Boxes) Starts() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.starts
}

// Proc waits for the next started process.
func (b *Boxes) Proc(ctx context.Context) (*Proc, error) {
	select {
	case p := <-b.procs:
		return p, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no process was started: %w", context.Cause(ctx))
	}
}

// Box is one sandbox in memory.
type Box struct {
	Policy sandbox.Policy

	all      *Boxes
	mu       sync.Mutex
	live     map[*Proc]bool
	deadline time.Time
	timer    *time.Timer
}

// Deadline is the last one set.
func (x *Box) Deadline() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.deadline
}

// SetDeadline implements runner.Box.
func (x *Box) SetDeadline(t time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deadline = t
	if x.timer != nil {
		x.timer.Stop()
	}
	x.timer = time.AfterFunc(time.Until(t), x.endAll)
	return nil
}

func (x *Box) endAll() {
	x.mu.Lock()
	if x.timer != nil {
		x.timer.Stop()
	}
	var list []*Proc
	for p := range x.live {
		list = append(list, p)
	}
	x.mu.Unlock()
	for _, p := range list {
		_ = p.Kill()
	}
}

// Start implements runner.Box.
func (x *Box) Start(_ context.Context, c sandbox.Cmd) (runner.Process, error) {
	if err := x.all.StartErr; err != nil {
		return nil, err
	}
	p := &Proc{Cmd: c, Box: x, done: make(chan struct{})}
	p.outR, p.Out = io.Pipe()
	if !c.MergeStderr && !c.TTY {
		p.errR, p.Err = io.Pipe()
	}
	if c.TTY || c.Stdin == sandbox.StdinPipe {
		p.In, p.inW = io.Pipe()
	}
	x.mu.Lock()
	x.live[p] = true
	x.mu.Unlock()
	x.all.mu.Lock()
	x.all.starts++
	p.pid = 100 + x.all.starts
	x.all.mu.Unlock()
	x.all.procs <- p
	return p, nil
}

// FS implements runner.Box: there are no files.
func (x *Box) FS() runner.Files { return noFiles{} }

// Proc is a process that a test plays.
type Proc struct {
	Cmd sandbox.Cmd
	Box *Box
	// Out and Err are what the process writes to; In is what it reads.
	Out, Err *io.PipeWriter
	In       *io.PipeReader

	outR, errR *io.PipeReader
	inW        *io.PipeWriter
	pid        int

	mu      sync.Mutex
	signals []os.Signal
	sizes   [][2]uint16
	result  sandbox.Result
	once    sync.Once
	done    chan struct{}
}

// End ends the process.
func (p *Proc) End(r sandbox.Result) {
	p.once.Do(func() {
		p.result = r
		p.Out.Close()
		if p.Err != nil {
			p.Err.Close()
		}
		if p.In != nil {
			p.In.Close()
		}
		p.Box.mu.Lock()
		delete(p.Box.live, p)
		p.Box.mu.Unlock()
		close(p.done)
	})
}

// PID implements runner.Process.
func (p *Proc) PID() int { return p.pid }

// Stdout implements runner.Process.
func (p *Proc) Stdout() io.ReadCloser { return p.outR }

// Stderr implements runner.Process.
func (p *Proc) Stderr() io.ReadCloser {
	if p.errR == nil {
		return nil
	}
	return p.errR
}

// Stdin implements runner.Process.
func (p *Proc) Stdin() io.WriteCloser {
	if p.inW == nil {
		return nil
	}
	return p.inW
}

// Resize implements runner.Process.
func (p *Proc) Resize(rows, cols uint16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sizes = append(p.sizes, [2]uint16{rows, cols})
	return nil
}

// Sizes returns the sizes that were set.
func (p *Proc) Sizes() [][2]uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([][2]uint16(nil), p.sizes...)
}

// Signal implements runner.Process: it only records.
func (p *Proc) Signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signals = append(p.signals, sig)
	return nil
}

// Signals returns the signals that came.
func (p *Proc) Signals() []os.Signal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]os.Signal(nil), p.signals...)
}

// Kill implements runner.Process.
func (p *Proc) Kill() error {
	p.End(sandbox.Result{ExitCode: 137, Signal: int(syscall.SIGKILL), Killed: true})
	return nil
}

// Done implements runner.Process.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Wait implements runner.Process.
func (p *Proc) Wait(ctx context.Context) (sandbox.Result, error) {
	select {
	case <-p.done:
		return p.result, nil
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
}

type noFiles struct{}

var errNoFiles = errors.New("boxes in memory have no files")

func (noFiles) ReadFile(_ context.Context, path string, _ int64) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
}

func (noFiles) Stat(_ context.Context, path string) (sandbox.FileInfo, error) {
	return sandbox.FileInfo{}, &fs.PathError{Op: "stat", Path: path, Err: syscall.ENOENT}
}

func (noFiles) Lstat(_ context.Context, path string) (sandbox.FileInfo, error) {
	return sandbox.FileInfo{}, &fs.PathError{Op: "lstat", Path: path, Err: syscall.ENOENT}
}

func (noFiles) WriteFile(context.Context, string, []byte, sandbox.WriteOptions) error {
	return errNoFiles
}
func (noFiles) MkdirAll(context.Context, string, os.FileMode) error { return errNoFiles }
func (noFiles) Remove(context.Context, string, bool) error          { return errNoFiles }
func (noFiles) Rename(context.Context, string, string, bool) error  { return errNoFiles }
