package netproxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

const (
	portHTTP  = 80
	portHTTPS = 443
)

// unrecognizedName is the TLS alert for a name that is not served here.
var unrecognizedName = []byte{0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 112}

// connect serves an HTTP CONNECT.
func (c *client) connect(req *http.Request) {
	host, port, err := splitTarget(req.RequestURI, 0)
	if err != nil {
		c.fail(malformed("the target of CONNECT cannot be used: %v", err))
		return
	}
	r := Request{Host: host, Port: port, Protocol: ProtocolHTTPS}
	if hosts := req.Header["Host"]; len(hosts) == 1 && hosts[0] != "" {
		if named, _, err := splitTarget(hosts[0], port); err != nil || named != host {
			ref := refuse("host-mismatch", "CONNECT to %s names the host %q", destination(r), hosts[0])
			c.p.reportRefused(r, ref)
			c.fail(ref)
			return
		}
	}
	c.tunnel(r, c.fail, func() error {
		_, err := io.WriteString(c.conn, "HTTP/1.1 200 Connection established\r\n\r\n")
		return err
	})
}

// tunnel decides about a destination, connects to it, and relays what agrees with it.
func (c *client) tunnel(r Request, fail func(*refusal), ready func() error) {
	_ = c.conn.SetReadDeadline(time.Time{})
	if ref := c.p.decide(c.ctx, r); ref != nil {
		fail(ref)
		return
	}
	up, ref := c.p.connect(c.ctx, r)
	if ref != nil {
		c.p.reportRefused(r, ref)
		fail(ref)
		return
	}
	if !c.p.track(up) {
		up.Close()
		return
	}
	defer c.p.untrack(up)
	if err := ready(); err != nil {
		return
	}
	early, kind := c.sniff(r, up)
	switch kind {
	case speaksTLS:
		ref = c.checkHello(r)
	case speaksHTTP:
		up.Close() // each request gets a connection of its own
		c.http(&r)
		return
	case speaksNothing:
		return
	case speaksOther:
		if r.Port == portHTTPS || r.Port == portHTTP {
			ref = refuse("protocol", "a tunnel to %s must carry TLS or HTTP", destination(r))
		}
	}
	if ref != nil {
		c.p.reportRefused(r, ref)
		if kind == speaksTLS {
			_, _ = c.conn.Write(unrecognizedName)
		}
		c.drain()
		return
	}
	if len(early) > 0 {
		if _, err := c.conn.Write(early); err != nil {
			return
		}
	}
	c.relay(up)
}

// spoken is what the client begins a tunnel with.
type spoken uint8

const (
	speaksNothing spoken = iota // it has left
	speaksTLS
	speaksHTTP
	speaksOther // something else, or the server speaks first
)

// sniff waits for the client's first bytes. On ports other than those of the web the server may begin instead; the
// bytes that it sent are returned.
func (c *client) sniff(r Request, up net.Conn) (early []byte, _ spoken) {
	first := make(chan spoken, 1)
	_ = c.conn.SetReadDeadline(time.Now().Add(c.p.cfg.IdleTimeout))
	go func() { first <- c.firstBytes() }()
	if r.Port == portHTTP || r.Port == portHTTPS {
		kind := <-first
		_ = c.conn.SetReadDeadline(time.Time{})
		return nil, kind
	}
	server := make(chan []byte, 1)
	go func() {
		b := make([]byte, 4096)
		n, _ := up.Read(b)
		server <- b[:n]
	}()
	var kind spoken
	select {
	case kind = <-first:
		_ = up.SetReadDeadline(time.Now()) // ends the other one
		early = <-server
	case early = <-server:
		_ = c.conn.SetReadDeadline(time.Now())
		if kind = <-first; kind == speaksNothing {
			kind = speaksOther
		}
	}
	_ = up.SetReadDeadline(time.Time{})
	_ = c.conn.SetReadDeadline(time.Time{})
	return early, kind
}

// firstBytes looks at how the client begins.
func (c *client) firstBytes() spoken {
	for n := 1; ; n++ {
		b, err := c.br.Peek(n)
		switch {
		case err != nil && n == 1:
			return speaksNothing
		case err != nil:
			return speaksOther
		case b[0] == recordHandshake:
			return speaksTLS
		case b[0] == '\r' || b[0] == '\n': // servers skip empty lines before a request
			return speaksHTTP
		case n == 4 && string(b) == "SSH-":
			return speaksOther
		case b[n-1] == ' ' && n > 1:
			return speaksHTTP
		case n > 32 || !isToken(b[n-1]):
			return speaksOther
		}
	}
}

// isToken takes the letters of a method.
func isToken(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("-_!#$%&'*+.^`|~0123456789", c) >= 0
}

// checkHello compares the name in the client's TLS hello with the destination.
func (c *client) checkHello(r Request) *refusal {
	_ = c.conn.SetReadDeadline(time.Now().Add(c.p.cfg.HeaderTimeout))
	defer func() { _ = c.conn.SetReadDeadline(time.Time{}) }()
	name, err := readServerName(c.br)
	if err != nil {
		return refuse("tls-hello", "the TLS hello for %s cannot be read: %v", destination(r), err)
	}
	if name == "" {
		if isLiteral(r.Host) {
			return nil
		}
		return refuse("sni-missing", "TLS to %s does not name the host", destination(r))
	}
	if got, err := Normalize(name); err != nil || got != r.Host {
		return refuse("sni-mismatch", "TLS to %s names the host %q", destination(r), name)
	}
	return nil
}

// relay copies both ways until both have ended or nothing moves for the idle time.
func (c *client) relay(up io.ReadWriteCloser) {
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	idle := time.NewTicker(max(c.p.cfg.IdleTimeout/4, time.Millisecond))
	defer idle.Stop()
	done := make(chan struct{}, 2)
	copyTo := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(activity{to, &last}, from)
		if w, ok := to.(interface{ CloseWrite() error }); !ok || w.CloseWrite() != nil {
			up.Close()
			c.conn.Close()
		}
		done <- struct{}{}
	}
	go copyTo(up, c.br)
	go copyTo(c.conn, up)
	for left := 2; left > 0; {
		select {
		case <-done:
			left--
		case <-c.ctx.Done():
			up.Close()
			c.conn.Close()
			for ; left > 0; left-- {
				<-done
			}
		case <-idle.C:
			if time.Since(time.Unix(0, last.Load())) > c.p.cfg.IdleTimeout {
				up.Close()
				c.conn.Close()
			}
		}
	}
	up.Close()
}

// activity notes the time of each write.
type activity struct {
	io.Writer
	last *atomic.Int64
}

func (a activity) Write(b []byte) (int, error) {
	a.last.Store(time.Now().UnixNano())
	n, err := a.Writer.Write(b)
	a.last.Store(time.Now().UnixNano())
	return n, err
}

var errTooLong = errors.New("too long")
