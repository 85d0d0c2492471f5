// Package openai is the client for services that speak the OpenAI Responses API.
package openai

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
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
	StreamIdleTimeout time.Duration
	HTTPClient        *http.Client
	Logger            *slog.Logger
}

// Client implements model.Client.
type Client struct{ cfg Config }

// New returns a client.
func New(cfg Config) (*Client, error) { return &Client{cfg: cfg}, nil }

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, yield func(model.Event) error) error {
	return &model.Error{Kind: model.KindOther, Message: "not implemented"}
}
