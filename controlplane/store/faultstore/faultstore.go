// Package faultstore wraps a store and makes commits fail, for tests of what
// writers do about it.
package faultstore

import (
	"context"
	"fmt"
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

// Store is a store.Store whose commits meet planned faults.
type Store struct {
	store.Store

	mu     sync.Mutex
	faults []Fault
}

// Wrap returns a store without planned faults.
func Wrap(s store.Store) *Store { return &Store{Store: s} }

// Plan appends faults for the next commits, one each.
func (s *Store) Plan(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
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
