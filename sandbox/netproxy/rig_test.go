package netproxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/sandbox/netproxy"
)

const publicIP = "93.184.216.34"

// rig is a proxy before real local servers. Names resolve as the test says; a dial to the public address reaches
// the local server of that port.
type rig struct {
	t         *testing.T
	addr      string
	names     map[string][]string
	ports     map[uint16]string // dialled port: local address
	mu        sync.Mutex
	decisions []netproxy.Decision
	dialled   []string
	resolved  []string
}

func newRig(t *testing.T, lists netproxy.Lists, change func(*netproxy.Config)) *rig {
	t.Helper()
	rules, err := netproxy.NewRules(lists)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, names: map[string][]string{"ok.test": {publicIP}, "evil.test": {publicIP}}, ports: map[uint16]string{}}
	cfg := netproxy.Config{
		Decide: func(_ context.Context, q netproxy.Request) (netproxy.Verdict, error) {
			v, ok := rules.Verdict(q)
			if !ok {
				v.By = "miss"
			}
			return v, nil
		},
		Address:       rules.Address,
		Decided:       func(d netproxy.Decision) { r.mu.Lock(); r.decisions = append(r.decisions, d); r.mu.Unlock() },
		Resolver:      r,
		Dial:          r.dial,
		HeaderTimeout: 5 * time.Second,
		IdleTimeout:   20 * time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	p, err := netproxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		p.Close()
		if err := <-served; !errors.Is(err, netproxy.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	r.addr = l.Addr().String()
	return r
}

func (r *rig) Resolve(_ context.Context, host string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resolved = append(r.resolved, host)
	var out []netip.Addr
	for _, s := range r.names[host] {
		out = append(out, netip.MustParseAddr(s))
	}
	if out == nil {
		return nil, fmt.Errorf("no such host")
	}
	return out, nil
}

func (r *rig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ap := netip.MustParseAddrPort(address)
	r.mu.Lock()
	r.dialled = append(r.dialled, address)
	local := r.ports[ap.Port()]
	r.mu.Unlock()
	if local == "" {
		return nil, fmt.Errorf("connection refused")
	}
	var d net.Dialer
	return d.DialContext(ctx, network, local)
}

func (r *rig) untouched() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.dialled) > 0 {
		r.t.Errorf("the proxy dialled %v", r.dialled)
	}
}

// last returns the newest decision.
func (r *rig) last() netproxy.Decision {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.decisions) == 0 {
		r.t.Fatal("no decision was reported")
	}
	return r.decisions[len(r.decisions)-1]
}

// web starts a plain HTTP server that is reached at a port.
func (r *rig) web(port uint16, h http.HandlerFunc) {
	s := httptest.NewServer(h)
	r.t.Cleanup(s.Close)
	r.ports[port] = s.Listener.Addr().String()
}

func (r *rig) secure(port uint16, h http.HandlerFunc) {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	r.t.Cleanup(s.Close)
	r.ports[port] = s.Listener.Addr().String()
}

func (r *rig) conn() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// raw sends bytes and returns everything until the proxy closes.
func (r *rig) raw(send string) string {
	r.t.Helper()
	c := r.conn()
	if _, err := io.WriteString(c, send); err != nil {
		r.t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		r.t.Fatalf("read: %v after %q", err, got)
	}
	return string(got)
}

// connect opens a tunnel by CONNECT and returns it with the status line.
func (r *rig) connect(target string) (net.Conn, *http.Response) {
	r.t.Helper()
	c := r.conn()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, &http.Request{Method: "CONNECT"})
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode == 200 && br.Buffered() > 0 {
		r.t.Fatalf("%d bytes came with the answer to CONNECT", br.Buffered())
	}
	return c, resp
}

func (r *rig) tlsTo(target, name string) error {
	r.t.Helper()
	c, resp := r.connect(target)
	if resp.StatusCode != 200 {
		r.t.Fatalf("CONNECT %s: %s", target, resp.Status)
	}
	return tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
}

// socks asks for a destination and returns the reply code.
func (r *rig) socks(host string, port uint16) (net.Conn, byte) {
	r.t.Helper()
	c := r.conn()
	msg := []byte{5, 1, 0, 5, 1, 0}
	if a, err := netip.ParseAddr(host); err == nil {
		kind := byte(1)
		if a.Is6() {
			kind = 4
		}
		msg = append(append(msg, kind), a.AsSlice()...)
	} else {
		msg = append(append(msg, 3, byte(len(host))), host...)
	}
	msg = append(msg, byte(port>>8), byte(port))
	if _, err := c.Write(msg); err != nil {
		r.t.Fatal(err)
	}
	var reply [12]byte
	if _, err := io.ReadFull(c, reply[:]); err != nil {
		r.t.Fatal(err)
	}
	return c, reply[3]
}

func wantRefused(t *testing.T, got string, status int, kind string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil)
	if err != nil {
		t.Fatalf("answer %q: %v", got, err)
	}
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != status || resp.Header.Get("x-proxy-error") != kind || !strings.HasPrefix(string(body), "heddle: ") ||
		strings.Count(string(body), "\n") != 1 {
		t.Errorf("answer %d %q %q, want %d %q and one clear line", resp.StatusCode, resp.Header.Get("x-proxy-error"), body, status, kind)
	}
}
