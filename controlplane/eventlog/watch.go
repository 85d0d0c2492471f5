package eventlog

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/store"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// tailEvents and tailBytes bound the committed events that a watched
	// thread keeps in memory for watchers that keep up.
	tailEvents = 512
	tailBytes  = 4 << 20
	// batchBytes bounds what one Next returns, but for a single large event.
	batchBytes = store.DefaultReadBytes
)

// feed is the live end of a thread that is watched. Log.mu guards the map of
// feeds and the count of watchers, mu the rest.
type feed struct {
	threadID string
	watchers int

	mu   sync.Mutex
	head uint64
	// tail holds the last committed events, without gaps, up to head.
	tail []*heddlev1.Event
	size int
	// changed is closed at the next change.
	changed chan struct{}
	err     error
}

// publish adds committed events and wakes the watchers. It never blocks.
func (f *feed) publish(events []*heddlev1.Event) {
	if len(events) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tail = append(f.tail, events...)
	for _, ev := range events {
		f.size += proto.Size(ev)
	}
	over := 0
	for ; len(f.tail)-over > tailEvents || f.size > tailBytes && over < len(f.tail); over++ {
		f.size -= proto.Size(f.tail[over])
	}
	if over > 0 {
		f.tail = slices.Clone(f.tail[over:])
	}
	f.head = events[len(events)-1].GetSeq()
	close(f.changed)
	f.changed = make(chan struct{})
}

// end makes every watcher return err.
func (f *feed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		close(f.changed)
		f.changed = make(chan struct{})
	}
}

// since returns what the tail holds after a seq, also of a thread that is gone
// since. known is false when the store has to be asked.
func (f *feed) since(after uint64) (events []*heddlev1.Event, head uint64, known bool, changed chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head == 0 || len(f.tail) == 0 || after+1 < f.tail[0].GetSeq() {
		return nil, f.head, false, f.changed, f.err
	}
	if after >= f.head {
		return nil, f.head, true, f.changed, f.err
	}
	from := int(after + 1 - f.tail[0].GetSeq())
	return slices.Clone(f.tail[from:bounded(f.tail, from)]), f.head, true, f.changed, nil
}

// bounded returns the end of a batch that begins at from.
func bounded(events []*heddlev1.Event, from int) int {
	size := 0
	for i := from; i < len(events); i++ {
		size += proto.Size(events[i])
		if size > batchBytes {
			return max(i, from+1)
		}
	}
	return len(events)
}

// Watcher reads one thread's log from a seq on, as it grows. It is for one
// goroutine at a time.
type Watcher struct {
	log   *Log
	feed  *feed
	after uint64
	once  sync.Once
}

// Watch returns a watcher of the events after a seq. Close must be called.
func (l *Log) Watch(threadID string, after uint64) *Watcher {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.feeds[threadID]
	if f == nil {
		f = &feed{threadID: threadID, changed: make(chan struct{})}
		l.feeds[threadID] = f
	}
	f.watchers++
	return &Watcher{log: l, feed: f, after: after}
}

// Close releases the watcher.
func (w *Watcher) Close() {
	w.once.Do(func() {
		w.log.mu.Lock()
		defer w.log.mu.Unlock()
		w.feed.watchers--
		if w.feed.watchers == 0 && w.log.feeds[w.feed.threadID] == w.feed {
			delete(w.log.feeds, w.feed.threadID)
		}
	})
}

// After returns the seq that the watcher has read up to.
func (w *Watcher) After() uint64 { return w.after }

// Next waits for committed events after the last ones and returns them with
// the last seq of the log. The events are shared: they must not be changed. A
// range that was compacted or damaged comes as one RangeCompacted event. It
// fails with errdefs.ThreadNotFound when the thread does not exist or is
// deleted, after what a watcher that keeps up has not read yet, and with ctx's
// error.
func (w *Watcher) Next(ctx context.Context) ([]*heddlev1.Event, uint64, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		events, head, known, changed, err := w.feed.since(w.after)
		if err != nil {
			return nil, 0, err
		}
		if !known {
			if events, head, err = w.log.Store().Events(ctx, w.feed.threadID, w.after, batchBytes); err != nil {
				return nil, 0, err
			}
		}
		if len(events) > 0 {
			w.after = store.EndOf(events[len(events)-1])
			return events, max(head, w.after), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}
