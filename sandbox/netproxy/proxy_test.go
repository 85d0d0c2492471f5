package netproxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/sandbox/netproxy"
)

func (r *rig) httpClient(scheme string) *http.Client {
	u := &url.URL{Scheme: scheme, Host: r.addr}
	tr := &http.Transport{Proxy: http.ProxyURL(u), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(b))
}

func TestOnePortManyProtocols(t *testing.T) {
	r := newRig(t, netproxy.Lists{Allow: []string{"ok.test"}}, nil)
	h := func(w http.ResponseWriter, req *http.Request) { fmt.Fprintf(w, "%s %s", req.Host, req.URL.Path) }
	r.web(80, h)
	r.secure(443, h)
	for _, scheme := range []string{"http", "socks5"} {
		c := r.httpClient(scheme)
		for range 3 {
			if got := get(t, c, "http://ok.test/plain"); got != "200 ok.test /plain" {
				t.Errorf("%s, plain: %q", scheme, got)
			}
			if got := get(t, c, "https://ok.test/secret"); got != "200 ok.test /secret" {
				t.Errorf("%s, TLS: %q", scheme, got)
			}
		}
	}
	var kinds []netproxy.Protocol
	for _, d := range r.decisions {
		if !d.Allowed || d.By != "allow" || d.Host != "ok.test" {
			t.Errorf("decision %+v", d)
		}
		kinds = append(kinds, d.Protocol)
	}
	for _, k := range []netproxy.Protocol{netproxy.ProtocolHTTP, netproxy.ProtocolHTTPS, netproxy.ProtocolSOCKS5} {
		if !slices.Contains(kinds, k) {
			t.Errorf("no decision for %s", k)
		}
	}
	for _, a := range r.dialled {
		if host, _, _ := net.SplitHostPort(a); host != publicIP {
			t.Errorf("dialled %s, not the address that was resolved", a)
		}
	}
}

func TestHeadersOfOneConnection(t *testing.T) {
	r := newRig(t, netproxy.Lists{Allow: []string{"ok.test"}}, nil)
	seen := make(chan http.Header, 1)
	r.web(80, func(w http.ResponseWriter, req *http.Request) {
		seen <- req.Header
		w.Header().Set("Connection", "X-Secret")
		w.Header().Set("X-Secret", "1")
		w.Header().Set("Keep-Alive", "timeout=1")
		w.Header().Set("X-Kept", "1")
	})
	got := r.raw("GET http://ok.test/ HTTP/1.1\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\nConnection: close, X-Hop\r\n" +
		"X-Hop: 1\r\nTe: trailers\r\nX-End: 1\r\n\r\n")
	h := <-seen
	for _, name := range []string{"Proxy-Authorization", "Proxy-Connection", "X-Hop", "Te", "X-Forwarded-For", "User-Agent"} {
		if _, ok := h[name]; ok {
			t.Errorf("the server got %s", name)
		}
	}
	if h.Get("X-End") != "1" {
		t.Error("X-End was lost")
	}
	if strings.Contains(got, "X-Secret") || strings.Contains(got, "timeout=1") || !strings.Contains(got, "X-Kept: 1") {
		t.Errorf("answer %q", got)
	}
}

func TestBodiesAndReuse(t *testing.T) {
	r := newRig(t, netproxy.Lists{Allow: []string{"ok.test"}}, nil)
	r.web(80, func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		w.(http.Flusher).Flush() // unknown length
		fmt.Fprintf(w, "%s:%d", req.Method, len(b))
	})
	c := r.conn()
	br := bufio.NewReader(c)
	for _, row := range []struct{ send, want string }{
		{"POST http://ok.test/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "POST:5"},
		{"POST http://ok.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "POST:3"},
		{"PUT http://ok.test/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", "PUT:2"},
		{"GET http://ok.test/ HTTP/1.1\r\n\r\n", "GET:0"},
		{"GET http://ok.test/ HTTP/1.0\r\n\r\n", "GET:0"},
	} {
		io.WriteString(c, row.send)
		resp, err := http.ReadResponse(br, nil)
		if err == nil && resp.StatusCode == 100 {
			resp, err = http.ReadResponse(br, nil)
		}
		if err != nil {
			t.Fatalf("%q: %v", row.send, err)
		}
		b, _ := io.ReadAll(resp.Body)
		if string(b) != row.want {
			t.Errorf("%q: %q, want %q", row.send, b, row.want)
		}
	}
}

// TestStreamed: a part of a response arrives before the next one is made.
func TestStreamed(t *testing.T) {
	r := newRig(t, netproxy.Lists{Allow: []string{"ok.test"}}, nil)
	next := make(chan struct{})
	r.web(80, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "one\n")
		w.(http.Flusher).Flush()
		<-next
		io.WriteString(w, "two\n")
	})
	resp, err := r.httpClient("http").Get("http://ok.test/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	br := bufio.NewReader(resp.Body)
	if l, err := br.ReadString('\n'); l != "one\n" {
		t.Fatalf("%q, %v", l, err)
	}
	close(next)
	if l, err := br.ReadString('\n'); l != "two\n" {
		t.Fatalf("%q, %v", l, err)
	}
}

