package dispatch

import (
	"testing"
	"time"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// D6: when this process itself was held up, a missing answer may lie unread on
// our side; the executor gets one more round before its session ends.
func TestD6LateTickSparesAnExecutor(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	d, err := New(t.Context(), Config{Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	s := &session{dead: make(chan struct{})}
	s.out = newOutbox(func(*executorv1.ConnectResponse) error { return nil }, s.end)
	if err := d.register(s, &executorv1.Register{ExecutorId: "x", MinProtocol: 1, MaxProtocol: 1}); err != nil {
		t.Fatal(err)
	}
	tick := func(after time.Duration, late bool) {
		now = now.Add(after)
		d.tick(now, late)
	}
	tick(6*time.Second, false) // the first round
	tick(time.Minute, true)    // held up for long
	if s.ended() {
		t.Fatal("session ended by our own delay")
	}
	tick(14*time.Second, false)
	if s.ended() {
		t.Fatal("session ended before renew_by")
	}
	tick(2*time.Second, false)
	if !s.ended() {
		t.Fatal("session of a silent executor goes on")
	}
}
