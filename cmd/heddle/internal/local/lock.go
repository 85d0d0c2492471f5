package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a waiting lock is tried again.
const lockPoll = 10 * time.Millisecond

// fileLock is an advisory lock that the kernel drops when the last descriptor
// of its open file is closed, by whatever cause.
type fileLock struct{ f *os.File }

// acquireLock waits for the lock until ctx ends; the error then wraps ctx's.
func acquireLock(ctx context.Context, path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &fileLock{f: f}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}

// note writes the holder's process id into the lock file, for people and for
// whoever has to wait.
func (l *fileLock) note(pid int) error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt([]byte(strconv.Itoa(pid)+"\n"), 0)
	return err
}

// release drops the lock unless another process holds the same open file.
func (l *fileLock) release() { _ = l.f.Close() }

// holder reads the process id that was noted last; 0 when there is none.
func holder(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}
