package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

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

// startIn starts a command in an instance, which the caller holds.
func (s *Sandbox) startIn(ctx context.Context, b *box, c Cmd) (_ *Proc, err error) {
	p := &Proc{s: s, b: b, exit: make(chan guestproto.Exit, 1), done: make(chan struct{})}
	if p.proxy, err = b.startProxy(ctx, c.Network); err != nil {
		return nil, err
	}
	req := s.request(b, c)
	req.Env = p.proxy.env(req.Env)
	id, answers, err := b.register(p)
	if err != nil {
		p.proxy.close()
		return nil, err
	}
	var pipes pipeSet
	defer pipes.closeTheirs()
	defer func() {
		if err != nil {
			pipes.closeOurs()
		}
	}()
	if err = p.equip(c, &req, &pipes); err != nil {
		p.drop()
		return nil, err
	}
	if err = p.send(id, &req, pipes.theirs); err != nil {
		p.drop()
		return nil, err
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

// request is what the guest is asked for, without descriptors.
func (s *Sandbox) request(b *box, c Cmd) guestproto.Start {
	req := guestproto.Start{Argv: c.Argv, Env: s.env(b, c.Env), Dir: c.Dir, TTY: c.TTY, Rows: c.Rows, Cols: c.Cols}
	if req.Dir == "" {
		req.Dir = b.plan.dir
	}
	if !b.namespaced() { // no mount holds the folder in its place
		if folder, below := b.policy.pinnedDir(req.Dir); folder != "" {
			req.Below, req.Dir = folder, below
		}
	}
	return req
}

// equip gives a command its cgroup and its streams.
func (p *Proc) equip(c Cmd, req *guestproto.Start, pipes *pipeSet) (err error) {
	if p.b.cgroup != "" {
		if p.leaf, err = p.b.leaves.take(); err != nil {
			return err
		}
		req.HasCgroup = true
	}
	if c.TTY && p.b.landlock {
		return p.b.openTTY(c, req, p, pipes)
	}
	return pipes.open(c, req, p)
}

// send asks the guest to start the command. What it may change is watched from here on.
func (p *Proc) send(id uint64, req *guestproto.Start, streams []int) error {
	var fds []int
	if p.leaf != nil {
		fds = append(fds, p.leaf.fd)
	}
	fds = append(fds, streams...)
	if p.scan = p.s.scanner(); p.scan != nil {
		p.scan.begin()
	}
	p.before = p.b.limits.count()
	p.started = time.Now()
	switch err := p.b.conn.Send(guestproto.KStart, id, req.Encode(), fds...); {
	case err == nil:
		return nil
	case errors.Is(err, syscall.E2BIG):
		return fmt.Errorf("start command: %w", err)
	default:
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
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
