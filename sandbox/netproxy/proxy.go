// Package netproxy is the way out of a sandbox whose network is "proxied": an HTTP, CONNECT and SOCKS5h proxy on
// one listener that decides about each destination.
//
// Guarantees:
//
//   - Every request and every tunnel is decided by its destination, never by its connection or source.
//   - A name is resolved once, by the proxy, and only after it was allowed; the addresses that were checked are
//     the ones that are dialled. Loopback, link-local, private, shared and multicast addresses are refused
//     unless Config.Address says otherwise.
//   - What a tunnel carries must match what was asked for: TLS must name the host of CONNECT, plain HTTP inside
//     a tunnel is checked request by request.
//   - Redirects are passed back, never followed. Connections, header sizes and idle times are bounded.
//
// A Proxy may serve several listeners; all its methods may be called concurrently.
package netproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Protocol is how a destination was asked for, in the words of approvals.
type Protocol string

const (
	ProtocolHTTP   Protocol = "http"      // a request in absolute form
	ProtocolHTTPS  Protocol = "https"     // CONNECT
	ProtocolSOCKS5 Protocol = "socks5Tcp" // SOCKS 5
)

// Request is one destination that something in the sandbox asks for.
type Request struct {
	// Host is a normalised name (lower case, no trailing dot, ASCII) or an address literal.
	Host     string
	Port     uint16
	Protocol Protocol
}

// Verdict answers a Request.
type Verdict struct {
	Allowed bool
	// By names what decided: "allow", "deny", "port", "miss", "client" and so on.
	By string
	// Reason is told to the command after a refusal; empty means a general one.
	Reason string
}

// Decision is what became of one Request, also where the proxy itself refused it.
type Decision struct {
	Request
	Verdict
}

// AddressVerdict is what configuration says about one address.
type AddressVerdict uint8

const (
	// AddressUnlisted addresses are dialled when they are public.
	AddressUnlisted AddressVerdict = iota
	// AddressListed ones are dialled whatever they are.
	AddressListed
	// AddressDenied ones are never dialled.
	AddressDenied
)

// Resolver finds the addresses of a normalised name.
type Resolver interface {
	Resolve(ctx context.Context, host string) ([]netip.Addr, error)
}

// Config of a Proxy. Decide is needed; every other zero value has a default.
type Config struct {
	// Decide says whether a destination may be reached. It may wait for a person; ctx ends with the proxy. An error refuses the request.
	Decide func(ctx context.Context, r Request) (Verdict, error)
	// Address says what is configured for a resolved address of an allowed request. Nil lists none.
	Address func(r Request, a netip.Addr) AddressVerdict
	// Decided is told of each decision, before the client is. It must not block for long.
	Decided func(Decision)
	// Resolver resolves names; nil means the system's.
	Resolver Resolver
	// Dial opens a connection to a checked address; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxConns bounds the client connections at a time; more wait. 0 means 256.
	MaxConns int
	// HeaderTimeout bounds reading a request's head or a TLS hello; 0 means 30 s.
	HeaderTimeout time.Duration
	// IdleTimeout ends connections on which nothing moves; 0 means 10 min.
	IdleTimeout time.Duration
	// DialTimeout bounds each attempt to connect; 0 means 15 s.
	DialTimeout time.Duration
}

const (
	// maxHeader bounds a request's head and what is looked at of a TLS hello.
	maxHeader       = 32 << 10
	defaultConns    = 256
	maxAddresses    = 4 // tried per connection
	upstreamPerHost = 8
)

// Proxy serves clients.
type Proxy struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	slots  chan struct{}
	up     *http.Transport

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	listen map[net.Listener]struct{}
	closed bool
	wg     sync.WaitGroup
}

// ErrClosed is returned by Serve after Close.
var ErrClosed = errors.New("proxy is closed")

