package oauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

const (
	// DefaultTimeout is how long a login waits for the person.
	DefaultTimeout = 5 * time.Minute
	maxTimeout     = time.Hour
	callbackPath   = "/callback"
	doneText       = "heddle has the answer. You can close this window.\n"
)

// Request is one login.
type Request struct {
	Server Server
	// Headers are those of the config, without an Authorization.
	Headers map[string]string
	// Scopes to ask for; empty means those that the server names.
	Scopes []string
	// Timeout of the whole; 0 means DefaultTimeout.
	Timeout time.Duration
	// Port on which the browser comes back; 0 means any.
	Port int
	// Opened is told the URL that the person is to open.
	Opened func(authorizationURL string) error
}

// Login logs in and keeps the token. It returns when the person is done, or ctx
// or the timeout ends. A second login at one server ends the first.
func (l *Logins) Login(ctx context.Context, r *Request) error {
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	timeout = min(timeout, maxTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("nobody logged in within %s", timeout))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer l.register(r.Server, stop)()
	err := l.login(ctx, r)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		return fmt.Errorf("log in at MCP server `%s`: %w", r.Server.Name, err)
	}
	return nil
}

// register makes a login the one of its server and ends the one before.
func (l *Logins) register(s Server, stop context.CancelCauseFunc) (done func()) {
	mine := &attempt{stop: stop}
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.open[s]; old != nil {
		old.stop(errors.New("another login was started"))
	}
	l.open[s] = mine
	return func() {
		stop(nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open[s] == mine {
			delete(l.open, s)
		}
	}
}

// attempt is a login that waits for the person.
type attempt struct{ stop context.CancelCauseFunc }

func (l *Logins) login(ctx context.Context, r *Request) error {
	back, err := listenCallback(ctx, r.Port)
	if err != nil {
		return err
	}
	defer back.close()
	req, resp, err := probe(ctx, r.Server.URL, r.Headers)
	if err != nil {
		return err
	}
	local := isLocal(r.Server.URL)
	var kept *credential
	flow, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			RedirectURIs: []string{back.url}, ClientName: "heddle", SoftwareVersion: l.cfg.Version,
			GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"}, TokenEndpointAuthMethod: "none",
		}},
		RedirectURL: back.url, RequestRefreshToken: true, AcceptUnadvertisedIss: true, Client: guarded(r.Server.URL),
		ScopeFilter: func(discovered []string) []string {
			if len(r.Scopes) > 0 {
				return scopesOf(r.Scopes)
			}
			return discovered
		},
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			if !openable(args.URL, local) {
				return nil, errors.New("the server names an authorization page that is not protected by TLS")
			}
			u, err := url.Parse(args.URL)
			if err != nil {
				return nil, err
			}
			answer := back.expect(u.Query().Get("state"))
			if err := r.Opened(args.URL); err != nil {
				return nil, err
			}
			select {
			case a := <-answer:
				return a.result, a.err
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		},
		NewTokenSource: func(ctx context.Context, cfg *oauth2.Config, t *oauth2.Token) (oauth2.TokenSource, error) {
			kept = &credential{
				Name: r.Server.Name, URL: r.Server.URL, ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret,
				TokenURL: cfg.Endpoint.TokenURL, AuthStyle: int(cfg.Endpoint.AuthStyle), Scopes: cfg.Scopes,
			}
			kept.take(t)
			return oauth2.StaticTokenSource(t), nil
		},
	})
	if err != nil {
		_ = resp.Body.Close()
		return err
	}
	if err := flow.Authorize(ctx, req, resp); err != nil {
		return err
	}
	if kept == nil {
		return errors.New("the server gave no token")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.set(r.Server, kept); err != nil {
		return err
	}
	l.sources[r.Server] = l.newSource(r.Server, kept)
	return nil
}

// callback is where the browser comes back to.
type callback struct {
	url    string
	server *http.Server
	state  chan string
	answer chan answered
}

type answered struct {
	result *auth.AuthorizationResult
	err    error
}

func listenCallback(ctx context.Context, port int) (*callback, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen for the browser: %w", err)
	}
	c := &callback{
		url:   "http://" + ln.Addr().String() + callbackPath,
		state: make(chan string, 1), answer: make(chan answered, 1),
	}
	c.server = &http.Server{Handler: http.HandlerFunc(c.serve), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	go func() { _ = c.server.Serve(ln) }()
	return c, nil
}

func (c *callback) close() { _ = c.server.Close() }

// expect makes the answer for a state the one that counts.
func (c *callback) expect(state string) <-chan answered {
	c.state <- state
	return c.answer
}

// serve takes the browser's answer. Anything that does not know the state, such
// as another program of this machine, is refused and changes nothing.
func (c *callback) serve(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	select {
	case want := <-c.state:
		if r.URL.Path != callbackPath || r.Method != http.MethodGet || want == "" || q.Get("state") != want {
			c.state <- want
			http.Error(w, "this is not the answer to a login", http.StatusBadRequest)
			return
		}
	default:
		http.Error(w, "no login is open", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if code := q.Get("error"); code != "" || q.Get("code") == "" {
		if len(code) > 100 {
			code = code[:100]
		}
		c.answer <- answered{err: fmt.Errorf("the login was refused: %q", code)}
		http.Error(w, "The login was refused.", http.StatusOK)
		return
	}
	c.answer <- answered{result: &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}}
	_, _ = w.Write([]byte(doneText))
}
