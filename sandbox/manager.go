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
