//go:build !cgo

package spawn

import (
	"errors"

	"golang.org/x/sys/unix"
)

// The helper is always built with cgo; this keeps the tools working that look at its packages without.

var errNoCgo = errors.New("built without cgo: no process can be started")

// Spawner starts processes.
type Spawner struct{}

// New fails in this build.
func New([]unix.SockFilter) (*Spawner, error) { return nil, errNoCgo }

// Start fails in this build.
func (*Spawner) Start(Request) (pid, listener int, err error) { return 0, -1, errNoCgo }
