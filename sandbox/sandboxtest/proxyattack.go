package sandboxtest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

// proxyAttacks are what a command may try with the proxy of its sandbox.
var proxyAttacks = map[string]func(args []string) error{
	"proxy-raw":   func(a []string) error { return proxyRaw(proxyAddress(), a[0]) },
	"proxy-tls":   func(a []string) error { return proxyTLS(a[0], a[1]) },
	"proxy-socks": func(a []string) error { return proxySocks(a[0]) },
	"proxy-relay": proxyRelay,
}

func proxyAddress() string {
	u, err := url.Parse(os.Getenv("HTTP_PROXY"))
	if err != nil || u.Host == "" {
		return "127.0.0.1:1"
	}
	return u.Host
}

func dialTimed(addr string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	return c, err
}

// proxyRaw sends a request; "~" stands for a NUL byte, which no argument can hold.
func proxyRaw(addr, request string) error {
	c, err := dialTimed(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, strings.ReplaceAll(request, "~", "\x00")); err != nil {
		return err
	}
	return answer(c)
}

func answer(c net.Conn) error {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, resp.Header.Get("x-proxy-error"))
	}
	return nil
}

func proxyTLS(target, name string) error {
	c, err := dialTimed(proxyAddress())
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", target)
	if err := answer(c); err != nil {
		return err
	}
	return tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() //nolint:gosec // reaching the server is the point
}

func proxySocks(target string) error {
	c, err := dialTimed(proxyAddress())
	if err != nil {
		return err
	}
	defer c.Close()
	to, err := netip.ParseAddrPort(target)
	if err != nil {
		return err
	}
	ip := to.Addr().As4()
	msg := append([]byte{5, 1, 0, 5, 1, 0, 1}, ip[:]...)
	if _, err := c.Write(append(msg, byte(to.Port()>>8), byte(to.Port()))); err != nil {
		return err
	}
	var reply [12]byte
	if _, err := io.ReadFull(c, reply[:]); err != nil {
		return err
	}
	if !bytes.Equal(reply[:4], []byte{5, 0, 5, 0}) {
		return fmt.Errorf("reply %d", reply[3])
	}
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", target)
	return answer(c)
}

// proxyRelay goes through a relay of its own, so that the connection comes from another process's socket.
func proxyRelay(a []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := dialTimed(proxyAddress())
		if err != nil {
			in.Close()
			return
		}
		go func() { _, _ = io.Copy(out, in) }()
		_, _ = io.Copy(in, out)
		in.Close()
	}()
	return proxyRaw(l.Addr().String(), a[0])
}
