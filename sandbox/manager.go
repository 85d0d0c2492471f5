package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// Manager makes, caches and ends sandboxes.
type Manager struct {
	cfg       Config
	log       *slog.Logger
	helper    *os.File
	owner     *owner
	rootfs    string
	landlock  int
	cgroupErr error // why commands have no cgroup of their own
	limits    limiters
	// connectErr is why connecting to sockets of the host cannot be supervised.
	connectErr error

	mu     sync.Mutex
	keep   *keeper
	scopes map[string]map[string]*Sandbox // scope, policy key
	boxes  map[*box]struct{}
	closed bool
	stop   chan struct{} // closed by Close
}

// NewManager prepares the state directory and sweeps what dead owners left: processes, cgroups, files.
func NewManager(ctx context.Context, cfg Config) (*Manager, error) {
	m, err := newManager(ctx, cfg)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return m, err
}

func newManager(ctx context.Context, cfg Config) (*Manager, error) {
	if !filepath.IsAbs(cfg.StateDir) {
		return nil, fmt.Errorf("sandbox state directory %q is not an absolute path", cfg.StateDir)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.DrainGrace == 0 {
		cfg.DrainGrace = 100 * time.Millisecond
	}
	if cfg.IdleAfter == 0 {
		cfg.IdleAfter = 10 * time.Minute
	}
	if cfg.Home == "" {
		cfg.Home, _ = os.UserHomeDir() // without one there is no configuration of the user's
	}
	create := os.MkdirAll
	if cfg.Existing {
		create = mkdir
	}
	if err := create(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make sandbox state directory: %w", err)
	}
	real, err := filepath.EvalSymlinks(cfg.StateDir)
	if err != nil {
		return nil, fmt.Errorf("sandbox state directory: %w", err)
	}
	cfg.StateDir = real
	sweep(real, cfg.Logger)
	sweepGroups(cfg.Logger)
	m := &Manager{cfg: cfg, log: cfg.Logger, landlock: landlockABI(), connectErr: canSupervise(), scopes: map[string]map[string]*Sandbox{}, boxes: map[*box]struct{}{}, stop: make(chan struct{})}
	if m.helper, err = loadHelper(cfg); err != nil {
		return nil, err
	}
	if m.owner, err = newOwner(real); err != nil {
		m.helper.Close()
		return nil, err
	}
	if m.rootfs, err = skeleton(real); err != nil {
		return nil, errors.Join(err, m.owner.remove(), m.helper.Close())
	}
	var controllers []string
	if cfg.NoCgroup {
		m.cgroupErr = errors.New("turned off by configuration")
	} else {
		m.owner.cgroup, controllers, m.cgroupErr = makeOwnerCgroup(m.owner.id, m.helper)
	}
	m.limits = findLimiters(controllers)
	if err := m.owner.record(); err != nil {
		return nil, errors.Join(err, m.owner.remove(), m.helper.Close())
	}
	// The keeper also removes our traces if we are killed, so it runs from the start. Full access does without.
	if _, err := m.keeper(); err != nil {
		m.log.Warn("sandbox helper could not be started", "err", err)
	}
	if cfg.IdleAfter > 0 {
		go m.evict()
	}
	return m, ctx.Err()
}

func landlockABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// keeper returns the running helper that makes contained sandboxes, starting it when there is none.
func (m *Manager) keeper() (*keeper, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if m.keep != nil {
		select {
		case <-m.keep.gone:
			m.log.Warn("sandbox helper ended and is started again", "err", m.keep.reason)
		default:
			return m.keep, nil
		}
	}
	k, err := startKeeper(m.helper, guestproto.KeeperSetup{OwnerDir: m.owner.dir, CgroupDir: m.owner.cgroup})
	if err != nil {
		return nil, err
	}
	m.keep = k
	return k, nil
}

// Acquire returns the sandbox of (scope, p), making it when there is none yet. Concurrent calls share one
// creation. Acquire early to have it warm. The sandbox lives until Release or Close.
func (m *Manager) Acquire(ctx context.Context, scope string, p Policy) (*Sandbox, error) {
	p, err := p.normalized()
	if err != nil {
		return nil, err
	}
	s, err := m.lookup(scope, p)
	if err != nil {
		return nil, err
	}
	b, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	b.release()
	return s, nil
}

func (m *Manager) lookup(scope string, p Policy) (*Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	key := p.Key()
	if m.scopes[scope] == nil {
		m.scopes[scope] = map[string]*Sandbox{}
	}
	s := m.scopes[scope][key]
	if s == nil {
		s = &Sandbox{m: m, scope: scope, key: key, policy: p}
		m.scopes[scope][key] = s
	}
	return s, nil
}

// Release ends every sandbox of the scope with all its processes. Unknown scopes are not an error.
func (m *Manager) Release(ctx context.Context, scope string) error {
	m.mu.Lock()
	list := m.scopes[scope]
	delete(m.scopes, scope)
	m.mu.Unlock()
	var errs []error
	for _, s := range list {
		errs = append(errs, s.Close(ctx))
	}
	return errors.Join(errs...)
}

// Close ends every sandbox and waits until nothing of them remains.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	close(m.stop)
	var all []*Sandbox
	for _, l := range m.scopes {
		for _, s := range l {
			all = append(all, s)
		}
	}
	m.scopes = nil
	m.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, s := range all {
		wg.Go(func() { errs[i] = s.Close(ctx) })
	}
	wg.Wait()
	m.mu.Lock()
	left := make([]*box, 0, len(m.boxes))
	for b := range m.boxes {
		left = append(left, b)
	}
	k := m.keep
	m.mu.Unlock()
	for _, b := range left { // replaced ones that still had processes
		b.end()
		errs = append(errs, b.gone(ctx))
	}
	if k != nil {
		k.close()
	}
	errs = append(errs, m.owner.remove(), m.helper.Close())
	return errors.Join(errs...)
}

