package lease

import (
	"errors"
	"fmt"
	"time"
)

// Errors of Check, Grant and Adopt that callers branch on.
var (
	// ErrSuperseded says that a higher epoch was granted, or that the lease was
	// revoked and released.
	ErrSuperseded = errors.New("lease is superseded")
	// ErrUnknown says that no such lease is recorded.
	ErrUnknown = errors.New("lease is unknown")
)

// HeldError says that a scope is not free.
type HeldError struct {
	// Lease that stands in the way; its Holder is empty when the holder is not
	// known because the control plane restarted.
	Lease Lease
	// Until is when the scope becomes free if the holder stays silent.
	Until time.Time
}

func (e *HeldError) Error() string {
	if e.Lease.Holder == "" {
		return fmt.Sprintf("scope %s may still be held from before a restart", e.Lease.Scope)
	}
	return fmt.Sprintf("scope %s is held by %s under epoch %d", e.Lease.Scope, e.Lease.Holder, e.Lease.Epoch)
}

// Lease is one grant.
type Lease struct {
	ID        string
	Scope     string
	Holder    string
	Principal string
	Epoch     uint64
	// Fence is how long the holder goes on without a renewal.
	Fence time.Duration
	// Sent is when the last grant or renewal was sent.
	Sent time.Time
	// Revoked is set between the revocation and the holder's release.
	Revoked bool
}

// Config configures a Lessor.
type Config struct {
	// Skew is added to every fence before a scope counts as free.
	Skew time.Duration
	// Remembered bounds how many freed scopes keep their last epoch; 0 means
	// 16384. Older ones share one floor.
	Remembered int
}

// Lessor records the leases. It is not safe for concurrent use.
type Lessor struct {
	cfg      Config
	byID     map[string]*Lease
	byScope  map[string]*Lease
	byHolder map[string]map[string]*Lease
	// blocked holds scopes that may be held by someone who has not come back yet.
	blocked map[string]time.Time
	// last is the highest epoch of a freed scope; freed is its order of age.
	last  map[string]uint64
	freed []string
	floor uint64
}

// NewLessor returns an empty Lessor.
func NewLessor(cfg Config) *Lessor {
	if cfg.Remembered <= 0 {
		cfg.Remembered = 16384
	}
	return &Lessor{
		cfg:      cfg,
		byID:     map[string]*Lease{},
		byScope:  map[string]*Lease{},
		byHolder: map[string]map[string]*Lease{},
		blocked:  map[string]time.Time{},
		last:     map[string]uint64{},
	}
}

// FreeAt is when a lease's scope becomes free if its holder stays silent.
func (l *Lessor) FreeAt(x Lease) time.Time { return x.Sent.Add(x.Fence + l.cfg.Skew) }

// Grant records a lease whose Sent is now. It fails with a *HeldError while the
// scope belongs to somebody, and with ErrSuperseded when the epoch is not above
// every earlier one of the scope.
func (l *Lessor) Grant(x Lease, now time.Time) (Lease, error) {
	if err := l.Free(x.Scope, now); err != nil {
		return Lease{}, err
	}
	if old, ok := l.byScope[x.Scope]; ok {
		l.drop(old)
	}
	if x.Epoch <= l.last[x.Scope] {
		return Lease{}, fmt.Errorf("grant %s under epoch %d, last was %d: %w", x.Scope, x.Epoch, l.last[x.Scope], ErrSuperseded)
	}
	delete(l.blocked, x.Scope)
	x.Sent, x.Revoked = now, false
	l.record(x)
	return x, nil
}

// Free returns nil when the scope can be granted at now, else a *HeldError.
func (l *Lessor) Free(scope string, now time.Time) error {
	if old, ok := l.byScope[scope]; ok {
		if until := l.FreeAt(*old); now.Before(until) {
			return &HeldError{Lease: *old, Until: until}
		}
	}
	if until, ok := l.blocked[scope]; ok && now.Before(until) {
		return &HeldError{Lease: Lease{Scope: scope}, Until: until}
	}
	return nil
}

// Adopt takes over a lease that its holder announces. It fails with
// ErrSuperseded when the scope went to somebody else since.
func (l *Lessor) Adopt(x Lease, now time.Time) (Lease, error) {
	if old, ok := l.byScope[x.Scope]; ok {
		if old.ID != x.ID || old.Epoch != x.Epoch || old.Holder != x.Holder {
			return Lease{}, fmt.Errorf("adopt %s epoch %d: %w by epoch %d of %s", x.Scope, x.Epoch, ErrSuperseded, old.Epoch, old.Holder)
		}
		old.Sent = now
		return *old, nil
	}
	if last, ok := l.last[x.Scope]; ok && x.Epoch <= last {
		return Lease{}, fmt.Errorf("adopt %s epoch %d: %w by epoch %d", x.Scope, x.Epoch, ErrSuperseded, last)
	} else if !ok && x.Epoch <= l.floor {
		return Lease{}, fmt.Errorf("adopt %s epoch %d: %w", x.Scope, x.Epoch, ErrSuperseded)
	}
	if _, taken := l.byID[x.ID]; taken {
		return Lease{}, fmt.Errorf("adopt %s: lease id %s belongs to another scope: %w", x.Scope, x.ID, ErrSuperseded)
	}
	delete(l.blocked, x.Scope)
	x.Sent = now
	l.record(x)
	return x, nil
}

