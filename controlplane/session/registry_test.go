package session

import (
	"os/exec"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type calls struct {
	mu      sync.Mutex
	gone    []string
	unheld  []string
	goneAt  time.Time
	started time.Time
}

func registry(grace time.Duration) (*Registry, *calls) {
	c := &calls{started: time.Now()}
	return NewRegistry(Config{
		Grace:    grace,
		OnGone:   func(s *Session) { c.mu.Lock(); c.gone = append(c.gone, s.ID); c.goneAt = time.Now(); c.mu.Unlock() },
		OnUnheld: func(id string) { c.mu.Lock(); c.unheld = append(c.unheld, id); c.mu.Unlock() },
	}), c
}

func attach(t *testing.T, r *Registry, id string, pid int64) *Attachment {
	t.Helper()
	a, err := r.Attach(&heddlev1.AttachRequest{SessionId: id, Pid: pid})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestLossHasItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := registry(5 * time.Second)
		r.Ended(attach(t, r, "s", 0))
		time.Sleep(4 * time.Second)
		r.Ended(attach(t, r, "s", 0)) // came back, lost again: a new grace
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if len(c.gone) != 0 || !r.Lost("s") {
			t.Fatal(c.gone)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !slices.Equal(c.gone, []string{"s"}) || c.goneAt.Sub(c.started) != 9*time.Second {
			t.Fatal(c.gone, c.goneAt.Sub(c.started))
		}
		if _, err := r.Get("s"); !errdefs.Is(err, errdefs.SessionUnknown) {
			t.Fatal(err)
		}
	})
}

func TestRejoinWithinTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := registry(5 * time.Second)
		first := attach(t, r, "s", 0)
		second := attach(t, r, "s", 0)
		<-first.Superseded()
		r.Ended(first) // the end of a superseded stream is no loss
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(c.gone) != 0 || r.Lost("s") {
			t.Fatal(c.gone)
		}
		r.Detach("s")
		<-second.Superseded()
		if !slices.Equal(c.gone, []string{"s"}) {
			t.Fatal(c.gone)
		}
		r.Detach("s")
		if len(c.gone) != 1 {
			t.Fatal("gone twice")
		}
	})
}

func TestDeadPeerHasNoGrace(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r, c := registry(time.Hour)
	a := attach(t, r, "s", int64(cmd.Process.Pid))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.Ended(a) // the process is a zombie now: it is not reaped yet
	deadline := time.Now().Add(5 * time.Second)
	for {
		c.mu.Lock()
		n := len(c.gone)
		c.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a session with a dead process is kept")
		}
		time.Sleep(5 * time.Millisecond)
	}
	_ = cmd.Wait()
}

func TestPeer(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := PeerOf(int64(cmd.Process.Pid))
	if p.Dead() || ParsePeer(p.String()) != p {
		t.Fatal(p)
	}
	other := p
	other.Start++
	if !other.Dead() {
		t.Fatal("another process with the same number counts as the same")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !p.Dead() {
		t.Fatal("alive")
	}
	if (Peer{}).Dead() || ParsePeer("garbage").Dead() || PeerOf(0) != (Peer{}) {
		t.Fatal("an unknown peer is dead")
	}
}

func TestHolders(t *testing.T) {
	r, c := registry(time.Second)
	attach(t, r, "a", 0)
	attach(t, r, "b", 0)
	r.Hold("a", "t")
	r.Hold("b", "t")
	r.Hold("nobody", "t2")
	r.Release("a", "t")
	r.Release("a", "t")
	if len(c.unheld) != 0 || !r.Held("t") || r.Held("t2") {
		t.Fatal(c.unheld)
	}
	r.Detach("b")
	if !slices.Equal(c.unheld, []string{"t"}) {
		t.Fatal(c.unheld)
	}
}

func TestAwaitBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := registry(5 * time.Second)
		time.AfterFunc(3*time.Second, func() { attach(t, r, "s", 0) })
		if began := time.Now(); !r.AwaitBack(t.Context(), "s", Peer{}) || time.Since(began) > 4*time.Second {
			t.Fatal("did not see it come back")
		}
		if began := time.Now(); r.AwaitBack(t.Context(), "other", Peer{}) || time.Since(began) != 5*time.Second {
			t.Fatal("grace", time.Since(began))
		}
	})
}
