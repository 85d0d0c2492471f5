package controlplane

import (
	"context"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

// sweep removes what is left in the home of threads that were deleted while this
// or an earlier process died. Whatever cannot be read is kept: a repair may bring
// it back.
func (c *ControlPlane) sweep(ctx context.Context) {
	if c.cfg.Store == "memory" {
		return
	}
	n, err := c.outputs.Sweep(func(threadID string) (bool, error) {
		if err := ctx.Err(); err != nil {
			return true, err
		}
		_, err := c.store.Thread(ctx, threadID)
		return !errdefs.Is(err, errdefs.ThreadNotFound), nil
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.cfg.Logger.Warn("sweep what deleted threads left", "error", err)
	case n > 0:
		c.cfg.Logger.Info("swept what deleted threads left", "folders", n)
	}
}
