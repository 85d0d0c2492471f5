package netproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// hopByHop are the header fields of one connection, which are not passed on.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// http serves requests until the client or a request ends the connection. Inside a tunnel dest is what the tunnel
// was allowed for, and every request must be for it.
func (c *client) http(dest *Request) {
	for {
		req, ref, err := c.readRequest()
		if err != nil {
			return
		}
		if ref != nil {
			c.fail(ref)
			return
		}
		if req.Method == http.MethodConnect && dest == nil {
			c.connect(req)
			return
		}
		r, ref := target(req, dest)
		if ref != nil {
			if r.Host != "" {
				c.p.reportRefused(r, ref)
			}
			c.fail(ref)
			return
		}
		if dest == nil {
			if ref := c.p.decide(c.ctx, r); ref != nil {
				c.fail(ref)
				return
			}
		}
		if !c.forward(req, r) {
			return
		}
	}
}

// readRequest reads the next request's head. An error means that there is none.
func (c *client) readRequest() (*http.Request, *refusal, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(c.p.cfg.IdleTimeout))
	if _, err := c.br.Peek(1); err != nil {
		return nil, nil, err
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(c.p.cfg.HeaderTimeout))
	head, ref, err := c.peekHead()
	if ref != nil || err != nil {
		return nil, ref, err
	}
	// The parser forgets a Host field beside an absolute target: look at the fields themselves first.
	fields := textproto.NewReader(bufio.NewReader(bytes.NewReader(head)))
	if _, err := fields.ReadLine(); err != nil {
		return nil, malformed("the request line cannot be read"), nil
	}
	header, err := fields.ReadMIMEHeader()
	if err != nil {
		return nil, malformed("the header cannot be read: %v", err), nil
	}
	req, err := http.ReadRequest(c.br)
	if err != nil {
		return nil, malformed("the request cannot be read: %v", err), nil
	}
	if len(header["Host"]) > 1 {
		return nil, malformed("the request has %d Host fields", len(header["Host"])), nil
	}
	req.Header["Host"] = header["Host"]
	if req.ProtoMajor != 1 {
		return nil, malformed("HTTP version %d is not supported here", req.ProtoMajor), nil
	}
	_ = c.conn.SetReadDeadline(time.Time{})
	return req, nil, nil
}

// peekHead waits for a whole head and returns it without consuming it.
func (c *client) peekHead() ([]byte, *refusal, error) {
	for n := 1; ; {
		if _, err := c.br.Peek(n); err != nil {
			return nil, nil, err
		}
		b, _ := c.br.Peek(c.br.Buffered())
		if end := headEnd(b); end > 0 {
			return b[:end], nil, nil
		}
		if len(b) >= maxHeader {
			r := malformed("the request's header is longer than %d bytes", maxHeader)
			r.code = http.StatusRequestHeaderFieldsTooLarge
			return nil, r, nil
		}
		n = len(b) + 1
	}
}

// headEnd is the length up to and with the first empty line, 0 when there is none.
func headEnd(b []byte) int {
	for i := 0; ; {
		nl := bytes.IndexByte(b[i:], '\n')
		if nl < 0 {
			return 0
		}
		i += nl + 1
		if rest := b[i:]; len(rest) > 0 && rest[0] == '\n' {
			return i + 1
		} else if len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n' {
			return i + 2
		}
	}
}

// target finds what a request is for and checks that all it says agrees. With a refusal, the destination is set
// if it was found.
func target(req *http.Request, dest *Request) (Request, *refusal) {
	hosts := req.Header["Host"]
	delete(req.Header, "Host")
	if dest != nil {
		return tunnelled(req, hosts, *dest)
	}
	u := req.URL
	if u.Scheme == "" || u.Host == "" {
		return Request{}, malformed("this is a proxy: the request needs an absolute URL")
	}
	if u.Scheme != "http" {
		return Request{}, malformed("the scheme %q is not supported; use CONNECT", u.Scheme)
	}
	if u.User != nil {
		return Request{}, malformed("the URL contains credentials")
	}
	host, port, err := splitTarget(u.Host, 80)
	if err != nil {
		return Request{}, malformed("the URL cannot be used: %v", err)
	}
	r := Request{Host: host, Port: port, Protocol: ProtocolHTTP}
	if len(hosts) == 1 && hosts[0] != "" {
		if ref := sameHost(hosts[0], r); ref != nil {
			return r, ref
		}
	}
	return r, nil
}

func tunnelled(req *http.Request, hosts []string, dest Request) (Request, *refusal) {
	if req.Method == http.MethodConnect || req.Method == "PRI" || req.URL.Scheme != "" && req.URL.Scheme != "http" {
		return dest, refuse("not-http", "a tunnel to %s may carry plain HTTP/1 requests only", destination(dest))
	}
	if len(hosts) != 1 {
		return dest, refuse("host-mismatch", "a request in the tunnel to %s has no Host field", destination(dest))
	}
	if req.URL.Host != "" {
		if ref := sameHost(req.URL.Host, dest); ref != nil {
			return dest, ref
		}
	}
	return dest, sameHost(hosts[0], dest)
}

// sameHost compares a Host field with the destination.
func sameHost(field string, r Request) *refusal {
	host, port, err := splitTarget(field, 80)
	if err == nil && host == r.Host && (port == r.Port || !strings.Contains(field, ":")) {
		return nil
	}
	return refuse("host-mismatch", "the request for %s names the host %q", destination(r), field)
}

