package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// setupLimit bounds the start of a guest, for hosts that hang.
const setupLimit = 30 * time.Second

// box is one instance of a sandbox: a guest with its socket, and a cgroup directory or none.
type box struct {
	m      *Manager
	id     string
	policy Policy
	plan   *plan
	conn   *guestproto.Conn
	cgroup string // directory for the cgroups of commands; empty: the guest uses subreapers
	// landlock: there are no namespaces, see Policy.Fallback.
	landlock bool
	scratch  string // the private tmp then
	leaves   leaves
	limits   limitGroups
	sizes    []int64 // of the private directories, when new
	endless  func()  // ends the guest by force
	ended    <-chan struct{}

	mu      sync.Mutex
	next    uint64
	wait    map[uint64]chan answer
	procs   map[uint64]*Proc
	uses    int
	used    time.Time // when the last use ended
	retired bool
	lost    chan struct{} // closed when the socket ended
	clean   chan struct{} // closed when nothing of the box remains
}

// newBox makes an instance and checks from inside that it shows what was meant. A workspace that is changed
// while its mounts are made is tried again, as is a socket that vanished meanwhile; sockets that keep vanishing
// are left out at last, which is within what GapUnixSockets says.
func (m *Manager) newBox(p Policy) (*box, error) {
	const tries = 4
	var last error
	for i := range tries {
		pl, err := makePlan(m.hiding(p), m.owner, m.cfg, m.connectErr != nil && i < tries-1)
		if err != nil {
			return nil, err
		}
		if pl.gitNote != "" {
			m.log.Info("git may not commit here", "why", pl.gitNote)
		}
		b, err := m.startBox(p, pl)
		if err != nil {
			last = err
			if path, stale := pl.stale(); stale || len(pl.mounts) > 0 && vanished(pl) {
				m.log.Debug("sandbox is set up again", "path", path, "err", err)
				continue
			}
			return nil, err
		}
		if last = b.verify(); last == nil {
			return b, nil
		}
		b.end()
		if err := b.gone(context.Background()); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("set up sandbox: %w", last)
}

// vanished reports whether something that was to be mounted or covered is gone.
func vanished(pl *plan) bool {
	return slices.ContainsFunc(pl.mounts, func(m guestproto.Mount) bool {
		return m.Kind == guestproto.MountBind && (!identify(m.Source).exists || strings.HasPrefix(m.Source, pl.covers) && !identify(m.Dest).exists)
	})
}

func (m *Manager) startBox(p Policy, pl *plan) (*box, error) {
	ours, theirs, err := guestproto.Pair()
	if err != nil {
		return nil, err
	}
	b := &box{m: m, id: randomID(), policy: p, plan: pl, wait: map[uint64]chan answer{}, procs: map[uint64]*Proc{}, used: time.Now(),
		lost: make(chan struct{}), clean: make(chan struct{})}
	if b.conn, err = guestproto.NewConn(ours); err != nil {
		unix.Close(theirs)
		return nil, err
	}
	if m.owner.cgroup != "" {
		b.cgroup = filepath.Join(m.owner.cgroup, b.id)
		if err = os.Mkdir(b.cgroup, 0o755); err == nil {
			b.limits, err = limitV2(b.cgroup, p.Limits, m.limits.v2)
		}
		b.leaves.dir, b.leaves.reuse = b.cgroup, p.Level.Contained()
	}
	if err == nil && p.Level.Contained() {
		err = b.startContained(theirs)
		var why *UnenforceableError
		if p.Fallback == FallbackLandlock && errors.As(err, &why) {
			err = b.startLandlock(theirs, why)
		}
	} else if err == nil {
		err = b.startPlain(theirs, nil)
	}
	unix.Close(theirs)
	b.limits.open()
	if err != nil {
		b.limits.close()
		b.conn.Close()
		if b.cgroup != "" {
			_ = os.Remove(b.cgroup)
		}
		b.removeScratch()
		if errors.Is(err, syscall.ENOSPC) {
			err = m.unmade(p.Level, err)
		}
		return nil, err
	}
	m.mu.Lock()
	m.boxes[b] = struct{}{}
	m.mu.Unlock()
	go b.read()
	go b.cleanup()
	err = b.configure()
	if err == nil {
		err = b.leaves.prepare()
	}
	if err != nil {
		b.end()
		return nil, errors.Join(err, b.gone(context.Background()))
	}
	return b, nil
}

// verify asks the guest what it sees at each mounted path.
func (b *box) verify() error {
	if b.landlock {
		return b.verifyLandlock(context.Background())
	}
	if !b.policy.Level.Contained() {
		return nil
	}
	if err := b.checkMounts(context.Background()); err != nil {
		return err
	}
	if len(b.plan.expect) == 0 {
		return nil
	}
	paths := make([]string, len(b.plan.expect))
	for i, x := range b.plan.expect {
		paths[i] = x.path
	}
	stats, err := b.stat(context.Background(), paths)
	if err != nil {
		return err
	}
	for i, x := range b.plan.expect {
		st := stats[i]
		switch {
		case b.plan.covered(x):
		case st.Absent, st.Dev != x.id.dev, st.Ino != x.id.ino, x.readOnly && !st.ReadOnly:
			return fmt.Errorf("%s changed while the sandbox was set up", x.path)
		}
	}
	return nil
}

var errWrongCount = errors.New("guest answered for the wrong number of paths")

// covered reports whether a denied directory hides what x expects.
func (pl *plan) covered(x expectation) bool {
	return slices.ContainsFunc(pl.expect, func(o expectation) bool {
		return o.cover && o.path != x.path && within(x.path, o.path)
	})
}

// cleanup removes what a box leaves once its guest is gone.
func (b *box) cleanup() {
	<-b.lost
	select {
	case <-b.ended:
	case <-time.After(2 * time.Second): // it should have ended when its socket did
		b.endless()
		<-b.ended
	}
	b.leaves.close()
	b.removeScratch()
	if b.cgroup != "" {
		if err := guestproto.RemoveCgroup(b.cgroup); err != nil {
			b.m.log.Warn("cgroup of a sandbox stays", "cgroup", b.cgroup, "err", err)
		}
	}
	b.limits.remove()
	b.limits.close()
	b.m.mu.Lock()
	delete(b.m.boxes, b)
	b.m.mu.Unlock()
	close(b.clean)
}

func (b *box) removeScratch() {
	if b.scratch == "" {
		return
	}
	if err := os.RemoveAll(b.scratch); err != nil {
		b.m.log.Warn("private tmp of a sandbox stays", "path", b.scratch, "err", err)
	}
}

func (b *box) isLost() bool { return isClosed(b.lost) }
func (b *box) isGone() bool { return isClosed(b.clean) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (b *box) running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.procs) > 0
}

