package jsonrpc

import (
	"context"
	"errors"
	"io"
	"sync"
)

// Stream is one framed connection. Read is called by one goroutine, Write by
// another; Close unblocks both.
type Stream interface {
	// Read returns the next message, *TooLargeError for one that was skipped
	// because of its size, or another error at the end of the stream. The bytes
	// are valid until the next call.
	Read() ([]byte, error)
	// Write sends messages, as few writes as the transport allows.
	Write(messages [][]byte) error
	Close() error
}

// TooLargeError reports a message that was skipped; the stream lives on. Head
// is the beginning of the message.
type TooLargeError struct {
	Limit int
	Head  []byte
}

func (e *TooLargeError) Error() string { return "message is too large" }

// ErrClosed is returned for messages to a connection that has ended.
var ErrClosed = errors.New("connection is closed")

// Limits of a connection's outgoing queue, in bytes.
const (
	// Notify blocks while so much waits to be written.
	queueHigh = 256 << 10
	// Offer merges messages with the same key past this.
	offerMerge = 64 << 10
	// Offer drops its oldest messages past this.
	offerHigh = 1 << 20
	// One write takes about so much.
	batchSize = 64 << 10
)

// Conn is one connection with its outgoing queue.
type Conn struct {
	stream Stream

	mu      sync.Mutex
	queue   []*frame
	bytes   int
	offered map[string]*frame
	offers  int
	lost    int64
	room    chan struct{}
	work    chan struct{}
	closed  chan struct{}
	once    sync.Once
	// writing is the last frame of the batch that is being written.
	writing *frame
	// solos and soloBytes count the answers that were not written yet.
	solos, soloBytes int
}

type frame struct {
	data []byte
	// solo frames are written alone.
	solo bool
	// key names an offer that a newer one replaces.
	key string
	// offer is the number of bytes counted as offered.
	offer   int
	flushed chan struct{}
}

