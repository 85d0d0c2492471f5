package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/heddle-dev/heddle/gateway"
	"github.com/heddle-dev/heddle/gateway/auth"
	"github.com/heddle-dev/heddle/gateway/transport"
	"google.golang.org/grpc/metadata"
)

// patience bounds every wait of these tests for something that must come.
const patience = 20 * time.Second

func sessionOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get("heddle-session"); len(v) > 0 {
		return v[0]
	}
	return ""
}

type message = map[string]any

// peer is a client of the protocol under test.
type peer struct {
	t     *testing.T
	write func(string) error
	close func()

	mu   sync.Mutex
	cond *sync.Cond
	log  []message
	raw  []string
	end  bool
	next int
	seen int
}

func newPeer(t *testing.T, write func(string) error, closeFn func()) *peer {
	t.Helper()
	p := &peer{t: t, write: write, close: closeFn}
	p.cond = sync.NewCond(&p.mu)
	t.Cleanup(closeFn)
	return p
}

func (p *peer) feed(line string) {
	var m message
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		p.t.Errorf("output is not JSON: %q", line)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, m)
	p.raw = append(p.raw, line)
	p.cond.Broadcast()
}

func (p *peer) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = true
	p.cond.Broadcast()
}

// find waits for the first message from index i on that fits.
func (p *peer) find(i int, what string, fits func(message) bool) (message, int) {
	p.t.Helper()
	expired := false
	timer := time.AfterFunc(patience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		expired = true
		p.cond.Broadcast()
	})
	defer timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for ; i < len(p.log); i++ {
			if fits(p.log[i]) {
				return p.log[i], i
			}
		}
		if p.end || expired {
			p.t.Fatalf("no %s; last messages: %v", what, p.log[max(0, len(p.log)-5):])
		}
		p.cond.Wait()
	}
}

func (p *peer) send(line string) {
	p.t.Helper()
	if err := p.write(line); err != nil {
		p.t.Fatalf("send: %v", err)
	}
}

// request sends a request and returns its whole answer.
func (p *peer) request(method string, params any) message {
	p.t.Helper()
	p.next++
	id := p.next
	data, err := json.Marshal(message{"id": id, "method": method, "params": params})
	if err != nil {
		p.t.Fatal(err)
	}
	p.send(string(data))
	return p.response(float64(id))
}

func (p *peer) response(id any) message {
	p.t.Helper()
	m, _ := p.find(0, fmt.Sprintf("answer to %v", id), func(m message) bool { return m["method"] == nil && m["id"] == id })
	return m
}

// result sends a request that must succeed.
func (p *peer) result(method string, params any) message {
	p.t.Helper()
	m := p.request(method, params)
	if m["error"] != nil {
		p.t.Fatalf("%s: %v", method, m["error"])
	}
	return m["result"].(message)
}

// refused sends a request that must fail.
func (p *peer) refused(method string, params any) (code int, text string) {
	p.t.Helper()
	m := p.request(method, params)
	e, ok := m["error"].(message)
	if !ok {
		p.t.Fatalf("%s succeeded: %v", method, m["result"])
	}
	return int(e["code"].(float64)), e["message"].(string)
}

// event waits for the next notification or server request of a method.
func (p *peer) event(method string) message {
	p.t.Helper()
	m, i := p.find(p.seen, method, func(m message) bool { return m["method"] == method })
	p.seen = i + 1
	return m
}

func params(m message) message { return m["params"].(message) }

func (p *peer) messages() []message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]message(nil), p.log...)
}

func (p *peer) initialize() {
	p.t.Helper()
	p.result("initialize", message{"clientInfo": message{"name": "tester", "version": "1.0"}, "capabilities": message{"experimentalApi": true}})
	p.send(`{"method":"initialized"}`)
}

func newGateway(t *testing.T, f *fake, change func(*gateway.Config)) *gateway.Gateway {
	t.Helper()
	cfg := gateway.Config{Dial: f.dial, Home: "/home", Version: "1.2.3", Cwd: "/work", Patience: patience}
	if change != nil {
		change(&cfg)
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.Close(ctx)
	})
	return g
}

// stdioPeer serves a client over pipes.
func stdioPeer(t *testing.T, g *gateway.Gateway) *peer {
	t.Helper()
	p, out := rawPeer(t, g)
	go func() {
		defer p.finish()
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			p.feed(strings.TrimSuffix(line, "\n"))
		}
	}()
	return p
}

// rawPeer serves a client over pipes whose output nobody reads yet.
func rawPeer(t *testing.T, g *gateway.Gateway) (*peer, io.Reader) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := g.ServeStdio(context.Background(), inR, outW); err != nil && t.Context().Err() == nil {
			t.Errorf("serve: %v", err)
		}
	}()
	p := newPeer(t, func(s string) error {
		_, err := io.WriteString(inW, s+"\n")
		return err
	}, func() {
		_ = inW.Close()
		_ = outR.Close()
		<-done
	})
	return p, outR
}

// wsPeer connects over a WebSocket to ws or unix.
func wsPeer(t *testing.T, dial func(ctx context.Context) (net.Conn, error), header http.Header) (*peer, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
	ws, resp, err := websocket.Dial(t.Context(), "ws://gateway/any/path", &websocket.DialOptions{HTTPClient: client, HTTPHeader: header})
	if err != nil {
		if resp != nil {
			return nil, fmt.Errorf("HTTP %d", resp.StatusCode)
		}
		return nil, err
	}
	ws.SetReadLimit(-1)
	p := newPeer(t, func(s string) error { return ws.Write(t.Context(), websocket.MessageText, []byte(s)) }, func() { _ = ws.CloseNow() })
	go func() {
		defer p.finish()
		for {
			_, data, err := ws.Read(t.Context())
			if err != nil {
				return
			}
			p.feed(string(data))
		}
	}()
	return p, nil
}

// listen serves an address and returns how to reach it.
func listen(t *testing.T, g *gateway.Gateway, address string) func(context.Context) (net.Conn, error) {
	t.Helper()
	a, err := transport.ParseAddress(address, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	addr, done, err := g.Listen(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		<-done
	})
	if a.Network == "unix" {
		addr = &net.UnixAddr{Net: "unix", Name: a.Target}
	}
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, addr.Network(), addr.String())
	}
}

func socketPath(t *testing.T) string {
	t.Helper()
	return "unix://" + filepath.Join(t.TempDir(), "s")
}

func mustToken(t *testing.T, sum string) auth.Token {
	t.Helper()
	token, err := auth.TokenFromSHA256(sum)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
