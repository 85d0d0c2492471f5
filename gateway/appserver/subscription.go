package appserver

import (
	"context"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

var notLoaded = protocol.NotLoaded

// subscription is one connection's view of one thread: a cursor with its own
// pump. While the connection does not read, the pump waits; what it has not
// taken stays in the log.
type subscription struct {
	thread *loaded
	client *client
	tr     *translator
	gate   gate
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	// parted is closed when the connection has been told of the thread's end: of
	// its archiving and all before it, or of what was open when it was lost.
	parted chan struct{}
	once   sync.Once
	// prev is the seq of the last note that stood for an event.
	prev uint64
	// Questions up to replayTo are not put from the log: those that are open are
	// put with the answer to the subscription, and may be answered by now.
	replayTo uint64
}

func newSubscription(l *loaded, c *client, t *heddlev1.Thread, pending []*heddlev1.Approval) *subscription {
	ctx, cancel := context.WithCancel(l.ctx)
	sub := &subscription{thread: l, client: c, tr: newTranslator(t, pending), ctx: ctx, cancel: cancel, done: make(chan struct{}), parted: make(chan struct{}), prev: t.GetLastSeq()}
	sub.tr.opts.Extended, sub.tr.jumps = c.isExtended(), c.isNumbered()
	sub.tr.read = l.srv.readOutput(l.id)
	return sub
}

func (sub *subscription) run(after uint64) {
	defer close(sub.done)
	defer sub.part()
	stop := context.AfterFunc(sub.client.ctx, sub.cancel)
	defer stop()
	cur := &cursor{feed: sub.thread.feed, after: after}
	err := cur.each(sub.ctx, func(e *heddlev1.Event) error {
		err := sub.tr.event(sub.ctx, e, sub.send)
		for _, id := range started(e) {
			sub.thread.srv.followAgent(sub.ctx, sub.client, id, true)
		}
		if e.GetThreadArchived() != nil {
			sub.part()
		}
		return err
	})
	if err != nil && sub.ctx.Err() == nil {
		sub.thread.srv.log.Info("subscription ended", "thread", sub.thread.id, "error", err)
		if errdefs.Is(err, errdefs.ThreadNotFound) {
			err = sub.tr.lost(sub.send)
		}
		if err != nil {
			sub.thread.srv.log.Debug("farewell of a lost thread failed", "thread", sub.thread.id, "error", err)
		}
	}
}

func (sub *subscription) part() { sub.once.Do(func() { close(sub.parted) }) }

// send passes a note on, waiting for the gate and for room in the queue.
func (sub *subscription) send(n note) error {
	if err := sub.gate.wait(sub.ctx); err != nil {
		return err
	}
	c := sub.client
	if n.ask != nil {
		if n.seq <= sub.replayTo {
			return nil
		}
		return c.ask(sub.ctx, n.ask)
	}
	if n.resolved != nil {
		c.closeAsk(*n.resolved)
	}
	if !c.wants(n) {
		return nil
	}
	data, err := n.encode(time.Now().UnixMilli(), c.isNumbered(), sub.prev)
	if err != nil {
		return err
	}
	if n.seq > 0 {
		sub.prev = n.seq
	}
	return c.conn.Notify(sub.ctx, data)
}

// readOutput reads ranges of a thread's stream files. It returns no bytes for a
// range that is gone.
func (s *Server) readOutput(thread string) func(context.Context, string, int64, int64) ([]byte, error) {
	return func(ctx context.Context, item string, offset, length int64) ([]byte, error) {
		var resp *heddlev1.ReadOutputResponse
		err := s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
			resp, err = heddlev1.NewEventServiceClient(cc).ReadOutput(ctx, &heddlev1.ReadOutputRequest{
				ThreadId: thread, ItemId: item, Offset: offset, Length: length,
			})
			return err
		})
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			s.log.Info("reading output failed", "thread", thread, "item", item, "offset", offset, "error", err)
			return nil, nil
		}
		data := resp.GetData()
		return data[:min(int64(len(data)), length)], nil
	}
}

// ask puts a question to the connection, once.
func (c *client) ask(ctx context.Context, a *heddlev1.Approval) error {
	c.mu.Lock()
	_, asked := c.asked[a.GetRequestId()]
	c.asked[a.GetRequestId()] = a
	c.mu.Unlock()
	if asked {
		return nil
	}
	method, params := approvalRequest(a, c.isExtended())
	data, err := jsonrpc.EncodeRequest(jsonrpc.IntID(a.GetRequestId()), method, params)
	if err != nil {
		return err
	}
	return c.conn.Notify(ctx, fit(data))
}

// closeAsk forgets a question; an answer that comes later is ignored.
func (c *client) closeAsk(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asked, id)
}
