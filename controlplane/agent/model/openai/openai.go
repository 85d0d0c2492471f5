// Package openai is the client for services that speak the OpenAI Responses API.
//
// Events are decoded here, field by field, since a delta must cost next to
// nothing. Sending, retries and failures are those of package httpstream. No
// variable of the environment is read: a key reaches a service only when its
// provider names the variable.
package openai

import (
	"context"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/httpstream"
)

// Config says where and how to ask. APIKey is sent as a bearer token.
type Config = httpstream.Config

// Client implements model.Client. Safe for concurrent use.
type Client struct{ stream *httpstream.Stream }

// New returns a client; a base URL that is no http or https URL is an error.
func New(cfg Config) (*Client, error) {
	cfg.Headers = httpstream.Bearer(cfg.APIKey, cfg.Headers)
	s, err := httpstream.New(cfg, "responses")
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
