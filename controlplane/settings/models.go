package settings

import (
	"context"
	"slices"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/config"
)

// Lister says which models a provider has; a Clients may be one.
type Lister interface {
	Models(ctx context.Context, p config.Provider, getenv func(string) string) ([]string, error)
}

// ListModels returns the models of the session's provider: the catalogue for
// OpenAI itself and where a provider does not say what it has; else what it
// has, with the metadata of the catalogue where that knows the name, and the
// configured model. Exactly one is the default.
func (r *Resolver) ListModels(ctx context.Context, sessionID string, includeHidden bool) []model.Info {
	known := r.cfg.Models.List(includeHidden)
	c, err := r.Load(sessionID, "", nil)
	if err != nil {
		return known
	}
	p, err := c.Provider(c.ModelProvider())
	if err != nil || p.WireAPI == config.WireScripted || p.ID == "openai" && p.Source == "" {
		return known
	}
	names := r.providerModels(ctx, sessionID, p)
	foreign := p.WireAPI == config.WireChat || p.WireAPI == config.WireAnthropic
	if len(names) == 0 && (!foreign || c.Model() == "") {
		return known
	}
	configured := c.Model()
	if configured != "" && !slices.Contains(names, configured) {
		names = append([]string{configured}, names...)
	}
	if configured == "" {
		configured = names[0]
	}
	var out []model.Info
	for _, n := range names {
		info, _ := r.cfg.Models.Lookup(n, model.Overrides{})
		info.Hidden, info.Default = false, n == configured
		info.FreeformPatch = info.FreeformPatch && !foreign
		out = append(out, info)
	}
	return out
}

// providerModels is empty where the provider does not say.
func (r *Resolver) providerModels(ctx context.Context, sessionID string, p config.Provider) []string {
	l, ok := r.cfg.Clients.(Lister)
	if !ok {
		return nil
	}
	env := r.Env(sessionID)
	names, err := l.Models(ctx, p, func(name string) string {
		if v, ok := env[name]; ok {
			return v
		}
		return r.cfg.Env[name]
	})
	if err != nil {
		r.cfg.Logger.Debug("list models", "provider", p.ID, "error", err)
	}
	return names
}
