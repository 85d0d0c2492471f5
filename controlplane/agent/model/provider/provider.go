// Package provider opens model clients from the configuration and keeps them, so
// that connections, and the positions of scripts, are shared.
package provider

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/anthropic"
	"github.com/heddle-dev/heddle/controlplane/agent/model/chat"
	"github.com/heddle-dev/heddle/controlplane/agent/model/httpstream"
	"github.com/heddle-dev/heddle/controlplane/agent/model/openai"
	"github.com/heddle-dev/heddle/controlplane/agent/model/scripted"
	"github.com/heddle-dev/heddle/controlplane/config"
)

// maxClients bounds the clients that are kept.
const maxClients = 256

// Config configures a Set.
type Config struct {
	Logger *slog.Logger
	// HTTPClient may be nil.
	HTTPClient *http.Client
}

// Set holds the open clients. Safe for concurrent use.
type Set struct {
	cfg Config

	mu      sync.Mutex
	clients map[string]model.Client
	scripts map[string]*script
	lists   map[string]modelList
}

// script is one script file as it was when it was read.
type script struct {
	source string
	client *scripted.Client
}

// New returns an empty Set.
func New(cfg Config) *Set {
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = httpstream.NewHTTPClient()
	}
	return &Set{cfg: cfg, clients: map[string]model.Client{}, scripts: map[string]*script{}}
}

// Client returns the client of a provider. getenv looks a variable up in the
// session's environment, then in the control plane's own; nil finds nothing. A
// missing key is one clear error naming provider, variable, file and fix.
func (s *Set) Client(p config.Provider, getenv func(string) string) (model.Client, error) {
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	switch p.WireAPI {
	case config.WireScripted:
		return s.scripted(p)
	case config.WireResponses, config.WireChat, config.WireAnthropic:
		return s.online(p, getenv)
	}
	return nil, fmt.Errorf("model provider %q: wire_api %q is not supported", p.ID, p.WireAPI)
}

// credentials are the key and the headers of a provider's requests.
func credentials(p config.Provider, getenv func(string) string) (key string, headers map[string]string, err error) {
	key = p.BearerToken
	if p.EnvKey != "" {
		if key = strings.TrimSpace(getenv(p.EnvKey)); key == "" {
			return "", nil, missingKey(p)
		}
	}
	headers = maps.Clone(p.HTTPHeaders)
	if headers == nil {
		headers = map[string]string{}
	}
	for name, env := range p.EnvHTTPHeaders {
		if v := getenv(env); v != "" {
			headers[name] = v
		}
	}
	return key, headers, nil
}

func (s *Set) online(p config.Provider, getenv func(string) string) (model.Client, error) {
	key, headers, err := credentials(p, getenv)
	if err != nil {
		return nil, err
	}
	id := fingerprint(p, key, headers)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[id]; c != nil {
		return c, nil
	}
	c, err := s.open(p, key, headers)
	if err != nil {
		return nil, fmt.Errorf("%w; correct base_url%s", err, in(p))
	}
	if len(s.clients) >= maxClients {
		clear(s.clients)
	}
	s.clients[id] = c
	return c, nil
}

// open makes a client for the provider's wire format.
func (s *Set) open(p config.Provider, key string, headers map[string]string) (model.Client, error) {
	cfg := httpstream.Config{
		ProviderName: p.Name, BaseURL: p.BaseURL, APIKey: key, Headers: headers, Query: p.QueryParams,
		RequestMaxRetries: p.RequestMaxRetries, StreamIdleTimeout: p.StreamIdleTimeout, HTTPClient: s.cfg.HTTPClient, Logger: s.cfg.Logger,
	}
	switch p.WireAPI {
	case config.WireChat:
		return chat.New(cfg)
	case config.WireAnthropic:
		return anthropic.New(cfg)
	}
	return openai.New(cfg)
}

func in(p config.Provider) string {
	if p.Source == "" {
		return ""
	}
	return " in " + p.Source
}

func missingKey(p config.Provider) error {
	where := "model provider " + p.Name
	if p.Source != "" {
		where += fmt.Sprintf(" (%s, model_providers.%s.env_key)", p.Source, p.ID)
	} else {
		where += " (built in)"
	}
	fix := "set it in the environment of the client, or choose another provider with model_provider"
	if p.TakesLogin {
		fix = "set it in the environment of the client, log in with heddle login --with-api-key, or choose another provider with model_provider"
	}
	if p.EnvKeyInstructions != "" {
		fix = p.EnvKeyInstructions
	}
	return &model.Error{Kind: model.KindOther, Message: fmt.Sprintf("Missing environment variable: `%s`, the API key of %s; %s", p.EnvKey, where, fix)}
}

// fingerprint tells clients apart by everything that makes their requests.
func fingerprint(p config.Provider, key string, headers map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q %q %q %d %d", p.WireAPI, p.Name, p.BaseURL, key, p.RequestMaxRetries, p.StreamIdleTimeout)
	for _, m := range []map[string]string{headers, p.QueryParams} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, " %q=%q", k, m[k])
		}
		b.WriteByte('|')
	}
	return b.String()
}

// scripted keeps one client per script for as long as the file does not change.
func (s *Set) scripted(p config.Provider) (model.Client, error) {
	name, source := "the built-in demo", scripted.Demo()
	if p.Script != "" {
		data, err := os.ReadFile(p.Script)
		if err != nil {
			return nil, fmt.Errorf("read the script of model provider %q%s: %w", p.ID, in(p), err)
		}
		name, source = p.Script, data
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.scripts[p.Script]; old != nil && old.source == string(source) {
		return old.client, nil
	}
	parsed, err := scripted.Parse(name, source)
	if err != nil {
		return nil, err
	}
	if len(s.scripts) >= maxClients {
		clear(s.scripts)
	}
	c := scripted.New(parsed)
	s.scripts[p.Script] = &script{source: string(source), client: c}
	return c, nil
}
