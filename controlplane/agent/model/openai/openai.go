// Package openai is the client for services that speak the OpenAI Responses API.
//
// Events are decoded here, field by field, since a delta must cost next to
// nothing. Sending, retries and failures are those of package httpstream. No
// variable of the environment is read: a key reaches a service only when its
// provider names the variable.
package openai

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/httpstream"
)

// Config says where and how to ask.
type Config struct {
	// ProviderName is used in messages.
	ProviderName string
	BaseURL      string
	// APIKey is sent as a bearer token; empty sends none.
	APIKey  string
	Headers map[string]string
	Query   map[string]string
	// RequestMaxRetries is the number of silent retries of a request that did not
	// get a stream.
	RequestMaxRetries int
	// StreamIdleTimeout bounds the silence of the service, before and within a
	// stream; 0 means five minutes.
	StreamIdleTimeout time.Duration
	// HTTPClient may be nil.
	HTTPClient *http.Client
	Logger     *slog.Logger
}

// Client implements model.Client. Safe for concurrent use.
type Client struct{ stream *httpstream.Stream }

// New returns a client; a base URL that is no http or https URL is an error.
func New(cfg Config) (*Client, error) {
	headers := map[string]string{}
	if cfg.APIKey != "" {
		headers["Authorization"] = "Bearer " + cfg.APIKey
	}
	maps.Copy(headers, cfg.Headers)
	s, err := httpstream.New(httpstream.Config{
		ProviderName: cfg.ProviderName, BaseURL: cfg.BaseURL, Headers: headers, Query: cfg.Query,
		RequestMaxRetries: cfg.RequestMaxRetries, StreamIdleTimeout: cfg.StreamIdleTimeout, HTTPClient: cfg.HTTPClient, Logger: cfg.Logger,
	}, "responses")
	if err != nil {
		return nil, err
	}
	return &Client{stream: s}, nil
}

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, yield func(model.Event) error) error {
	body, err := encodeRequest(req)
	return c.stream.Do(ctx, httpstream.Call{
		Encode:  func(map[string]bool) ([]byte, error) { return body, err },
		Request: req,
		Decode:  decode,
	}, yield)
}
