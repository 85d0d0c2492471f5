package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// keeper is the helper process that makes contained sandboxes. It notices our death by the end of its socket.
type keeper struct {
	conn   *guestproto.Conn
	cmd    *exec.Cmd
	stderr *tail

	mu     sync.Mutex
	next   uint64
	wait   map[uint64]chan guestproto.Reply
	ended  map[string]chan struct{} // closed when the sandbox of this id is gone
	gone   chan struct{}            // closed when the keeper itself is gone
	reason error
}

// errKeeperGone says that the keeper died; a new one can be started.
var errKeeperGone = errors.New("sandbox helper ended")

// helperCommand prepares a start of the sealed helper in a role, with its control socket on descriptor 3 and
// itself on descriptor 4.
func helperCommand(helper *os.File, role string, control *os.File) *exec.Cmd {
	return &exec.Cmd{
		Path:        "/proc/self/fd/4",
		Args:        []string{helperName, role},
		Dir:         "/",
		Env:         []string{"PATH=/usr/bin:/bin", "GOTRACEBACK=none", "GOMAXPROCS=2"},
		ExtraFiles:  []*os.File{control, helper},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay:   time.Second, // a straggler may hold the error pipe
	}
}

func startKeeper(helper *os.File, setup guestproto.KeeperSetup) (*keeper, error) {
	ours, theirs, err := guestproto.Pair()
	if err != nil {
		return nil, err
	}
	control := os.NewFile(uintptr(theirs), "keeper-control")
	defer control.Close()
	conn, err := guestproto.NewConn(ours)
	if err != nil {
		return nil, err
	}
	k := &keeper{conn: conn, cmd: helperCommand(helper, "keeper", control), stderr: &tail{}, wait: map[uint64]chan guestproto.Reply{},
		ended: map[string]chan struct{}{}, gone: make(chan struct{})}
	k.cmd.Stderr = k.stderr
	if err := k.cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start sandbox helper: %w", err)
	}
	go k.read()
	body, err := json.Marshal(setup)
	if err == nil {
		_, err = k.call(guestproto.KSetup, body)
	}
	if err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

func (k *keeper) read() {
	for {
		m, err := k.conn.Recv()
		if err != nil {
			k.fail(err)
			return
		}
		m.CloseFiles()
		r, err := guestproto.DecodeReply(m.Body)
		if err != nil {
			k.fail(err)
			return
		}
		k.mu.Lock()
		switch m.Kind {
		case guestproto.KReply:
			if c := k.wait[m.ID]; c != nil {
				delete(k.wait, m.ID)
				c <- r
			}
		case guestproto.KEnded:
			if c := k.ended[string(r.Body)]; c != nil {
				delete(k.ended, string(r.Body))
				close(c)
			}
		}
		k.mu.Unlock()
	}
}

// fail ends every waiting call: the keeper is gone.
func (k *keeper) fail(err error) {
	k.conn.Close()
	werr := k.cmd.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reason = fmt.Errorf("%w: %w", errKeeperGone, errors.Join(err, werr))
	if t := k.stderr.String(); t != "" {
		k.reason = fmt.Errorf("%w: %s", k.reason, t)
	}
	for id, c := range k.wait {
		delete(k.wait, id)
		c <- guestproto.Reply{Errno: int(syscall.EPIPE), Text: k.reason.Error()}
	}
	for id, c := range k.ended {
		delete(k.ended, id)
		close(c)
	}
	close(k.gone)
}

func (k *keeper) call(kind guestproto.Kind, body []byte, fds ...int) (guestproto.Reply, error) {
	c := make(chan guestproto.Reply, 1)
	k.mu.Lock()
	if k.reason != nil {
		defer k.mu.Unlock()
		return guestproto.Reply{}, k.reason
	}
	k.next++
	id := k.next
	k.wait[id] = c
	k.mu.Unlock()
	if err := k.conn.Send(kind, id, body, fds...); err != nil {
		k.mu.Lock()
		delete(k.wait, id)
		k.mu.Unlock()
		return guestproto.Reply{}, fmt.Errorf("%w: %w", errKeeperGone, err)
	}
	r := <-c // the keeper answers or its end does
	if r.Errno == int(syscall.EPIPE) {
		return r, fmt.Errorf("%w: %s", errKeeperGone, r.Text)
	}
	if r.Errno != 0 {
		return r, errors.New(r.Text)
	}
	return r, nil
}

// create makes a sandbox whose guest owns the socket theirs, and returns a channel that is closed at its end.
func (k *keeper) create(b guestproto.Box, theirs int) (ended chan struct{}, limits limitGroups, err error) {
	body, err := json.Marshal(b)
	if err != nil {
		return nil, limits, err
	}
	ended = make(chan struct{})
	k.mu.Lock()
	k.ended[b.ID] = ended
	k.mu.Unlock()
	r, err := k.call(guestproto.KCreate, body, theirs)
	if err != nil {
		k.mu.Lock()
		delete(k.ended, b.ID)
		k.mu.Unlock()
		return nil, limits, err
	}
	d := guestproto.Dec{B: r.Body}
	d.Uint() // the guest's pid on the host
	limits.memory, limits.pids = d.Str(), d.Str()
	return ended, limits, d.Err
}

// kill ends a sandbox; its channel tells when it is gone.
func (k *keeper) kill(id string) { _ = k.conn.Send(guestproto.KEnd, 0, []byte(id)) }

// close lets the keeper remove everything and waits for its end.
func (k *keeper) close() {
	k.conn.Close()
	<-k.gone
}

// tail keeps the end of what a helper prints, for error messages.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if over := len(t.b) - 2048; over > 0 {
		t.b = t.b[over:]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
