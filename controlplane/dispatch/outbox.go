package dispatch

import (
	"errors"
	"sync"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

var errOutboxFull = errors.New("executor does not read: its send queue is full")

// inlineBatch is how many messages a caller writes itself before it leaves the
// rest to the session's writer. inlineBytes is how much may be on its way,
// without proof of its receipt, for a caller to write at all: below gRPC's own
// write quota of 64 KiB a write never blocks.
const (
	inlineBatch = 8
	inlineBytes = 48 << 10
)

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
	// Positions in the stream of messages, in bytes: put so far, written so far,
	// proven to be received.
	queued, written, proven int64
}

type outgoing struct {
	msg  *executorv1.ConnectResponse
	size int
}

func newOutbox(send func(*executorv1.ConnectResponse) error, fail func(error)) *outbox {
	return &outbox{send: send, fail: fail, wake: make(chan struct{}, 1)}
}

// put queues a message and returns the position behind it; it fails when the
// queue is full.
func (o *outbox) put(m *executorv1.ConnectResponse) (pos int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return o.queued, nil
	}
	size := 64
	switch k := m.GetMessage().(type) {
	case *executorv1.ConnectResponse_Control:
		size += len(k.Control.GetStdin().GetData())
	case *executorv1.ConnectResponse_Action:
		size += proto.Size(k.Action)
	}
	if len(o.queue) >= sendQueue || o.bytes > sendBytes {
		return o.queued, errOutboxFull
	}
	o.queue = append(o.queue, outgoing{m, size})
	o.bytes += size
	o.queued += int64(size)
	return o.queued, nil
}

// prove notes that the executor has received everything up to a position.
func (o *outbox) prove(pos int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.proven = max(o.proven, pos)
}

// mayBlock reports whether a write could have to wait for the executor.
func (o *outbox) mayBlock() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.written-o.proven >= inlineBytes
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
			if limit > 0 && o.mayBlock() {
				n = limit
				break
			}
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
	o.written += int64(m.size)
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
