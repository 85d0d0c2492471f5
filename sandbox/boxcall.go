package sandbox

import (
	"context"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// answer is what the guest said to a request.
type answer struct {
	guestproto.Reply
	files []int
	err   error
}

// call sends a request to the guest and waits for its answer.
func (b *box) call(ctx context.Context, kind guestproto.Kind, body []byte, fds ...int) (answer, error) {
	id, c, err := b.register(nil)
	if err != nil {
		return answer{}, err
	}
	if err := b.conn.Send(kind, id, body, fds...); err != nil {
		b.unregister(id)
		return answer{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	select {
	case a := <-c:
		if a.err == nil && a.Errno != 0 {
			a.err = &guestError{errno: syscall.Errno(a.Errno), text: a.Text}
		}
		return a, a.err
	case <-ctx.Done():
		b.abandon(id, c)
		return answer{}, ctx.Err()
	}
}

// guestError is a failure that the guest reported.
type guestError struct {
	errno syscall.Errno
	text  string
}

func (e *guestError) Error() string { return e.text }
func (e *guestError) Unwrap() error { return e.errno }

func (b *box) register(p *Proc) (uint64, chan answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isLost() {
		return 0, nil, ErrLost
	}
	b.next++
	c := make(chan answer, 1)
	b.wait[b.next] = c
	if p != nil {
		p.id = b.next
		b.procs[p.id] = p
	}
	return b.next, c, nil
}

func (b *box) unregister(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.wait, id)
	delete(b.procs, id)
}

// abandon drops an answer that nobody waits for any more.
func (b *box) abandon(id uint64, c chan answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, waiting := b.wait[id]; !waiting {
		a := <-c
		closeFDs(a.files)
		return
	}
	delete(b.wait, id)
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// read delivers what the guest sends until its socket ends.
func (b *box) read() {
	for {
		m, err := b.conn.Recv()
		if err != nil {
			b.lose()
			return
		}
		b.mu.Lock()
		switch m.Kind {
		case guestproto.KReply:
			r, err := guestproto.DecodeReply(m.Body)
			if c := b.wait[m.ID]; c != nil {
				delete(b.wait, m.ID)
				c <- answer{Reply: r, files: m.Files, err: err}
				m.Files = nil
			}
		case guestproto.KDenied:
			if p := b.procs[m.ID]; p != nil && len(p.denied) < maxDenied {
				p.denied = append(p.denied, string(m.Body))
			}
		case guestproto.KExit:
			x, err := guestproto.DecodeExit(m.Body)
			if p := b.procs[m.ID]; p != nil && err == nil {
				delete(b.procs, m.ID)
				p.exit <- x
			}
		}
		b.mu.Unlock()
		m.CloseFiles()
	}
}

func (b *box) lose() {
	b.conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.lost)
	for id, c := range b.wait {
		delete(b.wait, id)
		c <- answer{err: ErrLost}
	}
}
