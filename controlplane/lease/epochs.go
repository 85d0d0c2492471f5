package lease

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
)

// Epochs hands out fencing numbers.
type Epochs interface {
	// Next returns a number above every earlier one of the scope, also across
	// restarts. It is called with the dispatcher's lock held: it must not block
	// for longer than a store commit, and seldom for that.
	Next(ctx context.Context, scope string) (uint64, error)
}

// Meta is the small durable map that Incarnations needs; a store has one.
type Meta interface {
	// Meta returns nil when the key is unset.
	Meta(ctx context.Context, key string) ([]byte, error)
	// SetMeta is durable on return.
	SetMeta(ctx context.Context, key string, value []byte) error
}

// MetaKey is where the last incarnation is kept: 8 bytes, big endian.
const MetaKey = "lease/incarnation"

// counterBits is the width of the low word of an epoch.
const counterBits = 32

// Incarnations makes epochs of two words: the high one is the incarnation of the
// control plane, durable and raised once per start, the low one a counter in
// memory. So a restart always grants higher epochs, without a commit per grant.
// It is safe for concurrent use.
type Incarnations struct {
	meta Meta

	mu          sync.Mutex
	incarnation uint64
	counter     uint64
}

// OpenEpochs raises the incarnation durably and returns the Epochs of this run.
func OpenEpochs(ctx context.Context, meta Meta) (*Incarnations, error) {
	e := &Incarnations{meta: meta}
	if err := e.raise(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Next implements Epochs. It touches the store only when the low word is used up.
func (e *Incarnations) Next(ctx context.Context, scope string) (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.counter == 1<<counterBits-1 {
		if err := e.raise(ctx); err != nil {
			return 0, fmt.Errorf("epoch for %s: %w", scope, err)
		}
	}
	e.counter++
	return e.incarnation<<counterBits | e.counter, nil
}

func (e *Incarnations) raise(ctx context.Context) error {
	old, err := e.meta.Meta(ctx, MetaKey)
	if err != nil {
		return fmt.Errorf("read lease incarnation: %w", err)
	}
	var last uint64
	if old != nil {
		if len(old) != 8 {
			return fmt.Errorf("read lease incarnation: %d bytes instead of 8", len(old))
		}
		last = binary.BigEndian.Uint64(old)
	}
	next := last + 1
	if next >= 1<<(64-counterBits) {
		return fmt.Errorf("raise lease incarnation: %d is the last one", last)
	}
	if err := e.meta.SetMeta(ctx, MetaKey, binary.BigEndian.AppendUint64(nil, next)); err != nil {
		return fmt.Errorf("raise lease incarnation: %w", err)
	}
	e.incarnation, e.counter = next, 0
	return nil
}

// Counter is an Epochs in memory, for a control plane without a durable store:
// its leases end with it.
type Counter struct {
	mu   sync.Mutex
	last uint64
}

// Next implements Epochs.
func (c *Counter) Next(context.Context, string) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return c.last, nil
}
