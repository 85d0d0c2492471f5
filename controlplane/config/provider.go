package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Wire formats of providers.
const (
	WireResponses = "responses"
	WireScripted  = "scripted"
)

const (
	defaultRequestRetries = 4
	defaultStreamRetries  = 5
	defaultIdleTimeout    = 300 * time.Second
	maxRetries            = 100
	openaiBaseURL         = "https://api.openai.com/v1"
)

// Provider returns a provider by id: of the config, else built in ("openai",
// "scripted"). An unknown or unusable one is an *Error that names file and fix.
func (c *Config) Provider(id string) (Provider, error) {
	table, ok := lookup(c.tree, "model_providers", id).(map[string]any)
	if !ok {
		switch id {
		case "openai":
			return c.builtin(Provider{ID: id, Name: "OpenAI", BaseURL: c.openaiURL(), EnvKey: "OPENAI_API_KEY", WireAPI: WireResponses}), nil
		case "scripted":
			return c.builtin(Provider{ID: id, Name: "scripted", WireAPI: WireScripted}), nil
		}
		known := append(slices.Sorted(maps.Keys(c.providers())), "openai", "scripted")
		return Provider{}, c.providerError(id, "", fmt.Sprintf("there is no such provider (known: %s); add a [model_providers.%s] table or change model_provider", strings.Join(known, ", "), joinKey([]string{id})))
	}
	p := c.builtin(Provider{ID: id, Name: id, WireAPI: WireResponses})
	str := func(dst *string, key string) {
		if s, ok := table[key].(string); ok {
			*dst = s
		}
	}
	str(&p.Name, "name")
	str(&p.BaseURL, "base_url")
	str(&p.EnvKey, "env_key")
	str(&p.EnvKeyInstructions, "env_key_instructions")
	str(&p.WireAPI, "wire_api")
	str(&p.Script, "script")
	str(&p.BearerToken, "experimental_bearer_token")
	p.HTTPHeaders = textsByKey(table["http_headers"])
	p.EnvHTTPHeaders = textsByKey(table["env_http_headers"])
	p.QueryParams = textsByKey(table["query_params"])
	if n, ok := table["request_max_retries"].(int64); ok {
		p.RequestMaxRetries = int(min(n, maxRetries))
	}
	if n, ok := table["stream_max_retries"].(int64); ok {
		p.StreamMaxRetries = int(min(n, maxRetries))
	}
	if n, ok := table["stream_idle_timeout_ms"].(int64); ok && n > 0 {
		p.StreamIdleTimeout = time.Duration(min(n, 86400_000)) * time.Millisecond
	}
	p.Source = c.sourceOf("model_providers", id)
	return p, c.checkProvider(&p)
}

func (c *Config) builtin(p Provider) Provider {
	p.RequestMaxRetries, p.StreamMaxRetries, p.StreamIdleTimeout = defaultRequestRetries, defaultStreamRetries, defaultIdleTimeout
	return p
}

func (c *Config) checkProvider(p *Provider) error {
	switch p.WireAPI {
	case WireResponses:
		if p.BaseURL == "" {
			return c.providerError(p.ID, "base_url", `it is not set; add base_url = "https://HOST/v1"`)
		}
	case WireScripted:
		if p.Script != "" && !filepath.IsAbs(p.Script) {
			if p.Source == "" {
				return c.providerError(p.ID, "script", "a relative path needs a config file; write an absolute path")
			}
			p.Script = filepath.Join(filepath.Dir(p.Source), p.Script)
		}
	default:
		return c.providerError(p.ID, "wire_api", fmt.Sprintf("%q is not supported; use %q or %q", p.WireAPI, WireResponses, WireScripted))
	}
	return nil
}

func (c *Config) openaiURL() string {
	if u := c.str("openai_base_url"); u != "" {
		return u
	}
	if u := c.env["OPENAI_BASE_URL"]; u != "" {
		return u
	}
	return openaiBaseURL
}

func (c *Config) providers() map[string]any {
	m, _ := c.tree["model_providers"].(map[string]any)
	return m
}

// sourceOf is the file of the highest layer that has the table; empty when it was
// given by a client.
func (c *Config) sourceOf(path ...string) string {
	for _, l := range c.layers {
		if lookup(l.Tree, path...) != nil && l.File != "" {
			return l.File
		}
	}
	return ""
}

func (c *Config) providerError(id, key, what string) error {
	path := []string{"model_providers", id}
	if key != "" {
		path = append(path, key)
	}
	p := problem{path: path}
	w := p.warning(c.sourceOf("model_providers", id), nil)
	if w.Path == "" {
		w.Path = c.sourceOf("model_provider")
	}
	// A missing key is shown at the table that lacks it, a missing table at the
	// setting that names it.
	if data, err := os.ReadFile(w.Path); err == nil {
		for _, at := range [][]string{path, path[:2], {"model_provider"}} {
			if line, col, ok := locate(data, at); ok {
				w.Line, w.Column = int32(line), int32(col)
				break
			}
		}
	}
	w.Summary, w.Details = fmt.Sprintf("model provider %q cannot be used: key %q", id, joinKey(path)), what
	return &Error{w}
}

// ProviderEnvKeys are the variables that hold keys of any provider, sorted.
func (c *Config) ProviderEnvKeys() []string {
	names := map[string]bool{"OPENAI_API_KEY": true}
	for _, v := range c.providers() {
		t, _ := v.(map[string]any)
		if k, ok := t["env_key"].(string); ok && k != "" {
			names[k] = true
		}
		for _, k := range textsByKey(t["env_http_headers"]) {
			names[k] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
