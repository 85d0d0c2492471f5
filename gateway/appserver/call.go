package appserver

import "github.com/heddle-dev/heddle/gateway/jsonrpc"

// call is one request being worked on.
type call struct {
	client *client
	method string
	id     jsonrpc.ID
	after  []func()
	later  bool
	// whole is set when the client asked for an answer of any size.
	whole bool
	// bytes is the size of the parameters.
	bytes int
}

// then runs f once the answer has left in a write of its own.
func (r *call) then(f func()) { r.after = append(r.after, f) }

// finish answers the request and runs what waits for the answer. A failed
// request runs it too, so that holds are released.
func (r *call) finish(result any, err error) {
	flushed := r.answer(result, err)
	if len(r.after) > 0 {
		select {
		case <-flushed:
		case <-r.client.conn.Done():
		}
		for _, f := range r.after {
			f()
		}
	}
	r.client.mu.Lock()
	r.client.inFlight--
	r.client.asking -= r.bytes
	r.client.mu.Unlock()
	r.client.tasks.Done()
}

// answer queues the answer. A large one for which there is no room is replaced by
// a refusal.
func (r *call) answer(result any, err error) (flushed <-chan struct{}) {
	conn := r.client.conn
	if err != nil {
		return conn.RespondError(r.id, failure(err))
	}
	data := jsonrpc.EncodeResult(r.id, result)
	if !whole(r.method) && !r.whole {
		data = fit(data)
	}
	if _, waiting := conn.Backlog(); len(data) > smallAnswer && waiting > 0 && waiting+len(data) > r.client.srv.limits.ConnectionBytes {
		return conn.RespondError(r.id, overloaded())
	}
	return conn.Send(data)
}

// request starts the work on one request.
func (c *client) request(m jsonrpc.Message) {
	c.mu.Lock()
	initialized, experimental, extended := c.initialized, c.experimental, c.extended
	full := c.full(len(m.Params))
	if !full {
		c.inFlight++
		c.asking += len(m.Params)
		c.tasks.Add(1)
	}
	c.mu.Unlock()
	if full {
		c.conn.RespondError(m.ID, overloaded())
		return
	}
	r := &call{client: c, method: m.Method, id: m.ID, bytes: len(m.Params)}
	if !initialized && m.Method != "initialize" {
		r.finish(nil, invalid("Not initialized"))
		return
	}
	if initialized && m.Method == "initialize" {
		r.finish(nil, invalid("Already initialized"))
		return
	}
	entry, params, err := lookup(m.Method, m.Params, experimental, extended)
	if err != nil {
		r.finish(nil, err)
		return
	}
	run := func() {
		if large(m.Method) {
			release, err := c.room()
			if err != nil {
				r.finish(nil, err)
				return
			}
			defer release()
		}
		result, err := entry.run(c.srv, c.ctx, r, params)
		if !r.later || err != nil {
			r.finish(result, err)
		}
	}
	switch lane := laneOf(params); {
	case entry.inline:
		run()
	case lane == "":
		go run()
	default:
		c.enqueue(lane, run)
	}
}

// enqueue runs the requests of one thread one after the other.
func (c *client) enqueue(lane string, run func()) {
	c.mu.Lock()
	queue, busy := c.lanes[lane]
	c.lanes[lane] = append(queue, run)
	c.mu.Unlock()
	if busy {
		return
	}
	go func() {
		for {
			c.mu.Lock()
			queue := c.lanes[lane]
			if len(queue) == 0 {
				delete(c.lanes, lane)
				c.mu.Unlock()
				return
			}
			run := queue[0]
			c.lanes[lane] = queue[1:]
			c.mu.Unlock()
			run()
		}
	}()
}
