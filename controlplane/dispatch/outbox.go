package dispatch

import (
	"errors"
	"sync"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

var errOutboxFull = errors.New("executor does not read: its send queue is full")

// inlineBatch is how many messages a caller writes itself before it leaves the
// rest to the session's writer.
const inlineBatch = 8

// outbox is the bounded send queue of one session. Messages are put in order
// under the dispatcher's lock, which never blocks, and written outside of it, by
// the caller when nobody else writes (so a message goes out without waking
// another goroutine), else by whoever does.
type outbox struct {
	send func(*executorv1.ConnectResponse) error
	fail func(error)
	wake chan struct{}

	writing sync.Mutex // held while sending

	mu     sync.Mutex
	queue  []outgoing
	bytes  int
	closed bool
}

type outgoing struct {
	msg  *executorv1.ConnectResponse
	size int
}

func newOutbox(send func(*executorv1.ConnectResponse) error, fail func(error)) *outbox {
	return &outbox{send: send, fail: fail, wake: make(chan struct{}, 1)}
}

// put queues a message; it fails when the queue is full.
func (o *outbox) put(m *executorv1.ConnectResponse) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	size := 64
	switch k := m.GetMessage().(type) {
	case *executorv1.ConnectResponse_Control:
		size += len(k.Control.GetStdin().GetData())
	case *executorv1.ConnectResponse_Action:
		size += proto.Size(k.Action)
	}
	if len(o.queue) >= sendQueue || o.bytes > sendBytes {
		return errOutboxFull
	}
	o.queue = append(o.queue, outgoing{m, size})
	o.bytes += size
	return nil
}

// signal leaves the writing to run.
func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes what is signalled until stop is closed.
func (o *outbox) run(stop <-chan struct{}) {
	for {
		select {
		case <-o.wake:
			o.flush(0)
		case <-stop:
			return
		}
	}
}

// flush writes the queue, at most limit messages when limit is above 0; the
// rest is left to run.
func (o *outbox) flush(limit int) {
	for {
		if !o.writing.TryLock() {
			return // the one who holds it looks again after unlocking
		}
		n := 0
		for limit <= 0 || n < limit {
			m := o.pop()
			if m == nil {
				break
			}
			if err := o.send(m); err != nil {
				o.writing.Unlock()
				o.fail(err)
				return
			}
			n++
		}
		o.writing.Unlock()
		if o.empty() {
			return
		}
		if limit > 0 && n >= limit {
			o.signal()
			return
		}
	}
}

func (o *outbox) pop() *executorv1.ConnectResponse {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return nil
	}
	m := o.queue[0]
	o.queue[0] = outgoing{}
	o.queue = o.queue[1:]
	o.bytes -= m.size
	if len(o.queue) == 0 {
		o.queue = nil
	}
	return m.msg
}

func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) == 0
}

// close ends the queue and returns the actions that were never written.
func (o *outbox) close() map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	unsent := map[string]bool{}
	for _, m := range o.queue {
		if a := m.msg.GetAction(); a != nil {
			unsent[a.GetActionId()] = true
		}
	}
	o.queue, o.bytes = nil, 0
	return unsent
}
