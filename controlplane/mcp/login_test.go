package mcp

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/mcp/oauth"
	"github.com/heddle-dev/heddle/controlplane/mcp/oauth/oauthtest"
)

// browse opens a page as the person's browser does.
func browse(page string) error {
	resp, err := http.Get(page) //nolint:gosec,noctx // a test's own page
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func TestLogin(t *testing.T) {
	web := oauthtest.New()
	defer web.Close()
	home := t.TempDir()
	logins := oauth.New(oauth.Config{Dir: home, Version: "1"})
	w := &watcher{}
	host := Host{Status: w.status, Logins: logins, Version: "1"}
	cfg := Server{Name: "locked", URL: web.Endpoint(), StartupTimeout: 10 * time.Second, ToolTimeout: 10 * time.Second}
	set := Start([]Server{cfg}, host)
	defer set.Close()
	await(t, set)
	status := func(s *Set) string { return s.Describe(t.Context(), "", true)[0].GetAuthStatus() }
	if !strings.Contains(w.all(), "locked failed") || !strings.Contains(w.all(), "heddle mcp login locked") || status(set) != authNotLoggedIn {
		t.Errorf("before the login: %q, %s", w.all(), status(set))
	}

	request := func(opened func(string) error) *oauth.Request {
		return &oauth.Request{Server: cfg.login(), Scopes: []string{"read", "write", "read"}, Timeout: 20 * time.Second, Opened: opened}
	}
	// Another program cannot answer for the person.
	err := logins.Login(t.Context(), request(func(page string) error {
		back := page[strings.Index(page, "redirect_uri="):]
		for _, wrong := range []string{"?code=x", "?code=x&state=guess", "?error=access_denied"} {
			resp, err := http.Get(unescape(t, back) + wrong) //nolint:gosec,noctx // a test's own page
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: HTTP %d", wrong, resp.StatusCode)
			}
		}
		go func() { _ = browse(page) }()
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(strings.FieldsSeq(web.Scopes)); !slices.Equal(got, []string{"read", "write"}) { // in any order
		t.Errorf("scopes %q", web.Scopes)
	}
	info, err := os.Stat(filepath.Join(home, "mcp.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("credentials: %v, %v", info, err)
	}
	set.Retry(cfg.URL)
	hello := func(s *Set) error {
		res, err := s.Call(t.Context(), "locked", &Call{Tool: "whoami"})
		if err == nil && !strings.Contains(res.String(), "logged in") {
			t.Errorf("got %v", res)
		}
		return err
	}
	if err := hello(set); err != nil || status(set) != authOAuth {
		t.Errorf("after the login: %v, %s", err, status(set))
	}

	// A process that starts later has the login too, and refreshes it.
	data, err := os.ReadFile(filepath.Join(home, "mcp.json"))
	if err != nil {
		t.Fatal(err)
	}
	web.Expire(false)
	old := strings.Replace(string(data), `"expiry": "2`, `"expiry": "1`, 1) // a thousand years ago
	if err := os.WriteFile(filepath.Join(home, "mcp.json"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	host.Logins = oauth.New(oauth.Config{Dir: home, Version: "1"})
	later := Start([]Server{cfg, {Name: "again", URL: cfg.URL, StartupTimeout: cfg.StartupTimeout, ToolTimeout: cfg.ToolTimeout}}, host)
	defer later.Close()
	await(t, later)
	if err := hello(later); err != nil || web.Refreshes != 1 {
		t.Errorf("after a restart: %v, %d refreshes, want 1", err, web.Refreshes)
	}
	if err := hello(later); err != nil || web.Refreshes != 1 {
		t.Errorf("a second call: %v, %d refreshes, want 1", err, web.Refreshes)
	}
	// The token is for one name at one URL.
	if _, err := later.Call(t.Context(), "again", &Call{Tool: "whoami"}); err == nil || !strings.Contains(err.Error(), "wants a login") {
		t.Errorf("another name got the token: %v", err)
	}

	// A login that nobody takes any more says what to do.
	web.Expire(true)
	if err := hello(later); err == nil || !strings.Contains(err.Error(), "log in with `heddle mcp login locked`") {
		t.Errorf("an expired login: %v", err)
	}
	if had, err := host.Logins.Forget(cfg.login()); !had || err != nil {
		t.Errorf("forget: %v, %v", had, err)
	}
	if had, _ := host.Logins.Forget(cfg.login()); had {
		t.Error("the login was there twice")
	}
}

func TestLoginThatFails(t *testing.T) {
	web := oauthtest.New()
	defer web.Close()
	logins := oauth.New(oauth.Config{Dir: t.TempDir(), Version: "1"})
	server := oauth.Server{Name: "locked", URL: web.Endpoint()}
	web.Refuse = true
	err := logins.Login(t.Context(), &oauth.Request{Server: server, Opened: browse})
	if err == nil || !strings.Contains(err.Error(), "access_denied") {
		t.Errorf("refused: %v", err)
	}
	web.Refuse = false
	// The person does not come back in time, or gives up.
	if err := logins.Login(t.Context(), &oauth.Request{Server: server, Timeout: 50 * time.Millisecond, Opened: func(string) error { return nil }}); err == nil || !strings.Contains(err.Error(), "nobody logged in within 50ms") {
		t.Errorf("late: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := logins.Login(ctx, &oauth.Request{Server: server, Opened: func(string) error { cancel(); return nil }}); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	// A second login takes the place of the first.
	first := make(chan error, 1)
	opened := make(chan struct{})
	go func() {
		first <- logins.Login(t.Context(), &oauth.Request{Server: server, Opened: func(string) error { close(opened); return nil }})
	}()
	<-opened
	if err := logins.Login(t.Context(), &oauth.Request{Server: server, Opened: func(page string) error { go func() { _ = browse(page) }(); return nil }}); err != nil {
		t.Errorf("second login: %v", err)
	}
	if err := <-first; err == nil || !strings.Contains(err.Error(), "another login was started") {
		t.Errorf("first login: %v", err)
	}
	open := oauth.Server{Name: "open", URL: web.URL + "/register"}
	if err := logins.Login(t.Context(), &oauth.Request{Server: open, Opened: browse}); err == nil || !strings.Contains(err.Error(), "asks for no login") {
		t.Errorf("a server without logins: %v", err)
	}
}

// A file that others can read, or that is damaged, is not used and named.
func TestLoginFile(t *testing.T) {
	web := oauthtest.New()
	defer web.Close()
	home := t.TempDir()
	name := filepath.Join(home, "mcp.json")
	for text, mode := range map[string]os.FileMode{`{"servers":[]}`: 0o644, `{"servers`: 0o600} {
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		w := &watcher{}
		set := Start([]Server{{Name: "locked", URL: web.Endpoint(), StartupTimeout: 5 * time.Second, ToolTimeout: time.Second}},
			Host{Status: w.status, Logins: oauth.New(oauth.Config{Dir: home}), Version: "1"})
		await(t, set)
		if !strings.Contains(w.all(), name) {
			t.Errorf("%q: %s", text, w.all())
		}
		set.Close()
	}
}

func unescape(t *testing.T, parameter string) string {
	t.Helper()
	value, _, _ := strings.Cut(strings.TrimPrefix(parameter, "redirect_uri="), "&")
	out, err := url.QueryUnescape(value)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