func TestWebsocketUpgrade(t *testing.T) {
	r := newRig(t, netproxy.Lists{Allow: []string{"ok.test"}}, nil)
	r.web(80, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Upgrade") != "websocket" {
			return // h2c is not passed on
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		l, _ := rw.ReadString('\n')
		io.WriteString(c, "echo "+l)
	})
	c := r.conn()
	io.WriteString(c, "GET http://ok.test/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v %v", resp, err)
	}
	io.WriteString(c, "hi\n")
	if l, err := br.ReadString('\n'); l != "echo hi\n" {
		t.Errorf("%q, %v", l, err)
	}
	if got := r.raw("GET http://ok.test/ HTTP/1.1\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("h2c: %q", got)
	}
}

// TestServerSpeaksFirst: protocols like SSH work on ports that are listed for them.
func TestServerSpeaksFirst(t *testing.T) {
	r := newRig(t, netproxy.Lists{Allow: []string{"ok.test:22"}}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r.ports[22] = l.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, "SSH-2.0-server\r\n")
				line, _ := bufio.NewReader(c).ReadString('\n')
				io.WriteString(c, "got "+line)
			}()
		}
	}()
	for _, early := range []bool{true, false} {
		c, code := r.socks("ok.test", 22)
		if code != 0 {
			t.Fatalf("reply %d", code)
		}
		br := bufio.NewReader(c)
		if early {
			io.WriteString(c, "SSH-2.0-client\n")
		}
		if s, err := br.ReadString('\n'); s != "SSH-2.0-server\r\n" {
			t.Fatalf("%q, %v", s, err)
		}
		if !early {
			io.WriteString(c, "SSH-2.0-client\n")
		}
		if s, err := br.ReadString('\n'); s != "got SSH-2.0-client\n" {
			t.Fatalf("%q, %v", s, err)
		}
	}
}

func TestListedAddress(t *testing.T) {
	for name, allow := range map[string][]string{"literal": {"in.test", "10.1.2.3"}, "prefix": {"in.test", "10.1.0.0/16"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, netproxy.Lists{Allow: allow}, nil)
			r.names["in.test"] = []string{"10.1.2.3"}
			r.web(80, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "inside") })
			for _, host := range []string{"in.test", "10.1.2.3"} {
				if got := get(t, r.httpClient("http"), "http://"+host+"/"); got != "200 inside" {
					t.Errorf("%s: %q", host, got)
				}
			}
		})
	}
}

func TestDecideFails(t *testing.T) {
	r := newRig(t, netproxy.Lists{}, func(c *netproxy.Config) {
		c.Decide = func(context.Context, netproxy.Request) (netproxy.Verdict, error) {
			return netproxy.Verdict{Allowed: true}, errors.New("link\r\nlost")
		}
	})
	got := r.raw("GET http://ok.test/ HTTP/1.1\r\n\r\n")
	wantRefused(t, got, 403, "blocked-by-policy")
	r.untouched()
}

