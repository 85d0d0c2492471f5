package lease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/lease"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	fence = 27 * time.Second
	skew  = 3 * time.Second
)

func grant(id, scope, holder string, epoch uint64) lease.Lease {
	return lease.Lease{ID: id, Scope: scope, Holder: holder, Epoch: epoch, Fence: fence}
}

func mustGrant(t *testing.T, l *lease.Lessor, x lease.Lease, now time.Time) lease.Lease {
	t.Helper()
	got, err := l.Grant(x, now)
	if err != nil {
		t.Fatalf("grant %+v: %v", x, err)
	}
	return got
}

// Invariant I4: another holder only after the release, or after fence and skew
// since the last renewal.
func TestI4AnotherHolderOnlyAfterFenceAndSkew(t *testing.T) {
	l := lease.NewLessor(lease.Config{Skew: skew})
	mustGrant(t, l, grant("1", "thread/a", "x", 1), start)
	renewed := start.Add(10 * time.Second)
	if got := l.Renew("x", renewed); len(got) != 1 || !got[0].Sent.Equal(renewed) {
		t.Fatalf("renew: got %+v, want the lease with its new time", got)
	}
	var held *lease.HeldError
	at := renewed.Add(fence + skew)
	if _, err := l.Grant(grant("2", "thread/a", "y", 2), at.Add(-time.Nanosecond)); !errors.As(err, &held) {
		t.Fatalf("grant before fence and skew: got %v, want HeldError", err)
	}
	if !held.Until.Equal(at) || held.Lease.Holder != "x" {
		t.Errorf("held: got until %v by %s, want %v by x", held.Until, held.Lease.Holder, at)
	}
	if got := l.Expired(at.Add(-time.Nanosecond)); len(got) != 0 {
		t.Errorf("expired too early: %+v", got)
	}
	if got := l.Expired(at); len(got) != 1 {
		t.Errorf("expired at the deadline: got %+v, want one", got)
	}
	mustGrant(t, l, grant("2", "thread/a", "y", 2), at)
	if _, err := l.Check("x", "1", 1); !errors.Is(err, lease.ErrUnknown) {
		t.Errorf("old lease: got %v, want ErrUnknown", err)
	}
}

func TestReleaseFreesAtOnce(t *testing.T) {
	l := lease.NewLessor(lease.Config{Skew: skew})
	mustGrant(t, l, grant("1", "thread/a", "x", 1), start)
	if _, err := l.Revoke("1"); err != nil {
		t.Fatal(err)
	}
	if got := l.Renew("x", start.Add(time.Second)); len(got) != 0 {
		t.Errorf("a revoked lease was renewed: %+v", got)
	}
	if err := l.Free("thread/a", start.Add(time.Second)); err == nil {
		t.Error("scope free before the release")
	}
	if _, err := l.Release("1", 7); !errors.Is(err, lease.ErrSuperseded) {
		t.Errorf("release under a wrong epoch: got %v, want ErrSuperseded", err)
	}
	if _, err := l.Release("1", 1); err != nil {
		t.Fatal(err)
	}
	mustGrant(t, l, grant("2", "thread/a", "y", 2), start.Add(time.Second))
}

func TestEpochsNeverGoBack(t *testing.T) {
	l := lease.NewLessor(lease.Config{Skew: skew})
	mustGrant(t, l, grant("1", "thread/a", "x", 5), start)
	if _, err := l.Release("1", 5); err != nil {
		t.Fatal(err)
	}
	for _, epoch := range []uint64{4, 5} {
		if _, err := l.Grant(grant("2", "thread/a", "x", epoch), start); !errors.Is(err, lease.ErrSuperseded) {
			t.Errorf("grant under epoch %d after 5: got %v, want ErrSuperseded", epoch, err)
		}
		if _, err := l.Adopt(grant("2", "thread/a", "x", epoch), start); !errors.Is(err, lease.ErrSuperseded) {
			t.Errorf("adopt epoch %d after 5: got %v, want ErrSuperseded", epoch, err)
		}
	}
	if !l.Superseded("thread/a", 4) || l.Superseded("thread/a", 5) {
		t.Errorf("superseded: got 4=%v 5=%v, want true false", l.Superseded("thread/a", 4), l.Superseded("thread/a", 5))
	}
}

func TestForgottenScopesShareAFloor(t *testing.T) {
	l := lease.NewLessor(lease.Config{Skew: skew, Remembered: 2})
	for i, scope := range []string{"thread/a", "thread/b", "thread/c"} {
		epoch := uint64(i + 10)
		mustGrant(t, l, grant(scope, scope, "x", epoch), start)
		if _, err := l.Release(scope, epoch); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Adopt(grant("n", "thread/a", "y", 10), start); !errors.Is(err, lease.ErrSuperseded) {
		t.Errorf("adopt at the floor: got %v, want ErrSuperseded", err)
	}
	if _, err := l.Adopt(grant("n", "thread/z", "y", 11), start); err != nil {
		t.Errorf("adopt above the floor: %v", err)
	}
}

func TestAdoptAfterRestart(t *testing.T) {
	l := lease.NewLessor(lease.Config{Skew: skew})
	l.Block("thread/a", start.Add(30*time.Second))
	var held *lease.HeldError
	if _, err := l.Grant(grant("9", "thread/a", "y", 100), start.Add(time.Second)); !errors.As(err, &held) {
		t.Fatalf("grant of a scope held before the restart: got %v, want HeldError", err)
	}
	got, err := l.Adopt(grant("1", "thread/a", "x", 7), start.Add(2*time.Second))
	if err != nil || got.Epoch != 7 {
		t.Fatalf("adopt: got %+v, %v", got, err)
	}
	if _, ok := l.NextUnblock(); ok {
		t.Error("block stays after the adoption")
	}
	if _, err := l.Adopt(grant("2", "thread/a", "z", 6), start); !errors.Is(err, lease.ErrSuperseded) {
		t.Errorf("adopt of a scope that was adopted by another: got %v, want ErrSuperseded", err)
	}
	if _, err := l.Check("x", "1", 7); err != nil {
		t.Errorf("adopted lease: %v", err)
	}
	if _, err := l.Check("z", "1", 7); !errors.Is(err, lease.ErrSuperseded) {
		t.Errorf("lease of another holder: got %v, want ErrSuperseded", err)
	}
}

func TestBlockEnds(t *testing.T) {
	l := lease.NewLessor(lease.Config{Skew: skew})
	until := start.Add(30 * time.Second)
	l.Block("thread/a", until)
	l.Block("thread/a", start) // an earlier end does not shorten it
	if at, ok := l.NextUnblock(); !ok || !at.Equal(until) {
		t.Fatalf("next unblock: got %v %v, want %v", at, ok, until)
	}
	if l.Unblock(until.Add(-1)) {
		t.Error("unblocked too early")
	}
	if !l.Unblock(until) {
		t.Error("not unblocked at the end")
	}
	mustGrant(t, l, grant("1", "thread/a", "x", 1), until)
}
