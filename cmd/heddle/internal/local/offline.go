package local

import (
	"context"
	"time"
)

// SocketOf is the path of a home's control socket, whether it exists or not.
func SocketOf(home string) (string, error) {
	p, err := pathsOf(home)
	return p.socket, err
}

// LockHome takes the home's lock for work on its files, so that no control plane
// can start. It fails when one runs. The returned function releases it.
func LockHome(ctx context.Context, home string) (release func(), err error) {
	p, err := pathsOf(home)
	if err != nil {
		return nil, err
	}
	lock, err := lockHome(ctx, p, time.Second)
	if err != nil {
		return nil, err
	}
	return lock.release, nil
}
