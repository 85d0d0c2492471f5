package mcp

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/heddle-dev/heddle/controlplane/mcp/oauth"
)

// httpTransport reaches a server over streamable HTTP.
func httpTransport(s *Server, logins *oauth.Logins) (sdk.Transport, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	t := &sdk.StreamableClientTransport{
		Endpoint: s.URL, MaxEventSize: maxMessage,
		HTTPClient: &http.Client{Transport: &headers{host: u.Host, scheme: u.Scheme, set: s.Headers, next: http.DefaultTransport}},
	}
	if logins != nil && !s.authorized() {
		t.OAuthHandler = logins.Handler(s.login())
	}
	return t, nil
}

// login is the server as logins know it.
func (s *Server) login() oauth.Server { return oauth.Server{Name: s.Name, URL: s.URL} }

// authorized reports whether the config itself gives what authorises requests.
func (s *Server) authorized() bool {
	for k := range s.Headers {
		if strings.EqualFold(k, "Authorization") {
			return true
		}
	}
	return false
}

// headers adds the configured headers to requests for the server's own host, and
// bounds answers.
type headers struct {
	scheme, host string
	set          map[string]string
	next         http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (h *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == h.host && r.URL.Scheme == h.scheme && len(h.set) > 0 {
		r = r.Clone(r.Context())
		for k, v := range h.set {
			r.Header.Set(k, v)
		}
	}
	resp, err := h.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = &bounded{ReadCloser: resp.Body, left: maxMessage}
	}
	return resp, nil
}

// bounded fails a body that is too long.
type bounded struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the answer is too long")
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// origin is the part of a URL that names the server alone.
func origin(raw string) string {
	u, err := url.Parse(raw)
	if raw == "" || err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
