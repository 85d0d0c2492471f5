package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Members of _meta with which a message passes between wire and the rest of the
// package. They are not seen outside.
const (
	metaRequestID = "heddle/requestId"
	metaFields    = "heddle/fields"
	metaDecision  = "heddle/decision"
)

const elicitMethod = "elicitation/create"

// wire is the connection with the client. It carries what the protocol's library
// has no place for: members beside those of an elicitation and of its answer,
// the ids of calls, and notifications of our own.
type wire struct {
	mcp.Connection
	inner mcp.Transport
	ended context.CancelFunc

	mu     sync.Mutex
	asked  map[any]bool  // ids of elicitations that are open
	open   map[any]bool  // ids of requests that were not answered yet
	idle   chan struct{} // set at the end of the input; closed when none is open
	failed error
}

func newWire(inner mcp.Transport, ended context.CancelFunc) *wire {
	return &wire{inner: inner, ended: ended, asked: map[any]bool{}, open: map[any]bool{}}
}

// Connect implements mcp.Transport.
func (w *wire) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := w.inner.Connect(ctx)
	w.Connection = c
	return w, err
}

// failure is why the input ended, nil for its regular end.
func (w *wire) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// Read implements mcp.Connection.
func (w *wire) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := w.Connection.Read(ctx)
	if err != nil {
		if !errors.Is(err, io.EOF) && ctx.Err() == nil {
			w.mu.Lock()
			w.failed = err
			w.mu.Unlock()
		}
		w.ended()
		w.drain()
		return msg, err
	}
	switch m := msg.(type) {
	case *jsonrpc.Request:
		w.note(m)
		if m.Method == "tools/call" {
			m.Params = withMeta(m.Params, metaRequestID, m.ID.Raw())
		}
	case *jsonrpc.Response:
		w.mu.Lock()
		ours := w.asked[m.ID.Raw()]
		delete(w.asked, m.ID.Raw())
		w.mu.Unlock()
		if ours {
			m.Result = keepDecision(m.Result)
		}
	}
	return msg, nil
}

// Write implements mcp.Connection.
func (w *wire) Write(ctx context.Context, msg jsonrpc.Message) error {
	if m, ok := msg.(*jsonrpc.Request); ok && m.Method == elicitMethod {
		raised := *m
		raised.Params = raise(m.Params)
		msg = &raised
		w.mu.Lock()
		w.asked[m.ID.Raw()] = true
		w.mu.Unlock()
	}
	err := w.Connection.Write(ctx, msg)
	if m, ok := msg.(*jsonrpc.Response); ok {
		w.settle(m.ID.Raw())
	}
	return err
}

// note counts a request as open until it is answered or cancelled.
func (w *wire) note(m *jsonrpc.Request) {
	if m.IsCall() {
		w.mu.Lock()
		w.open[m.ID.Raw()] = true
		w.mu.Unlock()
	}
	var cancelled mcp.CancelledParams
	if m.Method == "notifications/cancelled" && json.Unmarshal(m.Params, &cancelled) == nil {
		if id, err := jsonrpc.MakeID(cancelled.RequestID); err == nil {
			w.settle(id.Raw())
		}
	}
}

func (w *wire) settle(id any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, id)
	if w.idle != nil && len(w.open) == 0 {
		close(w.idle)
		w.idle = nil
	}
}

// drain waits for the answers to what was asked before the input ended. The
// protocol's library drops them once it knows of the end.
func (w *wire) drain() {
	w.mu.Lock()
	if len(w.open) == 0 {
		w.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	w.idle = idle
	w.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(farewell):
	}
}

// notify sends a notification that the protocol does not have.
func (w *wire) notify(ctx context.Context, method string, params any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("encode %s: %w", method, err)
	}
	return w.Connection.Write(ctx, &jsonrpc.Request{Method: method, Params: raw})
}

// withMeta sets a member of _meta. Params that are no object stay as they are:
// they are refused later.
func withMeta(params json.RawMessage, key string, value any) json.RawMessage {
	var body map[string]json.RawMessage
	if json.Unmarshal(params, &body) != nil || body == nil {
		return params
	}
	var meta map[string]any
	if raw, given := body["_meta"]; given && json.Unmarshal(raw, &meta) != nil {
		return params
	}
	if meta == nil {
		meta = map[string]any{}
	}
	meta[key] = value
	return with(params, body, "_meta", meta)
}

// keepDecision copies the decision beside an answer's action to where the
// protocol's library keeps it. The answer of older clients is nothing else.
func keepDecision(result json.RawMessage) json.RawMessage {
	var body map[string]json.RawMessage
	if json.Unmarshal(result, &body) != nil || body["decision"] == nil {
		return result
	}
	return withMeta(result, metaDecision, body["decision"])
}

// raise moves the members that came along in _meta beside it.
func raise(params json.RawMessage) json.RawMessage {
	var body, meta, fields map[string]json.RawMessage
	if json.Unmarshal(params, &body) != nil || json.Unmarshal(body["_meta"], &meta) != nil || json.Unmarshal(meta[metaFields], &fields) != nil {
		return params
	}
	delete(meta, metaFields)
	delete(body, "_meta")
	for k, v := range fields {
		body[k] = v
	}
	if len(meta) == 0 {
		meta = nil
	}
	return with(params, body, "_meta", meta)
}

// with encodes body with one more member; a nil map leaves it out.
func with[V any](old json.RawMessage, body map[string]json.RawMessage, key string, value map[string]V) json.RawMessage {
	if value != nil {
		raw, err := json.Marshal(value)
		if err != nil {
			return old
		}
		body[key] = raw
	}
	out, err := json.Marshal(body)
	if err != nil {
		return old
	}
	return out
}
