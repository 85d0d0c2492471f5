//go:build robust

package robust

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// message is one JSON-RPC message from a server.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
	Seq    uint64          `json:"seq"`
	Prev   uint64          `json:"prev"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

var (
	errClosed = errors.New("the connection is closed")
	errSilent = errors.New("no answer in time")
)

// link carries lines to and from a server.
type link interface {
	write([]byte) error
	read() ([]byte, error)
	close()
}

type pipeLink struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func (l *pipeLink) write(b []byte) error { _, err := l.in.Write(append(b, '\n')); return err }
func (l *pipeLink) read() ([]byte, error) {
	return l.out.ReadBytes('\n')
}
func (l *pipeLink) close() { _ = l.in.Close() }

type wsLink struct{ c *websocket.Conn }

func (l *wsLink) write(b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return l.c.Write(ctx, websocket.MessageText, b)
}
func (l *wsLink) read() ([]byte, error) { _, b, err := l.c.Read(context.Background()); return b, err }
func (l *wsLink) close()                { _ = l.c.CloseNow() }

// dialWS connects to ws://ADDRESS, or to a unix socket when path is set.
func dialWS(ctx context.Context, address, path string) (link, error) {
	opts := &websocket.DialOptions{}
	if path != "" {
		address = "localhost"
		opts.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}}}
	}
	c, _, err := websocket.Dial(ctx, "ws://"+address+"/", opts)
	if err != nil {
		return nil, err
	}
	c.SetReadLimit(16 << 20)
	return &wsLink{c}, nil
}

// client is one JSON-RPC connection.
type client struct {
	name string
	link link
	// ask is called with each server request, on a goroutine of its own.
	ask func(c *client, m message)
	// note is called with each notification that has a number.
	note func(n Note)
	// slow holds the reader while it is above zero.
	slow atomic.Int64

	mu      sync.Mutex
	wmu     sync.Mutex
	next    int
	waiting map[string]chan message
	done    chan struct{}
	chains  map[string]int // per thread, counts its subscriptions
	broken  error
}

func newClient(name string, l link, ask func(*client, message), note func(Note)) *client {
	c := &client{name: name, link: l, ask: ask, note: note, waiting: map[string]chan message{}, done: make(chan struct{}), chains: map[string]int{}}
	go c.read()
	return c
}

func (c *client) read() {
	defer close(c.done)
	for {
		for c.slow.Load() > 0 {
			time.Sleep(20 * time.Millisecond)
			c.slow.Add(-20)
		}
		line, err := c.link.read()
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			c.mu.Lock()
			c.broken = fmt.Errorf("line is not JSON: %.200q", line)
			c.mu.Unlock()
			continue
		}
		c.take(m)
	}
}

func (c *client) take(m message) {
	switch {
	case m.Method == "":
		c.mu.Lock()
		ch := c.waiting[string(m.ID)]
		delete(c.waiting, string(m.ID))
		c.mu.Unlock()
		if ch != nil {
			ch <- m
		}
	case m.ID != nil:
		go c.ask(c, m)
	case m.Seq > 0:
		var p struct {
			ThreadID string              `json:"threadId"`
			Turn     struct{ ID string } `json:"turn"`
			Item     struct{ ID string } `json:"item"`
		}
		if json.Unmarshal(m.Params, &p) != nil {
			return
		}
		n := Note{Thread: p.ThreadID, Method: m.Method, Seq: m.Seq, Prev: m.Prev, Subject: p.Turn.ID + p.Item.ID}
		c.mu.Lock()
		n.Chain = fmt.Sprintf("%s/%d", c.name, c.chains[p.ThreadID])
		c.mu.Unlock()
		c.note(n)
	}
}

// breakChain starts a new chain of notes for a thread, since its subscription is
// about to change or has changed.
func (c *client) breakChain(thread string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chains[thread]++
}

func (c *client) send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.link.write(data)
}

// call sends a request and waits for its answer. An *rpcError is the server's;
// errClosed and transport errors leave the outcome unknown.
func (c *client) call(method string, params map[string]any, within time.Duration) (json.RawMessage, error) {
	c.mu.Lock()
	c.next++
	id := fmt.Sprint(c.next)
	ch := make(chan message, 1)
	c.waiting[id] = ch
	c.mu.Unlock()
	if err := c.send(map[string]any{"id": json.RawMessage(id), "method": method, "params": params}); err != nil {
		return nil, errClosed
	}
	timeout := time.After(within)
	select {
	case m := <-ch:
		if m.Error != nil {
			return nil, m.Error
		}
		return m.Result, nil
	case <-c.done:
		select {
		case m := <-ch:
			if m.Error != nil {
				return nil, m.Error
			}
			return m.Result, nil
		default:
			return nil, errClosed
		}
	case <-timeout:
		return nil, fmt.Errorf("%s: %w (%v)", method, errSilent, within)
	}
}

func (c *client) initialize() error {
	_, err := c.call("initialize", map[string]any{
		"clientInfo":   map[string]any{"name": "robust", "version": "1"},
		"capabilities": map[string]any{"experimentalApi": true, "heddle": map[string]any{"eventSeq": true}},
	}, time.Minute)
	if err == nil {
		err = c.send(map[string]any{"method": "initialized"})
	}
	return err
}

func (c *client) closed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