// Renew moves the deadline of every unrevoked lease of the holder and returns
// them.
func (l *Lessor) Renew(holder string, now time.Time) []Lease {
	out := make([]Lease, 0, len(l.byHolder[holder]))
	for _, x := range l.byHolder[holder] {
		if x.Revoked {
			continue
		}
		x.Sent = now
		out = append(out, *x)
	}
	return out
}

// Revoke marks a lease; it stays in the way until Release or its fence.
func (l *Lessor) Revoke(id string) (Lease, error) {
	x, ok := l.byID[id]
	if !ok {
		return Lease{}, fmt.Errorf("revoke %s: %w", id, ErrUnknown)
	}
	x.Revoked = true
	return *x, nil
}

// Release frees the scope of a lease: its holder confirmed the end, or its
// owner knows that the holder is dead or fenced.
func (l *Lessor) Release(id string, epoch uint64) (Lease, error) {
	x, ok := l.byID[id]
	if !ok {
		return Lease{}, fmt.Errorf("release %s: %w", id, ErrUnknown)
	}
	if x.Epoch != epoch {
		return Lease{}, fmt.Errorf("release %s epoch %d: %w by epoch %d", id, epoch, ErrSuperseded, x.Epoch)
	}
	l.drop(x)
	return *x, nil
}

// Expired returns the leases whose fence and skew have passed at now. They stay
// recorded until they are released.
func (l *Lessor) Expired(now time.Time) []Lease {
	var out []Lease
	for _, x := range l.byID {
		if !now.Before(l.FreeAt(*x)) {
			out = append(out, *x)
		}
	}
	return out
}

// Block keeps a scope from being granted until the given time, unless its
// holder announces it before. It has no effect on a scope with a lease.
func (l *Lessor) Block(scope string, until time.Time) {
	if _, ok := l.byScope[scope]; ok {
		return
	}
	if until.After(l.blocked[scope]) {
		l.blocked[scope] = until
	}
}

// Unblock forgets blocks that ended at or before now and reports whether there
// were any.
func (l *Lessor) Unblock(now time.Time) bool {
	any := false
	for scope, until := range l.blocked {
		if !now.Before(until) {
			delete(l.blocked, scope)
			any = true
		}
	}
	return any
}

// BlockedUntil is the end of a scope's block; the zero time when it has none.
func (l *Lessor) BlockedUntil(scope string) time.Time { return l.blocked[scope] }

// Clear ends the block of a scope: its holder is known not to hold it any more.
func (l *Lessor) Clear(scope string) { delete(l.blocked, scope) }

// Check tells whether a message under a lease and epoch of a holder is current:
// nil, ErrUnknown or ErrSuperseded. The clock has no say.
func (l *Lessor) Check(holder, id string, epoch uint64) (Lease, error) {
	x, ok := l.byID[id]
	if !ok {
		return Lease{}, fmt.Errorf("lease %s: %w", id, ErrUnknown)
	}
	if x.Holder != holder || x.Epoch != epoch {
		return Lease{}, fmt.Errorf("lease %s epoch %d of %s: %w by epoch %d of %s", id, epoch, holder, ErrSuperseded, x.Epoch, x.Holder)
	}
	return *x, nil
}

// Scope returns the lease of a scope.
func (l *Lessor) Scope(scope string) (Lease, bool) {
	if x, ok := l.byScope[scope]; ok {
		return *x, true
	}
	return Lease{}, false
}

// Held returns the leases of a holder.
func (l *Lessor) Held(holder string) []Lease {
	out := make([]Lease, 0, len(l.byHolder[holder]))
	for _, x := range l.byHolder[holder] {
		out = append(out, *x)
	}
	return out
}

// Count is the number of leases of a holder.
func (l *Lessor) Count(holder string) int { return len(l.byHolder[holder]) }

// Len is the number of leases.
func (l *Lessor) Len() int { return len(l.byID) }

// NextUnblock is the earliest time at which Unblock has something to forget; ok
// is false when nothing is blocked.
func (l *Lessor) NextUnblock() (at time.Time, ok bool) {
	for _, t := range l.blocked {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// Superseded reports whether a scope had a lease under an epoch above this one.
func (l *Lessor) Superseded(scope string, epoch uint64) bool {
	if x, ok := l.byScope[scope]; ok && x.Epoch > epoch {
		return true
	}
	return l.last[scope] > epoch
}

func (l *Lessor) record(x Lease) {
	c := &x
	l.byID[x.ID], l.byScope[x.Scope] = c, c
	held := l.byHolder[x.Holder]
	if held == nil {
		held = map[string]*Lease{}
		l.byHolder[x.Holder] = held
	}
	held[x.ID] = c
}

func (l *Lessor) drop(x *Lease) {
	delete(l.byID, x.ID)
	delete(l.byScope, x.Scope)
	if held := l.byHolder[x.Holder]; held != nil {
		delete(held, x.ID)
		if len(held) == 0 {
			delete(l.byHolder, x.Holder)
		}
	}
	if _, known := l.last[x.Scope]; !known {
		l.freed = append(l.freed, x.Scope)
	}
	l.last[x.Scope] = max(l.last[x.Scope], x.Epoch)
	for len(l.freed) > l.cfg.Remembered {
		oldest := l.freed[0]
		l.freed = l.freed[1:]
		l.floor = max(l.floor, l.last[oldest])
		delete(l.last, oldest)
	}
}
