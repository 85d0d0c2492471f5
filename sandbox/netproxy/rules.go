package netproxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Lists are what configuration says about destinations. An entry is a host name, "*." and a name for everything
// below it, an address or a prefix ("10.1.0.0/16"), each with an optional ":PORT". IPv6 addresses with a port
// stand in brackets.
type Lists struct {
	// Allow and Deny; Deny wins.
	Allow, Deny []string
	// Ports are those that entries of Allow without a port are good for; empty means 80 and 443.
	Ports []uint16
}

// DefaultPorts are the ports of entries that name none.
func DefaultPorts() []uint16 { return []uint16{80, 443} }

// Outcome is what Rules say of a destination.
type Outcome uint8

const (
	// Miss: nothing is said about the host.
	Miss Outcome = iota
	// Allow: the host is allowed at this port.
	Allow
	// Deny: the host is denied.
	Deny
	// OtherPort: the host is allowed, or might be asked for, but not at this port.
	OtherPort
)

// Rules are compiled Lists. They do not change and may be used concurrently.
type Rules struct {
	allow, deny []rule
	ports       []uint16
}

type rule struct {
	text   string
	name   string // without "*."
	below  bool   // everything below name, not name itself
	prefix netip.Prefix
	port   uint16 // 0: see Rules.ports for allowing, every port for denying
}

// NewRules compiles lists or says which entry is wrong.
func NewRules(l Lists) (*Rules, error) {
	r := &Rules{ports: slices.Clone(l.Ports)}
	if len(r.ports) == 0 {
		r.ports = DefaultPorts()
	}
	var err error
	if r.allow, err = parseRules("allow", l.Allow); err != nil {
		return nil, err
	}
	r.deny, err = parseRules("deny", l.Deny)
	return r, err
}

func parseRules(what string, list []string) ([]rule, error) {
	var out []rule
	for _, s := range list {
		r, err := parseRule(s)
		if err != nil {
			return nil, fmt.Errorf("network %s entry %q: %w", what, s, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func parseRule(s string) (r rule, err error) {
	r.text = s
	if p, perr := netip.ParsePrefix(s); perr == nil {
		r.prefix = p.Masked()
		return r, nil
	}
	if a, aerr := netip.ParseAddr(s); aerr == nil && a.Zone() == "" && !a.Is4In6() {
		r.prefix = netip.PrefixFrom(a, a.BitLen())
		return r, nil
	}
	if strings.ContainsRune(s, '@') || strings.Contains(s, "//") {
		return r, errors.New("write the host alone, without a scheme, credentials or a path")
	}
	host := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		n, err := strconv.ParseUint(s[i+1:], 10, 16)
		if err != nil || n == 0 {
			return r, fmt.Errorf("%q is not a port from 1 to 65535", s[i+1:])
		}
		host, r.port = s[:i], uint16(n)
	}
	host, r.below = strings.CutPrefix(host, "*.")
	if p, perr := netip.ParsePrefix(host); perr == nil && !r.below {
		r.prefix = p.Masked()
		return r, nil
	}
	name, err := Normalize(host)
	if err != nil {
		return r, err
	}
	if a, aerr := netip.ParseAddr(name); aerr == nil {
		if r.below {
			return r, fmt.Errorf("a pattern needs a name behind \"*.\"")
		}
		r.prefix = netip.PrefixFrom(a, a.BitLen())
		return r, nil
	}
	r.name = name
	return r, nil
}

func (r rule) host(host string, addr netip.Addr) bool {
	switch {
	case r.prefix.IsValid():
		return addr.IsValid() && r.prefix.Contains(addr)
	case r.below:
		return strings.HasSuffix(host, "."+r.name)
	}
	return host == r.name
}

// Match says what the lists say of a request, and by which entry. Ports without an entry of their own are never a
// Miss: only the listed ones can be asked for.
func (r *Rules) Match(q Request) (Outcome, string) {
	addr, _ := netip.ParseAddr(q.Host)
	for _, d := range r.deny {
		if d.host(q.Host, addr) && (d.port == 0 || d.port == q.Port) {
			return Deny, d.text
		}
	}
	other := ""
	for _, a := range r.allow {
		if !a.host(q.Host, addr) {
			continue
		}
		if a.port == q.Port || a.port == 0 && slices.Contains(r.ports, q.Port) {
			return Allow, a.text
		}
		other = a.text
	}
	if other != "" || !slices.Contains(r.ports, q.Port) {
		return OtherPort, other
	}
	return Miss, ""
}

// Address says what the lists say of an address that an allowed request leads to. The name "localhost", where it
// is listed itself, stands for the loopback addresses.
func (r *Rules) Address(q Request, a netip.Addr) AddressVerdict {
	a = a.Unmap()
	for _, d := range r.deny {
		if d.prefix.IsValid() && d.prefix.Contains(a) && (d.port == 0 || d.port == q.Port) {
			return AddressDenied
		}
	}
	for _, e := range r.allow {
		at := e.port == q.Port || e.port == 0 && slices.Contains(r.ports, q.Port)
		if at && (e.prefix.IsValid() && e.prefix.Contains(a) || e.name == "localhost" && !e.below && q.Host == "localhost" && a.IsLoopback()) {
			return AddressListed
		}
	}
	return AddressUnlisted
}

// Verdict is Match as an answer; ok is false for a miss.
func (r *Rules) Verdict(q Request) (v Verdict, ok bool) {
	switch outcome, entry := r.Match(q); outcome {
	case Allow:
		return Verdict{Allowed: true, By: "allow"}, true
	case OtherPort:
		return Verdict{By: "port", Reason: fmt.Sprintf("port %d is not allowed", q.Port)}, true
	case Deny:
		return Verdict{By: "deny", Reason: fmt.Sprintf("%q is on the list of denied hosts", entry)}, true
	}
	return Verdict{}, false
}
