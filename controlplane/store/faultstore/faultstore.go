// Package faultstore wraps a store and makes commits fail, for tests of what
// writers do about it.
package faultstore

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
)

// Fault is what happens to one commit.
type Fault int

// Faults. The last two report store.ErrUnknownOutcome.
const (
	None Fault = iota
	// Refused fails without writing.
	Refused
	// UnknownBefore does not write and says that it does not know.
	UnknownBefore
	// UnknownAfter writes and says that it does not know.
	UnknownAfter
)

func (f Fault) String() string {
	switch f {
	case Refused:
		return "refused before it was written"
	case UnknownBefore:
		return "outcome unknown, not written"
	case UnknownAfter:
		return "outcome unknown, written"
	}
	return "none"
}

// Store is a store.Store whose commits meet planned faults.
type Store struct {
	store.Store

	mu     sync.Mutex
	faults []Fault
	// rng, when set, draws a fault for one commit in every; each is noted in log.
	rng   *rand.Rand
	every int
	log   *os.File
}

// Wrap returns a store without planned faults.
func Wrap(s store.Store) *Store { return &Store{Store: s} }

// Plan appends faults for the next commits, one each.
func (s *Store) Plan(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// FromSetting wraps s as a setting "EVERY:SEED:FILE" says: about one commit in
// EVERY meets a fault, and each fault is a line of FILE. An empty setting leaves
// s as it is.
func FromSetting(s store.Store, setting string) (store.Store, error) {
	if setting == "" {
		return s, nil
	}
	parts := strings.SplitN(setting, ":", 3)
	if len(parts) != 3 {
		return nil, fmt.Errorf("store faults %q: want EVERY:SEED:FILE", setting)
	}
	every, err := strconv.Atoi(parts[0])
	if err != nil || every < 1 {
		return nil, fmt.Errorf("store faults: one in %q", parts[0])
	}
	seed, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("store faults: seed: %w", err)
	}
	f := Wrap(s)
	f.rng, f.every = rand.New(rand.NewPCG(seed, 0)), every
	if f.log, err = os.OpenFile(parts[2], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("store faults: %w", err)
	}
	return f, nil
}

// draw picks a fault at random; s.mu is held.
func (s *Store) draw() Fault {
	if s.rng.IntN(s.every) != 0 {
		return None
	}
	f := Refused + Fault(s.rng.IntN(int(UnknownAfter)))
	if _, err := fmt.Fprintf(s.log, "store: commit %v\n", f); err != nil {
		return None // a fault that is not counted is none
	}
	return f
}

// Backup copies the store underneath, where it can be copied.
func (s *Store) Backup(ctx context.Context, w io.Writer) (int64, error) {
	b, ok := s.Store.(interface {
		Backup(context.Context, io.Writer) (int64, error)
	})
	if !ok {
		return 0, errdefs.New(errdefs.NotSupported, "this store is not on a disk")
	}
	return b.Backup(ctx, w)
}

// Left returns how many planned faults have not been met.
func (s *Store) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faults)
}

func (s *Store) next() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) == 0 && s.rng != nil {
		return s.draw()
	}
	if len(s.faults) == 0 {
		return None
	}
	f := s.faults[0]
	s.faults = s.faults[1:]
	return f
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, appends []store.Append) error {
	switch s.next() {
	case Refused:
		return errdefs.New(errdefs.StoreUnavailable, "commit: no space left (injected)")
	case UnknownBefore:
		return fmt.Errorf("commit: %w (injected)", store.ErrUnknownOutcome)
	case UnknownAfter:
		if err := s.Store.Commit(ctx, appends); err != nil {
			return err
		}
		return fmt.Errorf("commit: %w (injected)", store.ErrUnknownOutcome)
	}
	return s.Store.Commit(ctx, appends)
}
