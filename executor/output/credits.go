package output

import "time"

const (
	// MaxChunk is the number of bytes of one chunk.
	MaxChunk = 64 << 10
	// Coalesce is the least time between two chunks that are not full. The
	// first bytes after a pause go out at once.
	Coalesce = 3 * time.Millisecond
)

// Chunk is a piece of a stream to send. Data is valid until the next call.
type Chunk struct {
	// Stream is the index of the stream, from 0.
	Stream  int
	Offset  int64
	Data    []byte
	Dropped int64
}

// Credits decides what of an action's streams is sent next under a window of
// unacknowledged bytes. It is used by one goroutine; only the streams are
// shared.
type Credits struct {
	streams []*Stream
	sent    []int64
	told    []bool // dropped bytes were told on this connection
	window  int64
	last    time.Time
	buf     []byte
}

// NewCredits returns the credits of an action without a connection yet.
func NewCredits(streams []*Stream) *Credits {
	return &Credits{streams: streams, sent: make([]int64, len(streams)), told: make([]bool, len(streams))}
}

// Reset starts over on a new connection: everything unacknowledged is sent again.
func (c *Credits) Reset(window int64) {
	c.window = window
	for i, s := range c.streams {
		c.sent[i], c.told[i] = s.State().Acked, false
	}
}

// Next returns the next chunk. Without one, wait is how long until there may be
// one although nothing happens; 0 means that an event (bytes, an
// acknowledgement) must come first.
func (c *Credits) Next(now time.Time) (chunk Chunk, ok bool, wait time.Duration, err error) {
	room := c.window
	states := make([]State, len(c.streams))
	for i, s := range c.streams {
		states[i] = s.State()
		c.sent[i] = max(c.sent[i], states[i].Acked)
		room -= c.sent[i] - states[i].Acked
	}
	for i, st := range states {
		n := min(st.Size-c.sent[i], room, MaxChunk)
		if n <= 0 {
			if st.Closed && c.sent[i] == st.Size && st.Dropped > 0 && !c.told[i] {
				c.told[i] = true
				return Chunk{Stream: i, Offset: st.Size, Dropped: st.Dropped}, true, 0, nil
			}
			continue
		}
		if since := now.Sub(c.last); n < MaxChunk && !st.Closed && since < Coalesce {
			wait = Coalesce - since
			continue
		}
		if int64(cap(c.buf)) < n {
			c.buf = make([]byte, max(n, 4096))
		}
		got, err := c.streams[i].ReadAt(c.buf[:n], c.sent[i])
		if err != nil {
			return Chunk{}, false, 0, err
		}
		chunk = Chunk{Stream: i, Offset: c.sent[i], Data: c.buf[:got]}
		c.sent[i] += int64(got)
		c.last = now
		return chunk, got > 0, 0, nil
	}
	return Chunk{}, false, wait, nil
}

// Done reports whether every byte of every closed stream was sent.
func (c *Credits) Done() bool {
	for i, s := range c.streams {
		st := s.State()
		if !st.Closed || max(c.sent[i], st.Acked) < st.Size || (st.Dropped > 0 && !c.told[i]) {
			return false
		}
	}
	return true
}
