package agent

import (
	"context"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/controlplane/mcp"
	"github.com/heddle-dev/heddle/controlplane/mcp/oauth"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Login asks for a login at an MCP server.
type Login struct {
	// ThreadID is the thread whose server it is; empty for one of the session's
	// config.
	ThreadID, SessionID, Server string
	// Scopes are those of the server's config when empty.
	Scopes  []string
	Timeout time.Duration
	// Opened is told the page that the person is to open.
	Opened func(url string) error
}

// LoginServer logs in at an MCP server and then starts it in the threads that
// have it.
func (a *Agent) LoginServer(ctx context.Context, l Login) error {
	s, err := a.loginAt(ctx, l.ThreadID, l.SessionID, l.Server)
	if err != nil {
		return err
	}
	scopes := l.Scopes
	if len(scopes) == 0 {
		scopes = s.Scopes
	}
	err = a.cfg.Logins.Login(ctx, &oauth.Request{
		Server: oauth.Server{Name: s.Name, URL: s.URL}, Headers: s.Headers, Scopes: scopes, Timeout: l.Timeout, Port: s.CallbackPort, Opened: l.Opened,
	})
	if err != nil {
		return err
	}
	for _, lt := range a.threads() {
		if set := lt.mcpSet(); set != nil {
			set.Retry(s.URL)
		}
	}
	return nil
}

// LogoutServer forgets the login at an MCP server and reports whether there was
// one. Connections that stand are kept.
func (a *Agent) LogoutServer(ctx context.Context, threadID, sessionID, name string) (bool, error) {
	s, err := a.loginAt(ctx, threadID, sessionID, name)
	if err != nil {
		return false, err
	}
	return a.cfg.Logins.Forget(oauth.Server{Name: s.Name, URL: s.URL})
}

// loginAt finds the server at which somebody logs in or out.
func (a *Agent) loginAt(ctx context.Context, threadID, sessionID, name string) (*mcp.Server, error) {
	if a.cfg.Servers == nil || a.cfg.Logins == nil {
		return nil, errdefs.New(errdefs.NotSupported, "this control plane has no MCP servers")
	}
	var settings *heddlev1.ThreadSettings
	if threadID != "" {
		lt, err := a.thread(ctx, threadID)
		if err != nil {
			return nil, err
		}
		settings = lt.currentSettings()
	}
	found, err := a.cfg.Servers(ctx, settings, sessionID)
	if err != nil {
		return nil, err
	}
	for i, s := range found {
		if s.Name != name {
			continue
		}
		if s.URL == "" {
			return nil, errdefs.New(errdefs.InvalidArgument, "OAuth login is only supported for streamable HTTP servers.")
		}
		for k := range s.Headers {
			if strings.EqualFold(k, "Authorization") {
				return nil, errdefs.New(errdefs.InvalidArgument, "MCP server '%s' is authorized by the config (bearer_token_env_var or http_headers); a login would not be used", name)
			}
		}
		return &found[i], nil
	}
	return nil, errdefs.New(errdefs.InvalidArgument, "No MCP server named '%s' found.", name)
}
