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
	m       *Manager
	id      string
	policy  Policy
	plan    *plan
	conn    *guestproto.Conn
	cgroup  string // directory for the cgroups of commands; empty: the guest uses subreapers
	limits  limitGroups
	sizes   []int64 // of the private directories, when new
	endless func()  // ends the guest by force
	ended   <-chan struct{}

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

type answer struct {
	guestproto.Reply
	files []int
	err   error
}

// newBox makes an instance and checks from inside that it shows what was meant. A workspace that is changed
// while its mounts are made is tried again, as is a socket that vanished meanwhile; sockets that keep vanishing
// are left out at last, which is within what GapUnixSockets says.
func (m *Manager) newBox(p Policy) (*box, error) {
	const tries = 4
	var last error
	for i := range tries {
		pl, err := makePlan(p, m.owner, m.cfg.StateDir, m.connectErr != nil && i < tries-1)
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
	}
	if err == nil && p.Level.Contained() {
		err = b.startContained(theirs)
	} else if err == nil {
		err = b.startPlain(theirs)
	}
	unix.Close(theirs)
	b.limits.open()
	if err != nil {
		b.limits.close()
		b.conn.Close()
		if b.cgroup != "" {
			_ = os.Remove(b.cgroup)
		}
		return nil, err
	}
	m.mu.Lock()
	m.boxes[b] = struct{}{}
	m.mu.Unlock()
	go b.read()
	go b.cleanup()
	if err := b.configure(); err != nil {
		b.end()
		return nil, errors.Join(err, b.gone(context.Background()))
	}
	return b, nil
}

func (b *box) startContained(theirs int) error {
	var err error
	spec := guestproto.Box{
		ID: b.id, CgroupName: groupName(boxPrefix, b.id), StateRoot: filepath.Join(b.m.owner.dir, "runc"), Rootfs: b.m.rootfs, Mounts: b.plan.mounts,
		Net: b.policy.Net == NetFull, Rootless: os.Geteuid() != 0, UID: os.Getuid(), GID: os.Getgid(), Umask: currentUmask(),
		ReadOnly: []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"},
		Mask:     []string{"/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats"},
	}
	spec.Hostname, _ = os.Hostname()
	if spec.Rootless {
		spec.Caps = []string{"CAP_SETFCAP"} // to map ids in the nested namespace; the guest drops it there
	} else {
		if spec.UIDMap, err = idRanges("/proc/self/uid_map"); err != nil {
			return err
		}
		if spec.GIDMap, err = idRanges("/proc/self/gid_map"); err != nil {
			return err
		}
		if b.plan.foreign {
			// Root's commands may write a workspace of another user only by overriding its permissions. The
			// mounts still bound what can be written.
			spec.Caps = []string{"CAP_DAC_OVERRIDE", "CAP_FOWNER"}
		}
	}
	v2 := b.limits
	if l := b.policy.Limits; len(b.m.limits.v2) == 0 && len(b.m.limits.v1) > 0 {
		spec.Memory, spec.Pids, spec.CPU = max(0, l.MemoryBytes), max(0, l.Pids), max(0, l.CPU)
	}
	for range 2 { // a keeper that has died is noticed by the first try
		var k *keeper
		if k, err = b.m.keeper(); err != nil {
			return err
		}
		var ended chan struct{}
		if ended, b.limits, err = k.create(spec, theirs); err == nil {
			b.ended = ended
			b.endless = func() { k.kill(b.id) }
			if v2.v2 {
				b.limits = v2
			}
			return nil
		}
		if !errors.Is(err, errKeeperGone) {
			break
		}
		<-k.gone
	}
	return unenforceable(b.policy.Level, err)
}

// startPlain starts the guest on the host itself.
func (b *box) startPlain(theirs int) error {
	fd, err := unix.FcntlInt(uintptr(theirs), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	sock := os.NewFile(uintptr(fd), "guest-control")
	defer sock.Close()
	c := helperCommand(b.m.helper, "guest", sock)
	stderr := &tail{}
	c.Stderr = stderr
	if err := c.Start(); err != nil {
		return fmt.Errorf("start guest: %w", err)
	}
	if !b.limits.v2 {
		if b.limits, err = limitV1(b.m.limits.v1, groupName(boxPrefix, b.id), c.Process.Pid, b.policy.Limits); err != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
			b.limits.remove()
			return err
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Wait(); err != nil {
			b.m.log.Warn("guest ended", "err", err, "stderr", stderr.String())
		}
	}()
	b.ended = ended
	b.endless = func() { _ = c.Process.Kill() }
	return nil
}

func (b *box) configure() error {
	s := guestproto.Setup{Version: guestproto.Version, Contained: b.policy.Level.Contained(), Shim: b.cgroup == "",
		GraceMS: int(b.m.cfg.DrainGrace.Milliseconds()), FileBytes: max(0, b.policy.Limits.FileBytes)}
	if s.Contained && !b.m.limits.has("pids") {
		s.Pids = max(0, b.policy.Limits.Pids)
	}
	s.Scope = s.Contained && b.m.landlock >= 6
	s.Connect, s.HostTmp = b.supervised(), b.policy.Tmp == TmpHost
	var fds []int
	if b.cgroup != "" && !s.Contained {
		dir, err := os.Open(b.cgroup)
		if err != nil {
			return fmt.Errorf("open cgroup: %w", err)
		}
		defer dir.Close()
		fds = append(fds, int(dir.Fd()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupLimit)
	defer cancel()
	_, err := b.call(ctx, guestproto.KSetup, s.Encode(), fds...)
	if err != nil {
		return unenforceable(b.policy.Level, fmt.Errorf("start guest: %w", err))
	}
	b.sizes, err = b.privateSizes()
	return err
}

// verify asks the guest what it sees at each mounted path.
func (b *box) verify() error {
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

// cleanup removes what a box leaves once its guest is gone.
func (b *box) cleanup() {
	<-b.lost
	select {
	case <-b.ended:
	case <-time.After(2 * time.Second): // it should have ended when its socket did
		b.endless()
		<-b.ended
	}
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

func currentUmask() uint32 {
	mask := uint32(0o022)
	_ = eachLine("/proc/self/status", func(l string) {
		if v, ok := strings.CutPrefix(l, "Umask:"); ok {
			fmt.Sscanf(strings.TrimSpace(v), "%o", &mask)
		}
	})
	return mask
}

// idRanges reads which ids exist in this process's user namespace.
func idRanges(file string) ([]guestproto.IDRange, error) {
	var out []guestproto.IDRange
	err := eachLine(file, func(l string) {
		var first, host, n int64
		if k, _ := fmt.Sscan(l, &first, &host, &n); k == 3 {
			out = append(out, guestproto.IDRange{First: first, Size: n})
		}
	})
	return out, err
}
