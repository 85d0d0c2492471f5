// Package anthropic is the client for services that speak the Anthropic Messages
// API.
//
// Thinking is shown as a reasoning summary and given back with its signature, as
// the service demands while it calls tools. Sending, retries and failures are
// those of package httpstream. A Client is safe for concurrent use.
package anthropic

import (
	"context"
	"net/http"
	"path"
	"regexp"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/httpstream"
)

// version is the version of the API, which every request names.
const version = "2023-06-01"

// Config says where and how to ask. BaseURL is the address with or without the
// version: /v1 is added where no version stands at its end. APIKey is sent as
// x-api-key.
type Config = httpstream.Config

// Client implements model.Client.
type Client struct{ stream *httpstream.Stream }

var versioned = regexp.MustCompile(`^v\d+`)

// New returns a client; a base URL that is no http or https URL is an error.
func New(cfg Config) (*Client, error) {
	u, err := httpstream.BaseURL(cfg.ProviderName, cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	at := []string{"messages"}
	if !versioned.MatchString(path.Base(u.Path)) {
		at = []string{"v1", "messages"}
	}
	cfg.Headers, cfg.Refused = Headers(cfg.APIKey, cfg.Headers), model.RefusedBy
	s, err := httpstream.New(cfg, at...)
	if err != nil {
		return nil, err
	}
	return &Client{stream: s}, nil
}

// Headers are those of every request to the API.
func Headers(key string, further map[string]string) map[string]string {
	h := map[string]string{"Anthropic-Version": version}
	if key != "" {
		h["X-Api-Key"] = key
	}
	for name, v := range further {
		h[http.CanonicalHeaderKey(name)] = v
	}
	return h
}

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, yield func(model.Event) error) error {
	return c.stream.Do(ctx, httpstream.Call{
		Encode:   func(drop map[string]bool) ([]byte, error) { return encodeRequest(req, drop) },
		Optional: optional,
		Request:  req,
		Decode: func(a *httpstream.Answer, emit func(model.Event) error) error {
			return a.Events(newDecoder(emit, req.Tools).event, errNoStop)
		},
	}, yield)
}