// forward passes one request of a decided destination on and its response back. It reports whether the connection can serve another one.
func (c *client) forward(req *http.Request, r Request) bool {
	upgrade := upgradeOf(req.Header)
	reuse := !req.Close
	out := req.Clone(c.ctx)
	stripHops(out.Header)
	if upgrade != "" {
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", upgrade)
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // else the transport adds its own
	}
	out.RequestURI, out.Close, out.TransferEncoding = "", false, nil
	out.URL.Scheme, out.URL.Host, out.URL.User = "http", destination(r), nil
	out.Host = hostField(r)
	body := c.requestBody(req, out)
	resp, err := c.p.up.RoundTrip(out)
	body.answered()
	if err != nil {
		c.refuseUpstream(r, err)
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		c.switched(resp, upgrade)
		return false
	}
	if c.respond(req, resp, reuse) != nil {
		return false
	}
	return reuse && body.consumed() && resp.ProtoAtLeast(1, 0)
}

func (c *client) refuseUpstream(r Request, err error) {
	var ref *refusal
	if !errors.As(err, &ref) {
		ref = unreachable("the request to %s failed: %v", destination(r), err)
	}
	c.p.reportRefused(r, ref)
	c.fail(ref)
}

// hostField is the Host that is sent: the port is left out where it is the usual one.
func hostField(r Request) string {
	if r.Port != 80 {
		return destination(r)
	}
	if strings.Contains(r.Host, ":") {
		return "[" + r.Host + "]"
	}
	return r.Host
}

// stripHops removes the fields of one connection, those that Connection names included.
func stripHops(h http.Header) {
	for _, list := range h["Connection"] {
		for f := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(f))
		}
	}
	for _, f := range hopByHop {
		h.Del(f)
	}
	h.Del("Expect") // answered here
}

// upgradeOf returns the protocol that a request or response switches to. HTTP/2 without TLS could name any host
// afterwards, so it is not passed on.
func upgradeOf(h http.Header) string {
	for _, list := range h["Connection"] {
		for f := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(f), "upgrade") && strings.EqualFold(h.Get("Upgrade"), "websocket") {
				return h.Get("Upgrade")
			}
		}
	}
	return ""
}

// respond writes the response. Every part is sent on before the next one is waited for.
func (c *client) respond(req *http.Request, resp *http.Response, reuse bool) error {
	stripHops(resp.Header)
	w := bufio.NewWriter(idleConn{c.conn, c.p.cfg.IdleTimeout})
	resp.Body = &flushing{ReadCloser: resp.Body, w: w}
	resp.Proto, resp.ProtoMajor, resp.ProtoMinor = "HTTP/1.1", 1, 1
	resp.Request, resp.Close, resp.Uncompressed = req, !reuse, false
	resp.TransferEncoding = nil
	if resp.ContentLength < 0 {
		if req.ProtoAtLeast(1, 1) {
			resp.TransferEncoding = []string{"chunked"}
		} else {
			resp.Close = true
		}
	}
	// The writer's own ReadFrom would not stand the flushes in between.
	if err := resp.Write(struct{ io.Writer }{w}); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if resp.Close {
		return io.EOF
	}
	return nil
}

// flushing sends on what was written before it waits for more.
type flushing struct {
	io.ReadCloser
	w *bufio.Writer
}

func (f *flushing) Read(b []byte) (int, error) {
	if err := f.w.Flush(); err != nil {
		return 0, err
	}
	return f.ReadCloser.Read(b)
}

// requestBody is a request's body on its way. It answers "Expect: 100-continue" when the body is first wanted.
type requestBody struct {
	io.ReadCloser
	c *client

	mu     sync.Mutex
	expect bool // a 100 is still owed
	done   bool // the final response has begun
	eof    atomic.Bool
}

func (c *client) requestBody(req, out *http.Request) *requestBody {
	b := &requestBody{ReadCloser: req.Body, c: c, expect: strings.EqualFold(req.Header.Get("Expect"), "100-continue")}
	if req.Body == nil || req.Body == http.NoBody || req.ContentLength == 0 {
		b.eof.Store(true)
		out.Body = nil
		return b
	}
	out.Body = b
	return b
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.expect && !b.done {
		b.expect = false
		_, _ = io.WriteString(b.c.conn, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	b.mu.Unlock()
	_ = b.c.conn.SetReadDeadline(time.Now().Add(b.c.p.cfg.IdleTimeout))
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.eof.Store(true)
	}
	return n, err
}

// Close leaves the rest unread: the connection ends then.
func (b *requestBody) Close() error { return nil }

func (b *requestBody) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = true
}

// consumed reports whether the next request begins right behind.
func (b *requestBody) consumed() bool { return b.eof.Load() }

// switched relays after a response that changes the protocol.
func (c *client) switched(resp *http.Response, asked string) {
	up, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || asked == "" || !strings.EqualFold(resp.Header.Get("Upgrade"), asked) {
		c.fail(unreachable("the server changed to a protocol that was not asked for"))
		return
	}
	stripped := resp.Header.Clone()
	stripHops(stripped)
	var head bytes.Buffer
	fmt.Fprintf(&head, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n", asked)
	_ = stripped.Write(&head)
	head.WriteString("\r\n")
	if _, err := c.conn.Write(head.Bytes()); err != nil {
		return
	}
	c.relay(up)
}

// fail tells a client why it is refused; the connection ends with it.
func (c *client) fail(r *refusal) {
	reason := oneLine(r.reason)
	body := "heddle: " + reason + "\n"
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.p.cfg.HeaderTimeout))
	fmt.Fprintf(c.conn, "HTTP/1.1 %d %s\r\nX-Proxy-Error: %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		r.code, http.StatusText(r.code), r.kind, len(body), body)
	c.drain()
}

// drain reads what the client still sends for a moment: closing with unread bytes would take the answer away.
func (c *client) drain() {
	if w, ok := c.conn.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	_, _ = io.CopyN(io.Discard, c.br, 256<<10)
}

// oneLine keeps foreign text from forging lines.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}
