package netproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/sandbox/netproxy"
)

// TestN14PlainHTTP are the rows of N14 that one request can show. Each is refused, said so, reported, and nothing
// is dialled.
func TestN14PlainHTTP(t *testing.T) {
	for name, row := range map[string]struct {
		send   string
		status int
		kind   string
	}{
		"host that is not listed":      {"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", 403, "blocked-by-policy"},
		"denied below an allowed name": {"GET http://bad.ok.test/ HTTP/1.1\r\n\r\n", 403, "blocked-by-policy"},
		"denied host, trailing dot":    {"GET http://BAD.ok.test./ HTTP/1.1\r\n\r\n", 403, "blocked-by-policy"},
		"port that is not listed":      {"GET http://ok.test:22/ HTTP/1.1\r\n\r\n", 403, "blocked-by-policy"},
		"Host is not the URL's":        {"GET http://ok.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", 403, "host-mismatch"},
		"Host has another port":        {"GET http://ok.test/ HTTP/1.1\r\nHost: ok.test:8080\r\n\r\n", 403, "host-mismatch"},
		"two Hosts":                    {"GET http://ok.test/ HTTP/1.1\r\nHost: ok.test\r\nHost: evil.test\r\n\r\n", 400, "bad-request"},
		"NUL in the name":              {"GET http://evil.test\x00.ok.test/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"coded NUL in the name":        {"GET http://evil.test%00.ok.test/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"credentials before the name":  {"GET http://ok.test@evil.test/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"address literal":              {"GET http://" + publicIP + "/ HTTP/1.1\r\n\r\n", 403, "blocked-by-policy"},
		"metadata address":             {"GET http://169.254.169.254/latest HTTP/1.1\r\n\r\n", 403, "address-not-public"},
		"decimal address":              {"GET http://2130706433/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"octal address":                {"GET http://0177.0.0.1/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"hexadecimal address":          {"GET http://0x7f000001/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"hexadecimal part":             {"GET http://127.0.0.0x1/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"short address":                {"GET http://127.1/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"mapped address":               {"GET http://[::ffff:127.0.0.1]/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"address with a zone":          {"GET http://[fe80::1%25lo]/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"wide digits":                  {"GET http://１２７.0.0.1/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"name that leads to loopback":  {"GET http://rebind.ok.test/ HTTP/1.1\r\n\r\n", 403, "address-not-public"},
		"name with one bad address":    {"GET http://mixed.ok.test/ HTTP/1.1\r\n\r\n", 403, "address-not-public"},
		"name that leads to metadata":  {"GET http://meta.ok.test/ HTTP/1.1\r\n\r\n", 403, "address-not-public"},
		"name that leads to mapped":    {"GET http://mapped.ok.test/ HTTP/1.1\r\n\r\n", 403, "address-not-public"},
		"name that leads to NAT64":     {"GET http://nat64.ok.test/ HTTP/1.1\r\n\r\n", 403, "address-not-public"},
		"name that leads to CGNAT":     {"GET http://cgnat.ok.test/ HTTP/1.1\r\n\r\n", 403, "address-not-public"},
		"name that leads to private":   {"GET http://private.ok.test/ HTTP/1.1\r\n\r\n", 403, "address-not-public"},
		"name with a denied address":   {"GET http://denied.ok.test/ HTTP/1.1\r\n\r\n", 403, "address-denied"},
		"https without CONNECT":        {"GET https://ok.test/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"other scheme":                 {"GET ftp://ok.test/ HTTP/1.1\r\n\r\n", 400, "bad-request"},
		"no absolute URL":              {"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", 400, "bad-request"},
		"HTTP/2 preface":               {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad-request"},
		"CONNECT with another Host":    {"CONNECT ok.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", 403, "host-mismatch"},
		"CONNECT without a port":       {"CONNECT ok.test HTTP/1.1\r\nHost: ok.test\r\n\r\n", 400, "bad-request"},
		"CONNECT to loopback":          {"CONNECT 127.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1:443\r\n\r\n", 403, "address-not-public"},
		"CONNECT to a rebinding name":  {"CONNECT rebind.ok.test:443 HTTP/1.1\r\nHost: rebind.ok.test\r\n\r\n", 403, "address-not-public"},
		"header without an end":        {"GET http://ok.test/ HTTP/1.1\r\nX: " + strings.Repeat("a", 40<<10), 431, "bad-request"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, netproxy.Lists{Allow: []string{"ok.test", "*.ok.test"}, Deny: []string{"bad.ok.test", "8.8.8.0/24"}}, nil)
			for _, p := range []uint16{22, 80, 443, 8080} {
				r.web(p, func(http.ResponseWriter, *http.Request) { t.Error("the server was reached") })
			}
			for host, addrs := range map[string][]string{
				"rebind": {"127.0.0.1"}, "mixed": {publicIP, "10.0.0.1"}, "meta": {"169.254.169.254"}, "mapped": {"::ffff:127.0.0.1"},
				"nat64": {"64:ff9b::7f00:1"}, "cgnat": {"100.64.1.1"}, "private": {"fd00::1"}, "denied": {"8.8.8.8"},
			} {
				r.names[host+".ok.test"] = addrs
			}
			wantRefused(t, r.raw(row.send), row.status, row.kind)
			r.untouched()
			if row.status == 403 && r.last().Allowed {
				t.Error("the last decision that was reported allows it")
			}
			if row.kind == "blocked-by-policy" && len(r.resolved) > 0 {
				t.Errorf("a refused name was resolved: %v", r.resolved)
			}
		})
	}
}

func TestN14ServerName(t *testing.T) {
	for name, row := range map[string]struct {
		target, sni string
		ok          bool
		kind        string
	}{
		"same":              {"ok.test:443", "ok.test", true, ""},
		"same, other case":  {"OK.test:443", "ok.TEST", true, ""},
		"another":           {"ok.test:443", "evil.test", false, "sni-mismatch"},
		"none":              {"ok.test:443", "", false, "sni-missing"},
		"none on a literal": {"9.9.9.9:443", "", true, ""},
		"one on a literal":  {"9.9.9.9:443", "evil.test", false, "sni-mismatch"},
		"on another port":   {"ok.test:8443", "evil.test", false, "sni-mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, netproxy.Lists{Allow: []string{"ok.test", "9.9.9.9"}, Ports: []uint16{443, 8443}}, nil)
			r.secure(443, func(http.ResponseWriter, *http.Request) {})
			r.secure(8443, func(http.ResponseWriter, *http.Request) {})
			err := r.tlsTo(row.target, row.sni)
			if (err == nil) != row.ok {
				t.Fatalf("handshake: %v, want success %v", err, row.ok)
			}
			if !row.ok && !strings.Contains(err.Error(), "unrecognized name") {
				t.Errorf("error %v does not tell the cause", err)
			}
			if d := r.last(); d.Allowed != row.ok || !row.ok && d.By != row.kind {
				t.Errorf("decision %+v", d)
			}
		})
	}
}

// TestN14HTTPInTunnel: every request in a tunnel is for the tunnel's destination.
func TestN14HTTPInTunnel(t *testing.T) {
	for _, port := range []uint16{80, 8080} {
		t.Run(fmt.Sprint(port), func(t *testing.T) {
			r := newRig(t, netproxy.Lists{Allow: []string{"ok.test"}, Ports: []uint16{80, 8080}}, nil)
			var seen []string
			r.web(port, func(w http.ResponseWriter, req *http.Request) {
				seen = append(seen, req.Host)
				io.WriteString(w, "page")
			})
			host := "ok.test"
			if port != 80 {
				host = fmt.Sprintf("ok.test:%d", port)
			}
			c, _ := r.connect(fmt.Sprintf("ok.test:%d", port))
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", host)
			got, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			if len(seen) != 1 || seen[0] != host {
				t.Errorf("the server saw hosts %q", seen)
			}
			first, second, _ := strings.Cut(string(got), "page")
			if !strings.HasPrefix(first, "HTTP/1.1 200") {
				t.Errorf("first answer %q", first)
			}
			wantRefused(t, second, 403, "host-mismatch")
		})
	}
	for _, begin := range []string{"\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "EHLO x\r\n\r\n", "\x80\x2e\x01\x03\x01", "SSH-2.0-x\r\n"} {
		r := newRig(t, netproxy.Lists{Allow: []string{"ok.test"}}, nil)
		r.web(443, func(http.ResponseWriter, *http.Request) { t.Errorf("%q reached the server", begin) })
		c, _ := r.connect("ok.test:443")
		io.WriteString(c, begin)
		io.Copy(io.Discard, c)
	}
}

func TestN14Socks(t *testing.T) {
	for name, row := range map[string]struct {
		host string
		port uint16
		code byte
	}{
		"allowed":       {"ok.test", 443, 0},
		"not listed":    {"evil.test", 443, 2},
		"other port":    {"ok.test", 25, 2},
		"NUL":           {"evil.test\x00.ok.test", 443, 2},
		"decimal":       {"2130706433", 443, 2},
		"loopback":      {"127.0.0.1", 443, 2},
		"loopback 6":    {"::1", 443, 2},
		"mapped":        {"::ffff:127.0.0.1", 443, 2},
		"literal name":  {"169.254.169.254", 80, 2},
		"rebinding":     {"rebind.ok.test", 443, 2},
		"no such name":  {"none.ok.test", 443, 4},
		"port 0":        {"ok.test", 0, 2},
		"not listening": {"ok.test", 80, 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, netproxy.Lists{Allow: []string{"ok.test", "*.ok.test"}}, nil)
			r.names["rebind.ok.test"] = []string{"127.0.0.1"}
			r.secure(443, func(http.ResponseWriter, *http.Request) {})
			if _, code := r.socks(row.host, row.port); code != row.code {
				t.Errorf("reply %d, want %d", code, row.code)
			}
		})
	}
}

// TestN14Redirect: the proxy passes a redirect back and does not follow it.
func TestN14Redirect(t *testing.T) {
	r := newRig(t, netproxy.Lists{Allow: []string{"ok.test"}}, nil)
	r.web(80, func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, "http://evil.test/", http.StatusFound)
	})
	got := r.raw("GET http://ok.test/ HTTP/1.1\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 302") || !strings.Contains(got, "http://evil.test/") {
		t.Errorf("answer %q", got)
	}
	if n := len(r.dialled); n != 1 {
		t.Errorf("%d dials", n)
	}
}