// NewConn starts the writer of a connection.
func NewConn(s Stream) *Conn {
	c := &Conn{
		stream: s, offered: map[string]*frame{}, room: make(chan struct{}),
		work: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	go c.write()
	return c
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.closed }

// Read returns the next message; see Stream.
func (c *Conn) Read() ([]byte, error) { return c.stream.Read() }

// Close ends the connection at once.
func (c *Conn) Close() {
	c.once.Do(func() {
		close(c.closed)
		_ = c.stream.Close()
	})
}

// Flush waits until all that is queued was written, the connection ended, or
// the context.
func (c *Conn) Flush(ctx context.Context) {
	c.mu.Lock()
	var last chan struct{}
	if n := len(c.queue); n > 0 {
		last = c.queue[n-1].wait()
	} else if c.writing != nil {
		last = c.writing.wait()
	}
	c.mu.Unlock()
	if last == nil {
		return
	}
	select {
	case <-last:
	case <-c.closed:
	case <-ctx.Done():
	}
}

func (f *frame) wait() chan struct{} {
	if f.flushed == nil {
		f.flushed = make(chan struct{})
	}
	return f.flushed
}

// backlogHigh is how many answers may wait before no further message is read:
// refusals are small, but a peer that only writes could ask for any number.
const backlogHigh = 16 << 10

// Backlog returns the number and the bytes of answers that were not written yet.
func (c *Conn) Backlog() (answers, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.solos, c.soloBytes
}

// WaitRoom returns when a further message may be read.
func (c *Conn) WaitRoom(ctx context.Context) error {
	for {
		c.mu.Lock()
		free, room := c.solos < backlogHigh, c.room
		c.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-room:
		case <-c.closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Send queues an encoded answer. The returned channel is closed when it was
// written.
func (c *Conn) Send(data []byte) <-chan struct{} { return c.enqueueSolo(data) }

// Respond queues a result. The returned channel is closed when it was written.
func (c *Conn) Respond(id ID, result any) <-chan struct{} {
	return c.enqueueSolo(EncodeResult(id, result))
}

// RespondError queues an error.
func (c *Conn) RespondError(id ID, e *Error) <-chan struct{} {
	return c.enqueueSolo(encodeError(id, e))
}

func (c *Conn) enqueueSolo(data []byte) <-chan struct{} {
	f := &frame{data: data, solo: true, flushed: make(chan struct{})}
	c.mu.Lock()
	c.push(f)
	c.mu.Unlock()
	return f.flushed
}

// Notify queues a message, waiting while the queue is full.
func (c *Conn) Notify(ctx context.Context, data []byte) error {
	for {
		c.mu.Lock()
		if c.bytes < queueHigh {
			c.push(&frame{data: data})
			c.mu.Unlock()
			return nil
		}
		room := c.room
		c.mu.Unlock()
		select {
		case <-room:
		case <-c.closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Offer queues a message that may be superseded: while much waits to be written,
// a queued one with the same non-empty key is replaced in place. It never waits;
// past a bound the oldest offers give way.
func (c *Conn) Offer(key string, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key != "" && c.bytes >= offerMerge {
		if f := c.offered[key]; f != nil {
			c.bytes += len(data) - len(f.data)
			c.offers += len(data) - f.offer
			f.data, f.offer = data, len(data)
			return
		}
	}
	f := &frame{data: data, key: key, offer: len(data)}
	for c.offers > 0 && c.offers+f.offer > offerHigh {
		if !c.dropOffer() {
			break
		}
	}
	if key != "" {
		c.offered[key] = f
	}
	c.offers += f.offer
	c.push(f)
}

func (c *Conn) dropOffer() bool {
	for i, f := range c.queue {
		if f.offer > 0 {
			c.queue = append(c.queue[:i], c.queue[i+1:]...)
			c.forget(f)
			c.lost++
			if f.flushed != nil {
				close(f.flushed)
			}
			return true
		}
	}
	return false
}

// Lost returns how many offers gave way so far.
func (c *Conn) Lost() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func (c *Conn) push(f *frame) {
	c.queue = append(c.queue, f)
	c.bytes += len(f.data)
	if f.solo {
		c.solos++
		c.soloBytes += len(f.data)
	}
	select {
	case c.work <- struct{}{}:
	default:
	}
}

func (c *Conn) forget(f *frame) {
	c.bytes -= len(f.data)
	c.offers -= f.offer
	if f.key != "" && c.offered[f.key] == f {
		delete(c.offered, f.key)
	}
}

// take removes the next batch: one solo frame, or consecutive others.
func (c *Conn) take() []*frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, size := 0, 0
	for n < len(c.queue) && size < batchSize {
		f := c.queue[n]
		if f.solo && n > 0 {
			break
		}
		n++
		size += len(f.data)
		if f.solo {
			break
		}
	}
	batch := make([]*frame, n)
	copy(batch, c.queue)
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	for _, f := range batch {
		c.forget(f)
	}
	c.writing = nil
	if n > 0 {
		c.writing = batch[n-1]
		close(c.room)
		c.room = make(chan struct{})
	}
	return batch
}

// written counts answers that have left. c.mu is held.
func (c *Conn) written(batch []*frame) {
	answered := false
	for _, f := range batch {
		if f.solo {
			c.solos--
			c.soloBytes -= len(f.data)
			answered = true
		}
	}
	if answered {
		close(c.room)
		c.room = make(chan struct{})
	}
}

func (c *Conn) write() {
	var out [][]byte
	for {
		batch := c.take()
		if len(batch) == 0 {
			select {
			case <-c.work:
				continue
			case <-c.closed:
				return
			}
		}
		out = out[:0]
		for _, f := range batch {
			out = append(out, f.data)
		}
		err := c.stream.Write(out)
		c.mu.Lock()
		c.written(batch)
		for _, f := range batch {
			if f.flushed != nil {
				close(f.flushed)
			}
		}
		c.mu.Unlock()
		if err != nil {
			c.Close()
			return
		}
	}
}

// IsEnd reports whether a read error is the ordinary end of a stream.
func IsEnd(err error) bool { return errors.Is(err, io.EOF) }
