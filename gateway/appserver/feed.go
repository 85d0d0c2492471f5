package appserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/gateway/upstream"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// feedBytes bounds the recent events that a feed keeps in memory.
const feedBytes = 1 << 20

// feed watches one thread's log and keeps its recent events. Any number of
// cursors read from it; one that falls behind reads from the control plane until
// it has caught up. A feed outlives the loss of the control plane.
type feed struct {
	session *upstream.Session
	thread  string
	cancel  context.CancelFunc

	mu      sync.Mutex
	batches []batch
	bytes   int
	// head is the last seq that was received.
	head    uint64
	err     error
	changed chan struct{}
}

// batch holds consecutive events after seq `after`.
type batch struct {
	after, last uint64
	events      []*heddlev1.Event
	size        int
}

// newFeed starts to watch after a seq.
func newFeed(session *upstream.Session, thread string, after uint64) *feed {
	ctx, cancel := context.WithCancel(context.Background())
	f := &feed{session: session, thread: thread, cancel: cancel, head: after, changed: make(chan struct{})}
	go f.run(ctx)
	return f
}

func (f *feed) close() { f.cancel() }

func (f *feed) run(ctx context.Context) {
	for {
		f.mu.Lock()
		after := f.head
		f.mu.Unlock()
		err := watch(ctx, f.session, f.thread, after, func(events []*heddlev1.Event) error {
			f.add(events)
			return nil
		})
		switch {
		case ctx.Err() != nil:
			f.fail(ctx.Err())
			return
		case errdefs.Is(err, errdefs.ThreadNotFound):
			f.fail(err)
			return
		}
		// The next attempt waits for the session; this keeps an error that
		// comes back at once from spinning.
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (f *feed) add(events []*heddlev1.Event) {
	if len(events) == 0 {
		return
	}
	size := 0
	for _, e := range events {
		size += proto.Size(e)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last := lastSeq(events)
	f.batches = append(f.batches, batch{after: f.head, last: last, events: events, size: size})
	f.bytes += size
	f.head = last
	drop := 0
	for f.bytes > feedBytes && drop < len(f.batches)-1 {
		f.bytes -= f.batches[drop].size
		drop++
	}
	if drop > 0 {
		n := copy(f.batches, f.batches[drop:])
		clear(f.batches[n:])
		f.batches = f.batches[:n]
	}
	f.wake()
}

func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.wake()
}

func (f *feed) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// lastSeq is the seq up to which events account for the log.
func lastSeq(events []*heddlev1.Event) uint64 {
	e := events[len(events)-1]
	if r := e.GetRangeCompacted(); r != nil {
		return max(e.GetSeq(), r.GetLastSeq())
	}
	return e.GetSeq()
}

// recent returns events after a seq from memory. behind is true when they are
// no longer there; wait is closed when there may be more.
func (f *feed) recent(after uint64) (events []*heddlev1.Event, behind bool, wait <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after >= f.head {
		return nil, false, f.changed, f.err
	}
	for _, b := range f.batches {
		if b.last <= after {
			continue
		}
		if b.after > after {
			return nil, true, nil, nil
		}
		events = b.events
		for len(events) > 0 && events[0].GetSeq() <= after {
			events = events[1:]
		}
		return events, false, nil, nil
	}
	return nil, true, nil, nil
}

// cursor is one reader's position in a feed. It belongs to one goroutine.
type cursor struct {
	feed  *feed
	after uint64
}

// each passes the events after the cursor to handle, in order, until the
// context ends, the thread is gone, or handle fails.
func (c *cursor) each(ctx context.Context, handle func(*heddlev1.Event) error) error {
	for {
		events, behind, wait, err := c.feed.recent(c.after)
		switch {
		case behind:
			if err := c.catchUp(ctx, handle); err != nil {
				return err
			}
		case len(events) > 0:
			if err := c.pass(events, handle); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			select {
			case <-wait:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func (c *cursor) pass(events []*heddlev1.Event, handle func(*heddlev1.Event) error) error {
	for _, e := range events {
		if err := handle(e); err != nil {
			return err
		}
		c.after = lastSeq([]*heddlev1.Event{e})
	}
	return nil
}

// catchUp reads from the control plane until the feed's memory holds what comes
// next. The stream's flow control lets the control plane wait for this reader.
func (c *cursor) catchUp(ctx context.Context, handle func(*heddlev1.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	err := watch(ctx, c.feed.session, c.feed.thread, c.after, func(events []*heddlev1.Event) error {
		if failed = c.pass(events, handle); failed != nil {
			return failed
		}
		if _, behind, _, _ := c.feed.recent(c.after); !behind {
			return errCaughtUp
		}
		return nil
	})
	switch {
	case failed != nil:
		return failed
	case errors.Is(err, errCaughtUp), upstream.Lost(err):
		return nil
	}
	return err
}

// errCaughtUp ends a private stream that has reached the feed's memory.
var errCaughtUp = errors.New("caught up")

// watch passes batches of events until the stream ends or handle fails.
func watch(ctx context.Context, session *upstream.Session, thread string, after uint64, handle func([]*heddlev1.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stream grpc.ServerStreamingClient[heddlev1.WatchResponse]
	err := session.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = heddlev1.NewEventServiceClient(cc).Watch(ctx, &heddlev1.WatchRequest{ThreadId: thread, After: after})
		return err
	})
	if err != nil {
		return err
	}
	for {
		msg, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := handle(msg.GetEvents()); err != nil {
			return err
		}
	}
}
