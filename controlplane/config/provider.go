package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Wire formats of providers.
const (
	WireResponses = "responses"
	WireChat      = "chat"
	WireAnthropic = "anthropic"
	WireScripted  = "scripted"
)

const (
	defaultRequestRetries = 4
	defaultStreamRetries  = 5
	defaultIdleTimeout    = 300 * time.Second
	maxRetries            = 100
	openaiBaseURL         = "https://api.openai.com/v1"
	anthropicBaseURL      = "https://api.anthropic.com/v1"
	anthropicKey          = "ANTHROPIC_API_KEY"
)

// builtins are the providers that need no table, sorted.
var builtins = [...]string{"anthropic", "lmstudio", "ollama", "openai", "scripted"}

// builtinProvider is a provider without a table of its own.
func (c *Config) builtinProvider(id string) (Provider, bool) {
	p := Provider{ID: id, Name: id, WireAPI: WireChat}
	switch id {
	case "openai":
		p.Name, p.BaseURL, p.EnvKey, p.WireAPI = "OpenAI", c.openaiURL(), "OPENAI_API_KEY", WireResponses
		p.TakesLogin = true
	case "anthropic":
		p.Name, p.BaseURL, p.EnvKey, p.WireAPI = "Anthropic", anthropicBaseURL, anthropicKey, WireAnthropic
	case "ollama":
		p.Name, p.BaseURL = "Ollama", "http://localhost:11434/v1"
	case "lmstudio":
		p.Name, p.BaseURL = "LM Studio", "http://localhost:1234/v1"
	case "scripted":
		p.WireAPI = WireScripted
	default:
		return Provider{}, false
	}
	return c.builtin(p), true
}

// ProviderIDs are the ids of all providers, those of the config and those built
// in, sorted.
func (c *Config) ProviderIDs() []string {
	ids := append(slices.Sorted(maps.Keys(c.providers())), builtins[:]...)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// BuiltIn reports whether a provider of the id is there without a table.
func BuiltIn(id string) bool { return slices.Contains(builtins[:], id) }

// Provider returns a provider by id: of the config, else built in. An unknown or unusable one is an *Error that names file and fix.
func (c *Config) Provider(id string) (Provider, error) {
	table, ok := lookup(c.tree, "model_providers", id).(map[string]any)
	if !ok {
		if p, ok := c.builtinProvider(id); ok {
			return p, nil
		}
		return Provider{}, c.unknownProvider(id)
	}
	p := c.builtin(Provider{ID: id, Name: id, WireAPI: WireResponses})
	if known, ok := c.builtinProvider(id); ok && id != "openai" {
		// A table for a built-in provider changes what it names.
		p = known
	}
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
	if b, ok := table["requires_openai_auth"].(bool); ok {
		p.TakesLogin = b
	}
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
	if p.WireAPI == WireAnthropic && p.BaseURL == "" {
		p.BaseURL = anthropicBaseURL
	}
	if _, given := table["env_key"]; !given && p.BearerToken == "" && p.WireAPI == WireAnthropic && strings.HasPrefix(p.BaseURL, "https://api.anthropic.com") {
		p.EnvKey = anthropicKey
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
	case WireResponses, WireChat, WireAnthropic:
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
		return c.providerError(p.ID, "wire_api", fmt.Sprintf("%q is not supported; use %q, %q, %q or %q", p.WireAPI, WireResponses, WireChat, WireAnthropic, WireScripted))
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

// unknownProvider blames what names the provider: a file, an override of the
// client, or the thread's own setting.
func (c *Config) unknownProvider(id string) error {
	where := "change model_provider"
	if c.ModelProvider() == id {
		for _, l := range c.layers {
			if lookup(l.Tree, "model_provider") == nil {
				continue
			}
			if l.File != "" {
				break
			}
			where = fmt.Sprintf("correct the client's override (-c model_provider=%s)", id)
			if l.Kind == "thread" {
				where = fmt.Sprintf("correct model_provider = %q in the config that came with the thread", id)
			}
			return c.unknown(id, where, "")
		}
		return c.unknown(id, where, c.sourceOf("model_provider"))
	}
	return c.unknown(id, fmt.Sprintf("choose another one for the thread, whose own setting is %q", id), "")
}

func (c *Config) unknown(id, fix, file string) error {
	w := &heddlev1.ConfigWarning{
		Path: file, Summary: fmt.Sprintf("model provider %q cannot be used", id),
		Details: fmt.Sprintf("there is no such provider (known: %s); add a [model_providers.%s] table or %s", strings.Join(c.ProviderIDs(), ", "), joinKey([]string{id}), fix),
	}
	if data, err := os.ReadFile(file); err == nil {
		if line, col, ok := locate(data, []string{"model_provider"}); ok {
			w.Line, w.Column = int32(line), int32(col)
		}
	}
	return &Error{w}
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
	names := map[string]bool{"OPENAI_API_KEY": true, anthropicKey: true}
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
