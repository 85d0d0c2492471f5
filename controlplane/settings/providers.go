package settings

import (
	"context"
	"strings"

	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// loginKey is the key of the login; empty means that nobody is logged in.
func (r *Resolver) loginKey() (string, error) {
	if r.cfg.Account == nil {
		return "", nil
	}
	key, err := r.cfg.Account.Key()
	if err != nil {
		return "", errdefs.New(errdefs.InvalidConfig, "%w", err)
	}
	return key, nil
}

// withLogin gives a provider that takes it the key of the login.
func (r *Resolver) withLogin(p config.Provider) (config.Provider, error) {
	if !p.TakesLogin {
		return p, nil
	}
	key, err := r.loginKey()
	switch {
	case err != nil:
		return p, err
	case key != "":
		p.EnvKey, p.BearerToken = "", key
	case p.EnvKey == "" && p.BearerToken == "":
		return p, errdefs.New(errdefs.InvalidConfig, "model provider %q takes the key of a login, and nobody is logged in; run heddle login --with-api-key", p.ID)
	}
	return p, nil
}

// Providers returns the providers of a session, sorted by id.
func (r *Resolver) Providers(ctx context.Context, sessionID string) (*heddlev1.ListProvidersResponse, error) {
	c, err := r.LoadFor(ctx, sessionID, "", nil)
	if err != nil {
		return nil, err
	}
	out := &heddlev1.ListProvidersResponse{DefaultId: c.ModelProvider()}
	if i, set := c.Origins()["model_provider"]; set {
		out.DefaultFixed = c.Layers()[i].Kind != "user"
	}
	for _, id := range c.ProviderIDs() {
		// One that cannot be used is listed too, so that it can be mended.
		p, _ := c.Provider(id)
		out.Providers = append(out.Providers, &heddlev1.ProviderInfo{
			Id: id, Name: p.Name, BaseUrl: p.BaseURL, Auth: authOf(p), EnvKey: p.EnvKey, Editable: !config.BuiltIn(id), WireApi: p.WireAPI,
			WebSearch: p.WireAPI == config.WireResponses || p.WireAPI == config.WireScripted,
		})
	}
	return out, nil
}

func authOf(p config.Provider) heddlev1.ProviderAuth {
	if p.EnvKey != "" {
		return heddlev1.ProviderAuth_PROVIDER_AUTH_ENVIRONMENT
	}
	if p.BearerToken != "" || p.TakesLogin {
		return heddlev1.ProviderAuth_PROVIDER_AUTH_CONFIGURED
	}
	for _, headers := range []map[string]string{p.HTTPHeaders, p.EnvHTTPHeaders} {
		for name := range headers {
			if l := strings.ToLower(name); l == "authorization" || strings.HasSuffix(l, "api-key") {
				return heddlev1.ProviderAuth_PROVIDER_AUTH_CONFIGURED
			}
		}
	}
	return heddlev1.ProviderAuth_PROVIDER_AUTH_NONE
}

// AccountState says whether the default provider of a session takes the key of
// the login, and whether there is one.
func (r *Resolver) AccountState(ctx context.Context, sessionID string) (*heddlev1.GetAccountResponse, error) {
	c, err := r.LoadFor(ctx, sessionID, "", nil)
	if err != nil {
		return nil, err
	}
	key, err := r.loginKey()
	if err != nil {
		return nil, err
	}
	p, _ := c.Provider(c.ModelProvider())
	out := &heddlev1.GetAccountResponse{Required: p.TakesLogin, LoggedIn: key != ""}
	if p.TakesLogin {
		env := r.Env(sessionID)
		fromEnv := p.EnvKey != "" && (env[p.EnvKey] != "" || r.cfg.Env[p.EnvKey] != "")
		out.Present = key != "" || p.BearerToken != "" || fromEnv
	}
	return out, nil
}

// LoginAllowed fails when the config forbids to log in with a key.
func (r *Resolver) LoginAllowed(sessionID string) error {
	c, err := r.Load(sessionID, "", nil)
	if err != nil {
		return err
	}
	if method, _ := c.Value("forced_login_method").(string); method != "" && method != "api" {
		return errdefs.New(errdefs.InvalidArgument, "login with an API key is turned off: forced_login_method is %q", method)
	}
	return nil
}