func (b *box) hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses++
}

func (b *box) release() {
	b.mu.Lock()
	b.uses--
	b.used = time.Now()
	end := b.retired && b.uses == 0
	b.mu.Unlock()
	if end {
		b.end()
	}
}

// retire ends the box as soon as nothing uses it.
func (b *box) retire() {
	b.mu.Lock()
	b.retired = true
	end := b.uses == 0
	b.mu.Unlock()
	if end {
		b.end()
	}
}

// end ends the guest and with it everything in the box.
func (b *box) end() { b.conn.Close() }

// gone waits until nothing of the box remains.
func (b *box) gone(ctx context.Context) error {
	select {
	case <-b.clean:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of a sandbox: %w", ctx.Err())
	}
}

func (b *box) setDeadline(t time.Time) error {
	var e guestproto.Enc
	ns := int64(0)
	if !t.IsZero() {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			return fmt.Errorf("read clock: %w", err)
		}
		ns = max(1, now.Nano()+int64(time.Until(t)))
	}
	e.Int(ns)
	return b.conn.Send(guestproto.KDeadline, 0, e.B)
}

// hiding is a policy that also denies what is hidden from every sandbox.
func (m *Manager) hiding(p Policy) Policy {
	p.DenyRead = slices.Concat(p.DenyRead, m.cfg.Hide)
	return p
}
