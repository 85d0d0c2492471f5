// Package scripted plays a YAML script in place of a model.
package scripted

import (
	"context"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
)

// ModelName is the model name that a scripted provider shows.
const ModelName = "scripted"

// Script is a parsed script.
type Script struct{}

// Parse reads a script; errors name the file and line.
func Parse(name string, data []byte) (*Script, error) { return &Script{}, nil }

// Client implements model.Client by playing a script.
type Client struct{ script *Script }

// New returns a client. It holds the position of each thread, so that one client
// must serve a thread for as long as the process lives.
func New(s *Script) *Client { return &Client{script: s} }

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, yield func(model.Event) error) error {
	return &model.Error{Kind: model.KindOther, Message: "not implemented"}
}
