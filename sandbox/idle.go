package sandbox

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// evict ends instances that nothing has used for a while until the manager is closed. The next use makes a new
// one.
func (m *Manager) evict() {
	t := time.NewTicker(max(m.cfg.IdleAfter/4, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			m.evictIdle(now.Add(-m.cfg.IdleAfter))
		case <-m.stop:
			return
		}
	}
}

// evictIdle ends the instances that were last used before a time. Those whose private directories hold something
// stay: a later command may count on it.
func (m *Manager) evictIdle(before time.Time) {
	m.mu.Lock()
	var all []*Sandbox
	for _, l := range m.scopes {
		for _, s := range l {
			all = append(all, s)
		}
	}
	m.mu.Unlock()
	for _, s := range all {
		s.evictIdle(before)
	}
}

func (s *Sandbox) evictIdle(before time.Time) {
	s.mu.Lock()
	b := s.cur
	s.mu.Unlock()
	if b == nil || !b.idleSince(before) || !b.empty() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur != b || s.making != nil || !b.idleSince(before) {
		return
	}
	s.cur = nil
	s.old = append(deleteGone(s.old), b)
	b.retire()
}

func (b *box) idleSince(before time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.uses == 0 && b.used.Before(before)
}

// empty reports whether the private directories of an instance hold nothing but what they were made with. The
// size that a tmpfs reports of a directory grows with each name in it.
func (b *box) empty() bool {
	now, err := b.privateSizes()
	return err == nil && slices.Equal(now, b.sizes)
}

// privateSizes returns the sizes of the directories that commands may count on.
func (b *box) privateSizes() ([]int64, error) {
	if b.landlock {
		return scratchSize(b.scratch)
	}
	if !b.policy.Level.Contained() {
		return nil, nil
	}
	paths := []string{"/dev/shm"}
	if b.policy.Tmp == TmpPrivate {
		paths = append(paths, "/tmp")
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupLimit)
	defer cancel()
	stats, err := b.stat(ctx, paths)
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, st := range stats {
		out = append(out, st.Size)
	}
	return out, nil
}

// stat asks the guest what it sees at some paths.
func (b *box) stat(ctx context.Context, paths []string) ([]guestproto.Stat, error) {
	var list guestproto.Enc
	list.Strs(paths)
	a, err := b.call(ctx, guestproto.KFile, guestproto.File{Op: guestproto.OpVerify, Data: list.B}.Encode())
	if err != nil {
		return nil, err
	}
	d := guestproto.Dec{B: a.Body}
	n := d.Uint()
	if n != uint64(len(paths)) {
		return nil, errWrongCount
	}
	out := make([]guestproto.Stat, n)
	for i := range out {
		out[i] = guestproto.TakeStat(&d)
	}
	return out, d.Err
}

// scratchSize counts what lies in the private tmp of an instance without mounts.
func scratchSize(dir string) ([]int64, error) {
	ents, err := os.ReadDir(dir)
	return []int64{int64(len(ents))}, err
}