// New returns a Proxy that serves nothing yet.
func New(cfg Config) (*Proxy, error) {
	if cfg.Decide == nil {
		return nil, errors.New("netproxy config: Decide is needed")
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = defaultConns
	}
	for d, v := range map[*time.Duration]time.Duration{&cfg.HeaderTimeout: 30 * time.Second, &cfg.IdleTimeout: 10 * time.Minute, &cfg.DialTimeout: 15 * time.Second} {
		if *d <= 0 {
			*d = v
		}
	}
	if cfg.Resolver == nil {
		cfg.Resolver = systemResolver{}
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	p := &Proxy{cfg: cfg, slots: make(chan struct{}, cfg.MaxConns), open: map[net.Conn]struct{}{}, listen: map[net.Listener]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.up = &http.Transport{
		DialContext:            p.dialUpstream,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    upstreamPerHost,
		IdleConnTimeout:        30 * time.Second,
		ResponseHeaderTimeout:  cfg.IdleTimeout,
		MaxResponseHeaderBytes: 256 << 10,
	}
	return p, nil
}

// Serve accepts on l until Close, which it reports as ErrClosed, or until accepting fails. It closes l.
func (p *Proxy) Serve(l net.Listener) error {
	defer l.Close()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.listen[l] = struct{}{}
	p.wg.Add(1)
	p.mu.Unlock()
	defer p.wg.Done()
	for {
		select {
		case p.slots <- struct{}{}:
		case <-p.ctx.Done():
			return ErrClosed
		}
		c, err := l.Accept()
		if err != nil {
			<-p.slots
			if p.ctx.Err() != nil {
				return ErrClosed
			}
			return fmt.Errorf("accept: %w", err)
		}
		if !p.track(c) {
			c.Close()
			<-p.slots
			return ErrClosed
		}
		go func() {
			defer func() { <-p.slots }()
			defer p.untrack(c)
			p.serveConn(c)
		}()
	}
}

// Close ends every connection and waits until nothing is served any more.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	for l := range p.listen {
		l.Close()
	}
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	p.up.CloseIdleConnections()
	return nil
}

// track makes Close end a connection and wait for its server.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.open[c] = struct{}{}
	p.wg.Add(1)
	return true
}

func (p *Proxy) untrack(c net.Conn) {
	c.Close()
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
	p.wg.Done()
}

// client is one connection from the sandbox.
type client struct {
	p    *Proxy
	conn net.Conn
	br   *bufio.Reader
	ctx  context.Context
}

// serveConn finds out which protocol the client speaks.
func (p *Proxy) serveConn(conn net.Conn) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	c := &client{p: p, conn: conn, br: bufio.NewReaderSize(conn, maxHeader), ctx: ctx}
	_ = conn.SetReadDeadline(time.Now().Add(p.cfg.HeaderTimeout))
	first, err := c.br.Peek(1)
	if err != nil {
		return
	}
	if first[0] == socksVersion {
		c.socks()
		return
	}
	c.http(nil)
}

// refusal says why a destination is not reached. It is also what the client is told.
type refusal struct {
	code   int    // HTTP status
	socks  byte   // SOCKS reply
	kind   string // for x-proxy-error
	reason string
}

func (r *refusal) Error() string { return r.reason }

func refuse(kind, format string, args ...any) *refusal {
	return &refusal{code: http.StatusForbidden, socks: socksNotAllowed, kind: kind, reason: fmt.Sprintf(format, args...)}
}

func malformed(format string, args ...any) *refusal {
	return &refusal{code: http.StatusBadRequest, socks: socksFailure, kind: "bad-request", reason: fmt.Sprintf(format, args...)}
}

func unreachable(format string, args ...any) *refusal {
	return &refusal{code: http.StatusBadGateway, socks: socksUnreachable, kind: "unreachable", reason: fmt.Sprintf(format, args...)}
}

// decide asks for a verdict and reports it. A refusal by a later check is reported in addition. An address that
// would be refused whatever is decided is not asked about.
func (p *Proxy) decide(ctx context.Context, r Request) *refusal {
	if a, err := netip.ParseAddr(r.Host); err == nil {
		if ref := p.checkAddress(r, a); ref != nil {
			p.reportRefused(r, ref)
			return ref
		}
	}
	v, err := p.cfg.Decide(ctx, r)
	if err != nil {
		v = Verdict{By: "error", Reason: "the decision about it failed: " + err.Error()}
	}
	if v.By == "" {
		v.By = "policy"
	}
	p.report(r, v)
	if v.Allowed {
		return nil
	}
	reason := v.Reason
	if reason == "" {
		reason = "it is not on the sandbox's list of allowed hosts"
	}
	return refuse("blocked-by-policy", "access to %s is blocked: %s", destination(r), reason)
}

func (p *Proxy) report(r Request, v Verdict) {
	if p.cfg.Decided != nil {
		p.cfg.Decided(Decision{Request: r, Verdict: v})
	}
}

// reportRefused reports a request that the proxy refused although its destination is allowed.
func (p *Proxy) reportRefused(r Request, why *refusal) {
	if why.code == http.StatusForbidden {
		p.report(r, Verdict{By: why.kind, Reason: why.reason})
	}
}

func destination(r Request) string { return net.JoinHostPort(r.Host, fmt.Sprint(r.Port)) }
