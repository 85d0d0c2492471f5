// Package chat is the client for services that speak the OpenAI Chat Completions
// API: OpenAI itself and the many servers that follow it (Ollama, vLLM,
// llama.cpp, LM Studio, OpenRouter and others).
//
// These servers differ in what they leave out and how they cut a tool call into
// pieces; the decoder takes whatever is unambiguous. Sending, retries and failures
// are those of package httpstream. A Client is safe for concurrent use.
package chat

import (
	"context"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/httpstream"
)

// Config says where and how to ask. BaseURL is the address up to and with the
// version, as in http://HOST/v1; APIKey is sent as a bearer token.
type Config = httpstream.Config

// Client implements model.Client.
type Client struct{ stream *httpstream.Stream }

// New returns a client; a base URL that is no http or https URL is an error.
func New(cfg Config) (*Client, error) {
	cfg.Headers, cfg.Refused = httpstream.Bearer(cfg.APIKey, cfg.Headers), model.RefusedBy
	s, err := httpstream.New(cfg, "chat", "completions")
	if err != nil {
		return nil, err
	}
	return &Client{stream: s}, nil
}

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, yield func(model.Event) error) error {
	return c.stream.Do(ctx, httpstream.Call{
		Encode:   func(drop map[string]bool) ([]byte, error) { return encodeRequest(req, drop) },
		Optional: optional,
		Request:  req,
		Decode: func(a *httpstream.Answer, emit func(model.Event) error) error {
			return newDecoder(emit, req.Tools).decode(a)
		},
	}, yield)
}