// Sandbox is one scope's containment under one policy. The instance behind it is replaced when it is stale
// or lost; processes that still run in an old instance keep it alive until they end.
type Sandbox struct {
	m      *Manager
	scope  string
	key    string
	policy Policy

	mu      sync.Mutex
	making  *creation // shared by all who wait for the same instance
	cur     *box
	old     []*box
	fence   time.Time
	closed  bool
	pending []Violation // found between commands, told by the next result
	scan    *scanner    // at WorkspaceWrite, from the first instance on
}

// Policy returns the normalized policy that is enforced.
func (s *Sandbox) Policy() Policy { return s.policy }

// creation is an instance being made.
type creation struct {
	done chan struct{}
	err  error // valid when done is closed
}

// use returns a live, fresh instance that the caller must release. Callers who come while one is made share
// it; a caller that gives up leaves the creation to the others.
func (s *Sandbox) use(ctx context.Context) (*box, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, ErrClosed
		}
		if b := s.cur; b != nil && s.making == nil {
			if s.fresh(b) {
				b.hold()
				s.mu.Unlock()
				return b, nil
			}
			s.cur = nil
			s.old = append(s.old, b)
			b.retire()
		}
		if s.making == nil {
			s.making = &creation{done: make(chan struct{})}
			go s.create(s.making)
		}
		c := s.making
		s.mu.Unlock()
		select {
		case <-c.done:
			if c.err != nil {
				return nil, c.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Sandbox) create(c *creation) {
	b, err := s.m.newBox(s.policy)
	if err == nil && s.policy.Level == WorkspaceWrite {
		s.survey(b.plan)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(c.done)
	c.err = err
	s.making = nil
	s.old = deleteGone(s.old)
	if err != nil {
		return
	}
	if s.closed {
		b.end()
		c.err = ErrClosed
		return
	}
	if !s.fence.IsZero() {
		_ = b.setDeadline(s.fence) // fails only for a lost instance, which is noticed at its first use
	}
	s.cur = b
}

// surveyWait is how long a new instance may wait for what is known of its repositories. It is hidden behind the
// first model call; of what is read later, change times tell the user's from what commands made.
const surveyWait = 20 * time.Millisecond

// survey learns what repositories lie in the roots.
func (s *Sandbox) survey(pl *plan) {
	s.mu.Lock()
	first := s.scan == nil
	if first {
		s.scan = newScanner(s.m.log, s.quarantine(), s.m.owner.stamper)
	}
	sc := s.scan
	s.mu.Unlock()
	sc.turn <- struct{}{}
	sc.update(pl)
	if !first {
		<-sc.turn
		return
	}
	done := make(chan struct{})
	sc.wg.Go(func() {
		sc.addLate(sc.look())
		<-sc.turn
		close(done)
	})
	t := time.NewTimer(surveyWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

func (s *Sandbox) quarantine() string { return filepath.Join(s.m.cfg.StateDir, "quarantine") }

// scanner returns the watch over repositories, or nil where there is none.
func (s *Sandbox) scanner() *scanner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scan
}

// fresh reports whether an instance still shows the host as it is. What a running command planted is removed
// first, so that it does not become part of the next instance.
func (s *Sandbox) fresh(b *box) bool {
	if b.isLost() {
		return false
	}
	path, stale := b.plan.stale()
	if stale && b.running() {
		s.pending = append(s.pending, s.audit(b)...)
		path, stale = b.plan.stale()
	}
	if stale {
		s.m.log.Debug("sandbox is stale and is replaced", "path", path)
	}
	return !stale
}

func (s *Sandbox) audit(b *box) []Violation {
	if s.policy.Level != WorkspaceWrite {
		return nil
	}
	return b.plan.audit(s.quarantine())
}

func deleteGone(l []*box) []*box {
	var out []*box
	for _, b := range l {
		if !b.isGone() {
			out = append(out, b)
		}
	}
	return out
}

// SetDeadline sets the fence: when t passes, the guest ends everything in the sandbox and itself, whether or
// not the owner still runs. A later call moves it; the zero time removes it.
func (s *Sandbox) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fence = t
	var errs []error
	for _, b := range append([]*box{s.cur}, s.old...) {
		if b != nil && !b.isLost() {
			errs = append(errs, b.setDeadline(t))
		}
	}
	return errors.Join(errs...)
}

// Close ends this sandbox with all its processes.
func (s *Sandbox) Close(ctx context.Context) error {
	s.m.mu.Lock()
	if l := s.m.scopes[s.scope]; l != nil && l[s.key] == s {
		delete(l, s.key)
	}
	s.m.mu.Unlock()
	s.mu.Lock()
	s.closed = true
	making := s.making
	all := s.old
	if s.cur != nil {
		all = append(all, s.cur)
	}
	s.cur, s.old = nil, nil
	s.mu.Unlock()
	var errs []error
	if making != nil {
		select {
		case <-making.done:
		case <-ctx.Done():
			errs = append(errs, ctx.Err())
		}
	}
	for _, b := range all {
		b.end()
	}
	for _, b := range all {
		errs = append(errs, b.gone(ctx))
	}
	if sc := s.scanner(); sc != nil {
		sc.close()
	}
	return errors.Join(errs...)
}

// FS returns file access performed inside the sandbox.
func (s *Sandbox) FS() FS { return FS{s: s} }
