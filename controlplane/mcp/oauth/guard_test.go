package oauth

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What a public server's metadata points to must not be this machine or its
// network, nor be asked without TLS.
func TestGuard(t *testing.T) {
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat("x", maxAnswer+1)))
	}))
	defer here.Close()
	for _, c := range []struct{ server, asked, why string }{
		{"https://mcp.example.com/mcp", here.URL, "not protected by TLS"},
		{"https://mcp.example.com/mcp", strings.Replace(here.URL, "http://", "https://", 1), "not a public address"},
		{"https://mcp.example.com/mcp", "https://169.254.169.254/latest", "not a public address"},
		{"https://mcp.example.com/mcp", "https://[::1]:1/", "not a public address"},
		{"https://mcp.example.com/mcp", "https://10.1.2.3/", "not a public address"},
		{"http://127.0.0.1:9/mcp", "http://mcp.example.com/", "not protected by TLS"},
	} {
		resp, err := guarded(c.server).Get(c.asked) //nolint:noctx // refused before anything is sent
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s asks %s: %v, want %q", c.server, c.asked, err, c.why)
		}
	}
	resp, err := guarded("http://127.0.0.1:9/mcp").Get(here.URL) //nolint:noctx // a test's own server
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	n := 0
	for buf := make([]byte, 1<<16); ; {
		k, err := resp.Body.Read(buf)
		n += k
		if err != nil {
			break
		}
	}
	if n != maxAnswer {
		t.Errorf("%d bytes of an answer, want %d", n, maxAnswer)
	}
	for page, ok := range map[string]bool{
		"https://login.example.com/a": true, "http://login.example.com/a": false, "javascript:alert(1)": false, "file:///etc/passwd": false, "http://127.0.0.1/a": false,
	} {
		if openable(page, false) != ok {
			t.Errorf("openable(%q) is %v", page, !ok)
		}
	}
	if !openable("http://127.0.0.1/a", true) || openable("http://login.example.com/a", true) {
		t.Error("pages of a local server")
	}
}
