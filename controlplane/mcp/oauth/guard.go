package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

const (
	// maxAnswer bounds an answer of a login's servers, in bytes.
	maxAnswer   = 1 << 20
	askTimeout  = 30 * time.Second
	maxRedirect = 5
)

// guarded is the HTTP client for what the metadata of a server at a URL points
// to.
func guarded(server string) *http.Client {
	local := isLocal(server)
	transport := func(check func(network, address string, c syscall.RawConn) error, proxy func(*http.Request) (*url.URL, error)) http.RoundTripper {
		dialer := &net.Dialer{Timeout: 10 * time.Second, Control: check}
		return &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, Proxy: proxy}
	}
	g := &guard{local: local, direct: transport(nil, nil), proxied: transport(nil, http.ProxyFromEnvironment)}
	if !local {
		g.direct = transport(refusePrivate, nil)
	}
	return &http.Client{
		Timeout: askTimeout, Transport: g,
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirect {
				return errors.New("too many redirects")
			}
			return nil
		},
	}
}

// isLocal reports whether a server is on this machine or in a private network:
// then so may be what authorises it.
func isLocal(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := u.Hostname()
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && !public(addr)
}

func public(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && !a.IsPrivate() && !a.IsLoopback() && !a.IsLinkLocalUnicast() &&
		!netip.MustParsePrefix("100.64.0.0/10").Contains(a)
}

// refusePrivate keeps a public server's metadata from leading to this machine or
// its network. It looks at the address that is connected to, so that no name can
// be changed behind its back.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	if !public(ap.Addr()) {
		return fmt.Errorf("the server's metadata leads to %s, which is not a public address", ap.Addr())
	}
	return nil
}

// guard lets only protected requests through and bounds answers.
type guard struct {
	local bool
	// direct looks at addresses; what goes through the user's proxy is the proxy's
	// to decide.
	direct, proxied http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && (!g.local || r.URL.Scheme != "http" || !isLocal(r.URL.String())) {
		return nil, fmt.Errorf("%s://%s is not protected by TLS", r.URL.Scheme, r.URL.Host)
	}
	next := g.direct
	if proxy, err := http.ProxyFromEnvironment(r); err == nil && proxy != nil {
		next = g.proxied
	}
	resp, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = limited(resp.Body)
	return resp, nil
}

// openable reports whether a person's browser may be sent to a URL.
func openable(raw string, local bool) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && local && isLocal(raw))
}

// probe asks the server as a client without a login would, and returns the
// refusal that says how to log in.
func probe(ctx context.Context, server string, headers map[string]string) (*http.Request, *http.Response, error) {
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"heddle","version":"1"}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server, strings.NewReader(hello))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	// Headers of the config are for this server alone.
	client := &http.Client{Timeout: askTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the server: %w", err)
	}
	if resp.StatusCode != http.StatusUnauthorized {
		_ = resp.Body.Close()
		return nil, nil, fmt.Errorf("the server asks for no login (HTTP %d)", resp.StatusCode)
	}
	resp.Body = limited(resp.Body)
	return req, resp, nil
}

func limited(body io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(body, maxAnswer), body}
}
