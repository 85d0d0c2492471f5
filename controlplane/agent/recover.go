package agent

import "context"

// resumption is what a turn that is continued after a restart has to finish.
type resumption struct {
	started bool
}

func (t *turn) continueCalls() error { return nil }

// Recover finds what was open.
func (a *Agent) Recover(ctx context.Context, back func(context.Context, string) bool) error {
	return nil
}

// Resume lets what Recover found go on.
func (a *Agent) Resume() {}