// TestCloseEndsEverything: Close ends a waiting decision, tunnels and idle connections.
func TestCloseEndsEverything(t *testing.T) {
	asked := make(chan struct{})
	rules, _ := netproxy.NewRules(netproxy.Lists{})
	p, err := netproxy.New(netproxy.Config{Address: rules.Address, Decide: func(ctx context.Context, _ netproxy.Request) (netproxy.Verdict, error) {
		close(asked)
		<-ctx.Done()
		return netproxy.Verdict{}, ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	idle, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "CONNECT a.test:443 HTTP/1.1\r\n\r\n")
	<-asked
	p.Close()
	if err := <-served; !errors.Is(err, netproxy.ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
	if err := p.Serve(l); !errors.Is(err, netproxy.ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
}

func TestRules(t *testing.T) {
	rules, err := netproxy.NewRules(netproxy.Lists{
		Allow: []string{"Example.com.", "*.bücher.example", "git.test:22", "[2606:4700::1]:443", "9.9.9.9", "10.0.0.0/8:5432", "localhost:3000"},
		Deny:  []string{"bad.example.com", "*.bad.test", "10.9.0.0/16", "mixed.test:25"},
		Ports: []uint16{443},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		host string
		port uint16
		want netproxy.Outcome
	}{
		{"example.com", 443, netproxy.Allow}, {"example.com", 80, netproxy.OtherPort}, {"www.example.com", 443, netproxy.Miss},
		{"www.example.com", 80, netproxy.OtherPort}, {"xn--bcher-kva.example", 443, netproxy.Miss}, {"a.b.xn--bcher-kva.example", 443, netproxy.Allow},
		{"git.test", 22, netproxy.Allow}, {"git.test", 443, netproxy.OtherPort}, {"2606:4700::1", 443, netproxy.Allow}, {"9.9.9.9", 443, netproxy.Allow},
		{"10.1.1.1", 5432, netproxy.Allow}, {"10.9.1.1", 5432, netproxy.Deny}, {"bad.example.com", 443, netproxy.Deny}, {"x.bad.test", 1, netproxy.Deny},
		{"notexample.com", 443, netproxy.Miss}, {"mixed.test", 25, netproxy.Deny}, {"mixed.test", 443, netproxy.Miss}, {"localhost", 3000, netproxy.Allow},
	} {
		if got, by := rules.Match(netproxy.Request{Host: row.host, Port: row.port}); got != row.want {
			t.Errorf("%s:%d: %d (%s), want %d", row.host, row.port, got, by, row.want)
		}
	}
	loop := netip.MustParseAddr("127.0.0.1")
	if v := rules.Address(netproxy.Request{Host: "localhost", Port: 3000}, loop); v != netproxy.AddressListed {
		t.Errorf("localhost: %d", v)
	}
	if v := rules.Address(netproxy.Request{Host: "example.com", Port: 443}, loop); v != netproxy.AddressUnlisted {
		t.Errorf("example.com at loopback: %d", v)
	}
	for _, bad := range []string{"", "*", "*.", "a b", "http://x", "x:0", "x:99999", "*.1.2.3.4", "0x7f.1", "::ffff:1.2.3.4", "-a.test", "a..b", "*.*.x"} {
		if _, err := netproxy.NewRules(netproxy.Lists{Allow: []string{bad}}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestIdleTunnelEnds: a tunnel on which nothing moves is ended.
func TestIdleTunnelEnds(t *testing.T) {
	r := newRig(t, netproxy.Lists{Allow: []string{"ok.test"}}, func(c *netproxy.Config) { c.IdleTimeout = 200 * time.Millisecond })
	r.secure(443, func(http.ResponseWriter, *http.Request) {})
	c, _ := r.connect("ok.test:443")
	tc := tls.Client(c, &tls.Config{ServerName: "ok.test", InsecureSkipVerify: true})
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		_, err = io.Copy(io.Discard, c)
		if err != nil {
			t.Errorf("the tunnel did not end: %v", err)
		}
	}
}

// TestConnectionsAreBounded: one more connection than the bound waits for another one's end.
func TestConnectionsAreBounded(t *testing.T) {
	r := newRig(t, netproxy.Lists{Allow: []string{"ok.test"}}, func(c *netproxy.Config) { c.MaxConns = 1 })
	r.web(80, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "page") })
	first := r.conn()
	io.WriteString(first, "GET http://ok.test/ HTTP/1.1\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(first), nil); err != nil {
		t.Fatal(err)
	}
	second := r.conn()
	io.WriteString(second, "GET http://ok.test/ HTTP/1.1\r\nConnection: close\r\n\r\n")
	_ = second.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := second.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Fatal("the second connection was served beside the first one")
	}
	first.Close()
	_ = second.SetReadDeadline(time.Now().Add(5 * time.Second))
	if b, err := io.ReadAll(second); err != nil || !strings.Contains(string(b), "page") {
		t.Errorf("%q, %v", b, err)
	}
}
