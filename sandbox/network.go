package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
	"github.com/heddle-dev/heddle/sandbox/netproxy"
)

// Network takes part in the decisions about one command's destinations where the network is proxied. The
// functions are called concurrently, until the command's end.
type Network struct {
	// Ask decides about a destination that Policy.Proxy says nothing about. It may wait for a person; ctx ends
	// with the command. Nil refuses.
	Ask func(ctx context.Context, r netproxy.Request) (netproxy.Verdict, error)
	// Decided is told of each decision. It must not block for long.
	Decided func(netproxy.Decision)
}

// normalizedProxy checks the lists of a proxied network and drops them elsewhere.
func (p Policy) normalizedProxy() (netproxy.Lists, error) {
	if p.Net != NetProxied {
		return netproxy.Lists{}, nil
	}
	if !p.Level.Contained() {
		return p.Proxy, fmt.Errorf("sandbox policy: level %s has the host's network and cannot have a proxied one", p.Level)
	}
	if _, err := netproxy.NewRules(p.Proxy); err != nil {
		return p.Proxy, fmt.Errorf("sandbox policy: %w", err)
	}
	sorted := func(l []string) []string { return slices.Compact(slices.Sorted(slices.Values(l))) }
	return netproxy.Lists{Allow: sorted(p.Proxy.Allow), Deny: sorted(p.Proxy.Deny), Ports: slices.Compact(slices.Sorted(slices.Values(p.Proxy.Ports)))}, nil
}

// proxy is the way out of one command. Its listener is inside the sandbox; what it connects to is outside.
type proxy struct {
	p    *netproxy.Proxy
	port uint16
}

// startProxy makes the proxy of a command; nil where the network is not proxied.
func (b *box) startProxy(ctx context.Context, n Network) (*proxy, error) {
	if b.policy.Net != NetProxied {
		return nil, nil
	}
	rules, err := netproxy.NewRules(b.policy.Proxy)
	if err != nil {
		return nil, err
	}
	px, err := netproxy.New(netproxy.Config{
		Decide: func(ctx context.Context, r netproxy.Request) (netproxy.Verdict, error) {
			if v, ok := rules.Verdict(r); ok {
				return v, nil
			}
			if n.Ask == nil {
				return netproxy.Verdict{By: "miss"}, nil
			}
			return n.Ask(ctx, r)
		},
		Address: rules.Address,
		Decided: n.Decided,
	})
	if err != nil {
		return nil, err
	}
	l, port, err := b.listen(ctx)
	if err != nil {
		return nil, errors.Join(err, px.Close())
	}
	go func() {
		if err := px.Serve(l); !errors.Is(err, netproxy.ErrClosed) {
			b.m.log.Warn("proxy of a sandbox ended", "err", err)
		}
	}()
	return &proxy{p: px, port: port}, nil
}

// listen asks the guest for a listener inside.
func (b *box) listen(ctx context.Context) (net.Listener, uint16, error) {
	a, err := b.call(ctx, guestproto.KListen, nil)
	defer func() { closeFDs(a.files) }()
	if err != nil {
		return nil, 0, fmt.Errorf("set up proxied network: %w", err)
	}
	d := guestproto.Dec{B: a.Body}
	port := d.Uint()
	if d.Err != nil || len(a.files) != 1 || port == 0 || port > 0xffff {
		return nil, 0, errors.New("set up proxied network: the guest gave no listener")
	}
	f := os.NewFile(uintptr(a.files[0]), "proxy-listener")
	a.files = nil
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, 0, fmt.Errorf("set up proxied network: %w", err)
	}
	return l, uint16(port), nil
}

func (p *proxy) close() {
	if p != nil {
		_ = p.p.Close()
	}
}

// noProxy is what never leaves the sandbox.
const noProxy = "localhost,127.0.0.1,::1"

// env returns env with the variables that lead programs to the proxy, in place of what was there. The action that
// was approved names env without them.
func (p *proxy) env(env []string) []string {
	if p == nil {
		return env
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), p.port).String()
	http, socks := "http://"+at, "socks5h://"+at
	java := "-Dhttp.proxyHost=127.0.0.1 -Dhttps.proxyHost=127.0.0.1 -Dhttp.proxyPort=" + strconv.Itoa(int(p.port)) +
		" -Dhttps.proxyPort=" + strconv.Itoa(int(p.port)) + " -Dhttp.nonProxyHosts=localhost|127.*|[::1]"
	set := [][2]string{
		{"HTTP_PROXY", http}, {"HTTPS_PROXY", http}, {"ALL_PROXY", socks}, {"NO_PROXY", noProxy},
		{"http_proxy", http}, {"https_proxy", http}, {"all_proxy", socks}, {"no_proxy", noProxy},
		// Programs whose own settings would win over the above, or that do not read it.
		{"npm_config_proxy", http}, {"npm_config_https_proxy", http}, {"npm_config_noproxy", noProxy},
		{"YARN_HTTP_PROXY", http}, {"YARN_HTTPS_PROXY", http}, {"PIP_PROXY", http}, {"CARGO_HTTP_PROXY", http},
		{"NODE_USE_ENV_PROXY", "1"}, {"MAVEN_OPTS", java}, {"GRADLE_OPTS", java},
	}
	out := make([]string, 0, len(env)+len(set))
	old := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if !slices.ContainsFunc(set, func(s [2]string) bool { return strings.EqualFold(s[0], name) }) && !strings.EqualFold(name, "FTP_PROXY") {
			out = append(out, kv)
			continue
		}
		old[name] = value
	}
	for _, s := range set {
		if strings.HasSuffix(s[0], "_OPTS") && old[s[0]] != "" {
			s[1] = old[s[0]] + " " + s[1]
		}
		out = append(out, s[0]+"="+s[1])
	}
	return out
}
