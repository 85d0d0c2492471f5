package appserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// drainTime bounds how long answers are waited for when the peer has closed its
// side.
const drainTime = 2 * time.Second

// client is one connection.
type client struct {
	srv    *Server
	conn   *jsonrpc.Conn
	ctx    context.Context
	cancel context.CancelFunc
	// id is the lease scope of the connection's own commands.
	id    string
	tasks sync.WaitGroup
	// watches and searches are the connection's own.
	watches  *watches
	searches *searches

	mu           sync.Mutex
	initialized  bool
	experimental bool
	extended     bool
	// numbered is set when the client asked for sequence numbers.
	numbered bool
	optOut   map[string]bool
	subs     map[string]*subscription
	lanes    map[string][]func()
	asked    map[int64]*heddlev1.Approval
	execs    map[execKey]*execution
	inFlight int
	running  map[runningKey]*context.CancelCauseFunc
	// asking are the bytes of the requests that are worked on.
	asking int
	// pages has room for the large answers that are made at a time.
	pages chan struct{}
}

// Serve runs one connection until its stream ends.
func (s *Server) Serve(ctx context.Context, stream jsonrpc.Stream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &client{
		srv: s, conn: jsonrpc.NewConn(stream), ctx: ctx, cancel: cancel, id: uuid.NewString(),
		subs: map[string]*subscription{}, lanes: map[string][]func(){}, asked: map[int64]*heddlev1.Approval{}, execs: map[execKey]*execution{}, running: map[runningKey]*context.CancelCauseFunc{},
		searches: newSearches(), pages: make(chan struct{}, s.limits.Pages),
	}
	c.watches = newWatches(c)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		c.conn.Close()
		return errors.New("the server is closing")
	}
	s.clients[c] = struct{}{}
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, c.conn.Close)
	defer stop()
	err := c.read()
	c.leave(jsonrpc.IsEnd(err))
	if jsonrpc.IsEnd(err) {
		return nil
	}
	return err
}

// read dispatches messages until the stream ends.
func (c *client) read() error {
	for {
		// A client that only writes is not read for ever.
		if err := c.conn.WaitRoom(c.ctx); err != nil {
			return err
		}
		line, err := c.conn.Read()
		var tooLarge *jsonrpc.TooLargeError
		if errors.As(err, &tooLarge) {
			c.refuseLarge(tooLarge)
			continue
		}
		if err != nil {
			return err
		}
		m, ok := jsonrpc.Parse(line)
		if !ok {
			continue
		}
		switch m.Kind {
		case jsonrpc.Request:
			// The line is reused by the next read.
			m.Params = append(json.RawMessage(nil), m.Params...)
			c.request(m)
		case jsonrpc.Response, jsonrpc.ErrorResponse:
			c.answer(m)
		}
	}
}

// refuseLarge answers an oversized request when its id can be seen.
func (c *client) refuseLarge(e *jsonrpc.TooLargeError) {
	if id, ok := jsonrpc.HeadID(e.Head); ok {
		c.conn.RespondError(id, invalid(fmt.Sprintf("message exceeds the limit of %d bytes", e.Limit)))
	}
}

// leave ends the connection. After an orderly end the answers under way are
// still written.
func (c *client) leave(orderly bool) {
	c.endExecs()
	if orderly {
		done := make(chan struct{})
		go func() {
			c.tasks.Wait()
			close(done)
		}()
		t := time.NewTimer(drainTime)
		select {
		case <-done:
		case <-t.C:
		}
		t.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		c.conn.Flush(ctx)
		cancel()
	}
	c.cancel()
	c.srv.mu.Lock()
	delete(c.srv.clients, c)
	c.srv.mu.Unlock()
	c.mu.Lock()
	subs := make([]*subscription, 0, len(c.subs))
	for _, sub := range c.subs {
		subs = append(subs, sub)
	}
	c.mu.Unlock()
	for _, sub := range subs {
		sub.thread.unsubscribe(c)
	}
	c.conn.Close()
}

func (c *client) remember(thread string, sub *subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs[thread] = sub
}

func (c *client) forget(thread string, sub *subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subs[thread] != sub {
		return
	}
	delete(c.subs, thread)
	for id, a := range c.asked {
		if a.GetThreadId() == thread {
			delete(c.asked, id)
		}
	}
}

func (c *client) isNumbered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.numbered
}

// place tells a client that asked for numbers where an answer stands.
func (c *client) place(t *heddlev1.Thread) *protocol.Place {
	numbered, extended := c.isNumbered(), c.isExtended()
	if !extended || !numbered && t.GetSandboxReport() == nil {
		return nil
	}
	p := &protocol.Place{SandboxReport: protocol.FromSandboxReport(t.GetSandboxReport())}
	if numbered {
		p.Seq = t.GetLastSeq()
	}
	return p
}

func (c *client) isExtended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.extended
}

// wants reports whether a note goes to this connection at all.
func (c *client) wants(n note) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.initialized && !c.optOut[n.method] && (c.experimental || !n.experimental) && (c.extended || !n.extended)
}

// offer queues a note that is not part of a subscription.
func (c *client) offer(n note) {
	n.seq = 0
	data, err := n.encode(time.Now().UnixMilli(), false, 0)
	if err != nil {
		c.srv.log.Error("encoding a notification failed", "method", n.method, "error", err)
		return
	}
	c.conn.Offer(n.key, data)
}

// tell sends a note to this connection alone, waiting for room.
func (c *client) tell(method string, params any) { c.tellNote(note{method: method, params: params}) }

func (c *client) tellNote(n note) {
	if !c.wants(n) {
		return
	}
	data, err := n.encode(time.Now().UnixMilli(), false, 0)
	if err == nil {
		err = c.conn.Notify(c.ctx, data)
	}
	if err != nil {
		c.srv.log.Debug("notification not sent", "method", n.method, "error", err)
	}
}
