package robust

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Seen is every event that any reader was shown, by thread and seq. It is safe
// for concurrent use.
type Seen struct {
	mu     sync.Mutex
	events map[string]map[uint64]shown
	bad    []Violation
	count  int
	top    map[string]uint64
}

type shown struct {
	sum    [sha256.Size]byte
	delta  bool
	what   string
	reader string
}

// NewSeen returns an empty record.
func NewSeen() *Seen { return &Seen{events: map[string]map[uint64]shown{}, top: map[string]uint64{}} }

// isDelta reports whether an event may be compacted away later.
func isDelta(ev *heddlev1.Event) bool {
	return ev.GetItemDelta() != nil || ev.GetOutputAdvanced() != nil
}

func show(reader string, ev *heddlev1.Event) shown {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(ev)
	if err != nil {
		data = []byte(err.Error())
	}
	return shown{sum: sha256.Sum256(data), delta: isDelta(ev), what: brief(ev), reader: reader}
}

func brief(ev *heddlev1.Event) string {
	text := fmt.Sprint(ev)
	if len(text) > 400 {
		text = text[:400] + "..."
	}
	return text
}

// Observe records what a reader was shown. An event that was seen before must be
// the same one; a compacted range may only stand for deltas.
func (s *Seen) Observe(reader string, events ...*heddlev1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ev := range events {
		s.observe(reader, ev)
	}
}

func (s *Seen) observe(reader string, ev *heddlev1.Event) {
	s.count++
	s.top[ev.GetThreadId()] = max(s.top[ev.GetThreadId()], lastOf(ev))
	thread := s.events[ev.GetThreadId()]
	if thread == nil {
		thread = map[uint64]shown{}
		s.events[ev.GetThreadId()] = thread
	}
	if r := ev.GetRangeCompacted(); r != nil {
		for seq := ev.GetSeq(); seq <= lastOf(ev); seq++ {
			if old, ok := thread[seq]; ok && !old.delta {
				s.conflict(ev, old, reader)
			}
		}
		return
	}
	now := show(reader, ev)
	old, ok := thread[ev.GetSeq()]
	if !ok {
		thread[ev.GetSeq()] = now
	} else if !bytes.Equal(old.sum[:], now.sum[:]) {
		s.conflict(ev, old, reader)
	}
}

func (s *Seen) conflict(ev *heddlev1.Event, old shown, reader string) {
	s.bad = append(s.bad, Violation{ev.GetThreadId(), ev.GetSeq(), fmt.Sprintf("%s was shown\n  %s\nand %s was shown\n  %s", old.reader, old.what, reader, brief(ev))})
}

// Report records a violation that a reader found by itself.
func (s *Seen) Report(v Violation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad = append(s.bad, v)
}

// Top is the highest seq of a thread that anyone was shown.
func (s *Seen) Top(thread string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.top[thread]
}

// Count is the number of events that were shown, repeats included.
func (s *Seen) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Compare checks everything that was seen of a thread against its final log and
// returns all conflicts of the thread.
func (s *Seen) Compare(thread string, log []*heddlev1.Event) []Violation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var head uint64
	for _, ev := range log {
		s.observe("the final log", ev)
		head = lastOf(ev)
	}
	var out []Violation
	for seq, sh := range s.events[thread] {
		if seq > head {
			out = append(out, Violation{thread, seq, fmt.Sprintf("%s was shown an event that the log does not have: %s", sh.reader, sh.what)})
		}
	}
	for _, v := range s.bad {
		if v.Thread == thread {
			out = append(out, v)
		}
	}
	return out
}
