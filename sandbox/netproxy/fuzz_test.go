package netproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// FuzzNormalize: what is taken is in its one form, is no hidden address, and stays what it is.
func FuzzNormalize(f *testing.F) {
	for _, s := range []string{"Example.COM.", "127.1", "0x7f.0.0.1", "::1", "[::1]", "bücher.example", "a\x00b", "１.2.3.4", "xn--a", "1.2.3.4."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := Normalize(s)
		if err != nil {
			return
		}
		if again, err := Normalize(n); err != nil || again != n {
			t.Fatalf("%q: %q, then %q, %v", s, n, again, err)
		}
		if strings.ContainsAny(n, "\x00 /@\\%?#") || strings.ToLower(n) != n {
			t.Fatalf("%q: %q", s, n)
		}
		if a, err := netip.ParseAddr(n); err == nil && (a.Is4In6() || a.Zone() != "") {
			t.Fatalf("%q: %q", s, n)
		}
		if _, err := netip.ParseAddr(n); err != nil && strings.Trim(n, "0123456789.") == "" {
			t.Fatalf("%q: number %q taken for a name", s, n)
		}
	})
}

// clientHello records what a real client begins with.
func clientHello(tb testing.TB, name string) []byte {
	tb.Helper()
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		_ = tls.Client(b, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).Handshake()
		b.Close()
	}()
	buf := make([]byte, 8192)
	n, err := a.Read(buf)
	if err != nil {
		tb.Fatal(err)
	}
	return buf[:n]
}

func serverNameOf(b []byte) (string, error) {
	return readServerName(bufio.NewReaderSize(bytes.NewReader(b), maxHeader))
}

// resplit spreads a hello over records of the given size.
func resplit(hello []byte, size int) []byte {
	var out []byte
	for msg := hello[recordHeader:]; len(msg) > 0; {
		n := min(size, len(msg))
		out = append(append(out, recordHandshake, 3, 1, byte(n>>8), byte(n)), msg[:n]...)
		msg = msg[n:]
	}
	return out
}

func TestServerName(t *testing.T) {
	hello := clientHello(t, "ok.test")
	for _, size := range []int{1, 3, 100, len(hello)} {
		if name, err := serverNameOf(resplit(hello, size)); name != "ok.test" || err != nil {
			t.Errorf("records of %d bytes: %q, %v", size, name, err)
		}
	}
	if name, err := serverNameOf(clientHello(t, "")); name != "" || err != nil {
		t.Errorf("without a name: %q, %v", name, err)
	}
	for n := range len(hello) {
		if _, err := serverNameOf(hello[:n]); err == nil {
			t.Fatalf("the first %d bytes were taken", n)
		}
	}
}

// FuzzServerName: a name that is read stands in the bytes.
func FuzzServerName(f *testing.F) {
	hello := clientHello(f, "ok.test")
	f.Add(hello[recordHeader:], 7)
	f.Add(clientHello(f, "")[recordHeader:], 1000)
	f.Fuzz(func(t *testing.T, msg []byte, size int) {
		if size < 1 || size > maxRecord {
			return
		}
		whole := append(make([]byte, recordHeader), msg...)
		if name, err := serverNameOf(resplit(whole, size)); err == nil && !bytes.Contains(msg, []byte(name)) {
			t.Fatalf("read %q", name)
		}
	})
}

// TestServerNameAsOthersRead: what changed bytes come to is refused or read as crypto/tls reads it.
func TestServerNameAsOthersRead(t *testing.T) {
	hello := clientHello(t, "ok.test")
	taken := 0
	for at := recordHeader; at < len(hello); at++ {
		for _, bit := range []byte{0x01, 0x80} {
			b := bytes.Clone(hello)
			b[at] ^= bit
			name, err := serverNameOf(b)
			if err != nil {
				continue
			}
			seen, got := tlsServerName(b)
			if seen {
				taken++
			}
			if seen && got != name {
				t.Errorf("byte %d: read %q, crypto/tls %q", at, name, got)
			}
		}
	}
	if taken < len(hello)/2 {
		t.Errorf("only %d changed hellos were compared", taken)
	}
}

var errStop = errors.New("stop")

func tlsServerName(b []byte) (seen bool, name string) {
	c := &replay{r: bytes.NewReader(b)}
	cfg := &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		seen, name = true, h.ServerName
		return nil, errStop
	}}
	_ = tls.Server(c, cfg).HandshakeContext(context.Background())
	return seen, name
}

type replay struct {
	net.Conn
	r *bytes.Reader
}

func (r *replay) Read(b []byte) (int, error)  { return r.r.Read(b) }
func (r *replay) Write(b []byte) (int, error) { return len(b), nil }
func (r *replay) Close() error                { return nil }

// FuzzTarget: a plain request that is taken names one host everywhere.
func FuzzTarget(f *testing.F) {
	f.Add([]byte("GET http://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n"))
	f.Add([]byte("GET http://ok.test:80/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"))
	f.Add([]byte("GET http://a@ok.test/ HTTP/1.1\nhost:x\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		p, err := New(Config{Decide: func(context.Context, Request) (Verdict, error) { return Verdict{}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		c := &client{p: p, conn: ours, br: bufio.NewReaderSize(bytes.NewReader(b), maxHeader)}
		req, ref, err := c.readRequest()
		if err != nil || ref != nil {
			return
		}
		hosts := req.Header["Host"]
		r, ref := target(req, nil)
		if ref != nil {
			return
		}
		if n, err := Normalize(r.Host); err != nil || n != r.Host || r.Port == 0 {
			t.Fatalf("%q: target %+v", b, r)
		}
		if len(hosts) == 1 && hosts[0] != "" {
			if h, _, err := splitTarget(hosts[0], 80); err != nil || h != r.Host {
				t.Fatalf("%q: host %q, target %+v", b, hosts[0], r)
			}
		}
		if _, ok := req.Header["Host"]; ok || req.Method == http.MethodConnect && req.URL.Scheme == "" {
			t.Fatalf("%q: %+v", b, req)
		}
	})
}
