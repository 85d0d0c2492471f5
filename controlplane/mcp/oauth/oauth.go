// Package oauth logs in at MCP servers that are reached over HTTP: the
// authorization code flow with PKCE, a client that is registered dynamically, and
// tokens that are kept in the home and refreshed.
//
// A token is kept for one server name and one URL, in a file that the user alone
// can read (mode 0600). It is sent to that URL and to nothing else, and never
// given to a command. What a server's metadata points to is not trusted: it is
// asked over TLS (or on this machine, for a server on this machine), an address
// that is not public is not asked for a server that is, and answers are bounded.
//
// A Logins is safe for concurrent use; all threads share one refresh of a token.
package oauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"golang.org/x/oauth2"
)

// fileName is the file that holds the tokens.
const fileName = "mcp.json"

// Config configures Logins.
type Config struct {
	// Dir is the folder in which tokens are kept. No command may read it.
	Dir     string
	Version string
	// Logger; nil discards.
	Logger *slog.Logger
}

// Server is what there is to log in at.
type Server struct {
	Name string
	URL  string
}

// Logins holds what the user is logged in at.
type Logins struct {
	cfg  Config
	file *file

	mu      sync.Mutex
	sources map[Server]*source
	open    map[Server]*attempt
}

// New returns the logins of a home. The file is read when it is needed.
func New(cfg Config) *Logins {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Logins{
		cfg: cfg, file: &file{path: filepath.Join(cfg.Dir, fileName)},
		sources: map[Server]*source{}, open: map[Server]*attempt{},
	}
}

// Prepare makes the folder of the tokens. A command that runs already cannot be
// kept from a folder that comes to be later.
func (l *Logins) Prepare() error {
	if err := os.MkdirAll(l.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("keep the logins of MCP servers: %w", err)
	}
	return nil
}

// LoggedIn reports whether there is a token for a server.
func (l *Logins) LoggedIn(s Server) bool {
	src, err := l.source(s)
	return err == nil && src != nil
}

// Forget removes the token of a server and reports whether there was one.
func (l *Logins) Forget(s Server) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sources, s)
	return l.file.set(s, nil)
}

// Handler authorises the requests of one server's transport: with the token that
// is kept, or not at all. It starts no login by itself, since nobody may be there
// to answer.
func (l *Logins) Handler(s Server) auth.OAuthHandler { return &handler{logins: l, server: s} }

type handler struct {
	logins *Logins
	server Server
}

// ErrLogin says that a server wants a login.
var ErrLogin = errors.New("it wants a login")

// TokenSource implements auth.OAuthHandler.
func (h *handler) TokenSource(context.Context) (oauth2.TokenSource, error) {
	src, err := h.logins.source(h.server)
	if err != nil || src == nil {
		return nil, err
	}
	return src, nil
}

// Authorize implements auth.OAuthHandler: it is called for an answer that
// refuses the request.
func (h *handler) Authorize(_ context.Context, _ *http.Request, resp *http.Response) error {
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusForbidden {
		return fmt.Errorf("it refuses the request (HTTP %d): the login, or the token of the config, lacks the right", resp.StatusCode)
	}
	what := "it wants a login"
	if h.logins.LoggedIn(h.server) {
		what = "it does not take the kept login any more"
	}
	return &loginError{fmt.Sprintf("%s (HTTP %d): log in with `heddle mcp login %s`, or with mcpServer/oauth/login from a client", what, resp.StatusCode, h.server.Name)}
}

// loginError is ErrLogin with what to do.
type loginError struct{ text string }

// Error implements error.
func (e *loginError) Error() string { return e.text }

// Is tells errors.Is that this is ErrLogin.
func (e *loginError) Is(target error) bool { return target == ErrLogin }

// source returns the tokens of a server; nil when there is no login.
func (l *Logins) source(s Server) (*source, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if src := l.sources[s]; src != nil {
		return src, nil
	}
	c, err := l.file.get(s)
	if err != nil || c == nil {
		return nil, err
	}
	src := l.newSource(s, c)
	l.sources[s] = src
	return src, nil
}

// newSource makes the tokens of a credential.
func (l *Logins) newSource(s Server, c *credential) *source {
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, guarded(s.URL))
	cfg := &oauth2.Config{
		ClientID: c.ClientID, ClientSecret: c.ClientSecret, Scopes: c.Scopes,
		Endpoint: oauth2.Endpoint{TokenURL: c.TokenURL, AuthStyle: oauth2.AuthStyle(c.AuthStyle)},
	}
	return &source{logins: l, server: s, kept: c, next: cfg.TokenSource(ctx, c.token())}
}

// source gives out tokens, refreshes them and keeps what it got.
type source struct {
	logins *Logins
	server Server
	next   oauth2.TokenSource

	mu   sync.Mutex
	kept *credential
}

// Token implements oauth2.TokenSource.
func (s *source) Token() (*oauth2.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.next.Token()
	if err != nil {
		return nil, &loginError{fmt.Sprintf("its login could not be refreshed (%v): log in again with `heddle mcp login %s`, or with mcpServer/oauth/login from a client", reason(err), s.server.Name)}
	}
	if t.AccessToken != s.kept.AccessToken || t.RefreshToken != s.kept.RefreshToken {
		fresh := *s.kept
		fresh.take(t)
		if _, err := s.logins.file.set(s.server, &fresh); err != nil {
			s.logins.cfg.Logger.Warn("keep a refreshed login", "server", s.server.Name, "error", err)
		}
		s.kept = &fresh
	}
	return t, nil
}

// reason leaves the body of an answer out: it may hold what must not be shown.
func reason(err error) string {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		if e.ErrorCode != "" {
			return e.ErrorCode
		}
		return e.Response.Status
	}
	return err.Error()
}

// credential is one login as it is kept.
type credential struct {
	Name         string    `json:"name"`
	URL          string    `json:"url"`
	ClientID     string    `json:"client_id"`
	ClientSecret string    `json:"client_secret,omitempty"`
	TokenURL     string    `json:"token_url"`
	AuthStyle    int       `json:"auth_style"`
	Scopes       []string  `json:"scopes,omitempty"`
	AccessToken  string    `json:"access_token"`
	TokenType    string    `json:"token_type,omitempty"`
	RefreshToken string    `json:"refresh_token,omitempty"`
	Expiry       time.Time `json:"expiry,omitzero"`
}

func (c *credential) token() *oauth2.Token {
	return &oauth2.Token{AccessToken: c.AccessToken, TokenType: c.TokenType, RefreshToken: c.RefreshToken, Expiry: c.Expiry}
}

func (c *credential) take(t *oauth2.Token) {
	c.AccessToken, c.TokenType, c.RefreshToken, c.Expiry = t.AccessToken, t.TokenType, t.RefreshToken, t.Expiry
}

// scopesOf keeps what was asked for, once each.
func scopesOf(asked []string) []string {
	out := slices.Clone(asked)
	slices.Sort(out)
	return slices.Compact(out)
}
