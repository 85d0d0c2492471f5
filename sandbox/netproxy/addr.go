package netproxy

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// special are ranges that are not of the public network besides those that netip knows.
var special = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "of this network"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared (carrier-grade NAT)"},
	{netip.MustParsePrefix("192.0.0.0/24"), "for protocol assignments"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud metadata service"},
	{netip.MustParsePrefix("fec0::/10"), "site-local"},
	{netip.MustParsePrefix("100::/64"), "for discarding"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "of a local translator"},
	{netip.MustParsePrefix("2001::/32"), "of a tunnel (Teredo)"},
}

// embedding are IPv6 ranges that carry an IPv4 address, at a byte offset.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},
	{netip.MustParsePrefix("2002::/16"), 2},
	{netip.MustParsePrefix("::/96"), 12},
}

// nonPublic says what keeps an address from being public; empty for a public one.
func nonPublic(a netip.Addr) string {
	a = a.Unmap()
	switch {
	case !a.IsValid() || a.Zone() != "":
		return "not valid"
	case a.IsUnspecified():
		return "unspecified"
	case a.IsLoopback():
		return "loopback"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsPrivate():
		return "private"
	case a.IsMulticast():
		return "multicast"
	}
	for _, s := range special {
		if s.prefix.Contains(a) {
			return s.what
		}
	}
	for _, e := range embedding {
		if e.prefix.Contains(a) {
			b := a.As16()
			return nonPublic(netip.AddrFrom4([4]byte(b[e.at : e.at+4])))
		}
	}
	return ""
}

// systemResolver asks the host's resolver for the absolute name, so that no search list is added. Names of the own
// machine are not asked for.
type systemResolver struct{}

func (systemResolver) Resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".")
}

// resolve returns the addresses that may be dialled for an allowed request. One bad address refuses the name.
func (p *Proxy) resolve(ctx context.Context, r Request) ([]netip.Addr, *refusal) {
	var addrs []netip.Addr
	if a, err := netip.ParseAddr(r.Host); err == nil {
		addrs = []netip.Addr{a}
	} else {
		ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
		defer cancel()
		found, err := p.cfg.Resolver.Resolve(ctx, r.Host)
		if err != nil || len(found) == 0 {
			return nil, unreachable("the name %s cannot be resolved: %v", r.Host, err)
		}
		for _, a := range found {
			addrs = append(addrs, a.Unmap())
		}
	}
	for _, a := range addrs {
		if ref := p.checkAddress(r, a); ref != nil {
			return nil, ref
		}
	}
	return slices.Compact(addrs[:min(len(addrs), maxAddresses)]), nil
}

func (p *Proxy) checkAddress(r Request, a netip.Addr) *refusal {
	verdict := AddressUnlisted
	if p.cfg.Address != nil {
		verdict = p.cfg.Address(r, a)
	}
	switch verdict {
	case AddressDenied:
		return refuse("address-denied", "access to %s is blocked: the address %s is denied", destination(r), a)
	case AddressListed:
		return nil
	case AddressUnlisted:
	}
	if what := nonPublic(a); what != "" {
		return refuse("address-not-public", "access to %s is blocked: the address %s is %s; list the address itself to allow it", destination(r), a, what)
	}
	return nil
}

// connect resolves, checks and dials a destination that was allowed.
func (p *Proxy) connect(ctx context.Context, r Request) (net.Conn, *refusal) {
	addrs, ref := p.resolve(ctx, r)
	if ref != nil {
		return nil, ref
	}
	var last error
	for _, a := range addrs {
		c, err := p.dial(ctx, netip.AddrPortFrom(a, r.Port))
		if err == nil {
			return c, nil
		}
		last = err
	}
	return nil, unreachable("cannot connect to %s: %v", destination(r), last)
}

func (p *Proxy) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	return p.cfg.Dial(ctx, "tcp", to.String())
}

// dialUpstream is the transport's: address is the "host:port" of a request that was decided just before.
func (p *Proxy) dialUpstream(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := splitTarget(address, 0)
	if err != nil {
		return nil, err
	}
	c, ref := p.connect(ctx, Request{Host: host, Port: port, Protocol: ProtocolHTTP})
	if ref != nil {
		return nil, ref
	}
	return idleConn{c, p.cfg.IdleTimeout}, nil
}

// idleConn ends reads and writes on which nothing moves.
type idleConn struct {
	net.Conn
	idle time.Duration
}

func (c idleConn) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.idle))
	return c.Conn.Read(b)
}

func (c idleConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.idle))
	return c.Conn.Write(b)
}
