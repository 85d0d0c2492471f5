package sandbox

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"
)

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
