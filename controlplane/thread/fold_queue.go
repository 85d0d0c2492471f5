package thread

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Bounds of what waits in one thread.
const (
	MaxQueued     = 100
	MaxQueuedSize = 4 << 20
)

// Waiting is the message that is taken up next by itself, nil when there is none
// or the queue is held.
func Waiting(q *heddlev1.Queue) *heddlev1.QueuedMessage {
	if q.GetHeld() || len(q.GetMessages()) == 0 {
		return nil
	}
	return q.GetMessages()[0]
}

// FindQueued is the position of a message, -1 when it is not there.
func FindQueued(q *heddlev1.Queue, id string) int {
	return slices.IndexFunc(q.GetMessages(), func(m *heddlev1.QueuedMessage) bool { return m.GetId() == id })
}

// setQueue records a queue. The messages are shared; the list is the caller's.
func (s *State) setQueue(messages []*heddlev1.QueuedMessage, held bool, ch *Changes) {
	s.Queue = &heddlev1.Queue{Messages: messages, Held: held}
	ch.Queue = s.Queue
}

func (s *State) queueChanged(p *heddlev1.QueueChanged, ch *Changes) error {
	messages := slices.Clone(s.Queue.GetMessages())
	switch c := p.GetChange().(type) {
	case *heddlev1.QueueChanged_Added:
		if err := checkID("a queued message", c.Added.GetId()); err != nil {
			return err
		}
		if FindQueued(s.Queue, c.Added.GetId()) >= 0 {
			return fmt.Errorf("fold: message %s is queued already", c.Added.GetId())
		}
		messages = append(messages, c.Added)
	case *heddlev1.QueueChanged_Replaced:
		i := FindQueued(s.Queue, c.Replaced.GetId())
		if i < 0 {
			return fmt.Errorf("fold: message %s is not queued", c.Replaced.GetId())
		}
		messages[i] = c.Replaced
	case *heddlev1.QueueChanged_RemovedId:
		i := FindQueued(s.Queue, c.RemovedId)
		if i < 0 {
			return fmt.Errorf("fold: message %s is not queued", c.RemovedId)
		}
		messages = slices.Delete(messages, i, i+1)
	case *heddlev1.QueueChanged_Ordered:
		ordered, ok := Reordered(s.Queue, c.Ordered.GetIds())
		if !ok {
			return fmt.Errorf("fold: an order must name every queued message once")
		}
		messages = ordered
	default:
		return nil
	}
	if len(messages) > MaxQueued || proto.Size(&heddlev1.Queue{Messages: messages}) > MaxQueuedSize {
		return fmt.Errorf("fold: the queue is full")
	}
	s.setQueue(messages, s.Queue.GetHeld(), ch)
	return nil
}

// Reordered returns the messages in the order of the ids; false when these are
// not exactly those of the queue.
func Reordered(q *heddlev1.Queue, ids []string) ([]*heddlev1.QueuedMessage, bool) {
	if len(ids) != len(q.GetMessages()) {
		return nil, false
	}
	seen := make(map[string]bool, len(ids))
	out := make([]*heddlev1.QueuedMessage, 0, len(ids))
	for _, id := range ids {
		i := FindQueued(q, id)
		if i < 0 || seen[id] {
			return nil, false
		}
		seen[id] = true
		out = append(out, q.GetMessages()[i])
	}
	return out, true
}

// takenUp removes the message that a turn takes up and lets the queue go on.
func (s *State) takenUp(queuedID string, ch *Changes) error {
	if queuedID == "" {
		if s.Queue.GetHeld() {
			s.setQueue(s.Queue.GetMessages(), false, ch)
		}
		return nil
	}
	i := FindQueued(s.Queue, queuedID)
	if i < 0 {
		return fmt.Errorf("fold: message %s is not queued", queuedID)
	}
	s.setQueue(slices.Delete(slices.Clone(s.Queue.GetMessages()), i, i+1), false, ch)
	return nil
}

// holdQueue keeps what waits from being taken up after an interruption.
func (s *State) holdQueue(ch *Changes) {
	if !s.Queue.GetHeld() {
		s.setQueue(s.Queue.GetMessages(), true, ch)
	}
}
