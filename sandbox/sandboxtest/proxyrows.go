package sandboxtest

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/netproxy"
)

// target is a server on the host that counts the connections it sees.
type target struct {
	addr  string
	conns atomic.Int64
}

func newTarget(e *Env, secure bool, h http.HandlerFunc) *target {
	t := &target{}
	if h == nil {
		h = func(http.ResponseWriter, *http.Request) {}
	}
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateActive { // bytes came in
			t.conns.Add(1)
		}
	}
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.addr = s.Listener.Addr().String()
	e.T.Cleanup(s.Close)
	return t
}

// throughProxy runs the attack tool where the network is proxied and only one server is allowed.
func (e *Env) throughProxy(allow string, args ...string) Output {
	e.T.Helper()
	p := sandbox.Policy{Net: sandbox.NetProxied, Proxy: netproxy.Lists{Deny: []string{"169.254.0.0/16"}}}
	if allow != "" {
		p.Proxy.Allow = []string{allow}
	}
	return e.RunIn(e.Acquire(p), sandbox.Cmd{Argv: append([]string{e.Tool}, args...), Network: sandbox.Network{
		// Every name that is asked for is accepted: what is refused is refused whatever a person says.
		Ask: func(_ context.Context, r netproxy.Request) (netproxy.Verdict, error) {
			return netproxy.Verdict{Allowed: r.Host == "localhost" || strings.HasSuffix(r.Host, ".localhost")}, nil
		},
	}})
}

// proxyTry is a request through the proxy. ALLOWED stands for the address of the server that is listed, OTHER for
// one that is not. It succeeds when the tool says so or when the other server was reached.
func proxyTry(args ...string) func(e *Env) Verdict {
	return func(e *Env) Verdict {
		other := newTarget(e, false, nil)
		allowed := newTarget(e, args[0] == "proxy-tls", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/redirect" {
				http.Redirect(w, r, "http://"+other.addr+"/", http.StatusFound)
			}
		})
		fill := strings.NewReplacer("ALLOWED", allowed.addr, "OTHER", other.addr)
		real := make([]string, len(args))
		for i, a := range args {
			real[i] = fill.Replace(a)
		}
		o := e.throughProxy(allowed.addr, real...)
		if other.conns.Load() > 0 {
			return Allowed
		}
		return succeeded(e, o)
	}
}

// proxyDirect tries something past the proxy.
func proxyDirect(args func(e *Env) []string) func(e *Env) Verdict {
	return func(e *Env) Verdict { return succeeded(e, e.throughProxy("", args(e)...)) }
}

func plainGet(url, host string) string {
	return "GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
}

var proxyRows = []Row{
	{"N14a", "proxy: a listed server", "AA-", proxyTry("proxy-raw", plainGet("http://ALLOWED/", "ALLOWED")), nil},
	{"N14b", "proxy: a listed server by CONNECT", "AA-", proxyTry("proxy-tls", "ALLOWED", ""), nil},
	{"N14c", "proxy: a listed server by SOCKS", "AA-", proxyTry("proxy-socks", "ALLOWED"), nil},
	{"N14d", "proxy: a server that is not listed", "DD-", proxyTry("proxy-raw", plainGet("http://OTHER/", "OTHER")), nil},
	{"N14e", "proxy: the same by CONNECT", "DD-", proxyTry("proxy-raw", "CONNECT OTHER HTTP/1.1\r\n\r\n"), nil},
	{"N14f", "proxy: the same by SOCKS", "DD-", proxyTry("proxy-socks", "OTHER"), nil},
	{"N14g", "proxy: Host is not the URL's host", "DD-", proxyTry("proxy-raw", plainGet("http://ALLOWED/", "OTHER")), nil},
	{"N14h", "proxy: the name in TLS is not that of CONNECT", "DD-", proxyTry("proxy-tls", "ALLOWED", "evil.test"), nil},
	{"N14i", "proxy: a NUL byte in the name", "DD-", proxyTry("proxy-raw", "GET http://evil.test~.localhost/ HTTP/1.1\r\n\r\n"), nil},
	{"N14j", "proxy: an address literal", "DD-", proxyTry("proxy-raw", plainGet("http://10.0.0.1/", "10.0.0.1")), nil},
	{"N14k", "proxy: a decimal address", "DD-", proxyTry("proxy-raw", plainGet("http://2130706433/", "2130706433")), nil},
	{"N14l", "proxy: an octal address", "DD-", proxyTry("proxy-raw", plainGet("http://0177.0.0.1/", "0177.0.0.1")), nil},
	{"N14m", "proxy: an accepted name that leads to loopback", "DD-", proxyTry("proxy-raw", plainGet("http://rebind.localhost/", "rebind.localhost")), nil},
	{"N14n", "proxy: a relay inside", "DD-", proxyTry("proxy-relay", plainGet("http://OTHER/", "OTHER")), nil},
	{"N14o", "proxy: a redirect", "DD-", proxyTry("proxy-raw", plainGet("http://ALLOWED/redirect", "ALLOWED")), nil},
	{"N14p", "proxy: the metadata address", "DD-", proxyTry("proxy-raw", plainGet("http://169.254.169.254/", "169.254.169.254")), nil},
	{"N01p", "the host's loopback past the proxy", "DD-", proxyDirect(func(e *Env) []string {
		return []string{"dial", "tcp", listen(e, "tcp", "127.0.0.1:0")}
	}), nil},
	{"N02p", "the metadata address past the proxy", "DD-", proxyDirect(func(*Env) []string {
		return []string{"dial", "tcp", "169.254.169.254:80"}
	}), nil},
	{"N05p", "a socket on disk past the proxy", "DD-", proxyDirect(func(e *Env) []string {
		return []string{"dial", "unix", listen(e, "unix", freshSocket(e))}
	}), nil},
	{"N11p", "a name server past the proxy", "DD-", proxyDirect(func(*Env) []string { return []string{"dial", "tcp", "8.8.8.8:53"} }), nil},
	{"N12p", "serve and connect on 127.0.0.1 beside the proxy", "AA-", proxyDirect(func(*Env) []string { return []string{"loopback"} }), nil},
	{"L01p", "inherit a descriptor of the proxy", "DD-", func(e *Env) Verdict {
		if e.throughProxy("", "fds").ExitCode == 0 {
			return Denied
		}
		return Allowed
	}, nil},
}
