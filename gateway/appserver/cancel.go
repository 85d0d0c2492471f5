package appserver

import (
	"context"
	"errors"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
)

// errCancelled ends a request that its client does not want any more.
var errCancelled = errors.New("cancelled")

// runningKey names a request that can be cancelled.
type runningKey struct {
	method string
	id     jsonrpc.ID
}

// cancellable works on a request that another one of the connection may cancel:
// it is known before the next message is read. A cancelled one is answered with
// the text.
func (c *client) cancellable(ctx context.Context, r *call, text string, work func(context.Context) (any, error)) (any, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	key, mine := runningKey{r.method, r.id}, &cancel
	c.mu.Lock()
	c.running[key] = mine
	c.mu.Unlock()
	r.later = true
	go func() {
		defer cancel(nil)
		result, err := work(ctx)
		c.mu.Lock()
		// An id that is used twice at a time names the later request.
		if c.running[key] == mine {
			delete(c.running, key)
		}
		c.mu.Unlock()
		if err != nil && errors.Is(context.Cause(ctx), errCancelled) {
			err = invalid(text)
		}
		r.finish(result, err)
	}()
	return nil, nil
}

// cancels makes the method that cancels requests of another one. To cancel what
// is over, or was never there, is no error.
func cancels(method string) entry {
	return inline(func(_ *Server, _ context.Context, r *call, p *protocol.CancelParams) (any, error) {
		id, ok := jsonrpc.ParseID(p.RequestID.Raw)
		if !ok {
			return list{}, nil
		}
		c := r.client
		c.mu.Lock()
		cancel := c.running[runningKey{method, id}]
		c.mu.Unlock()
		if cancel != nil {
			(*cancel)(errCancelled)
		}
		return list{}, nil
	})
}
