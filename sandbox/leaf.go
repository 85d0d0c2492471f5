package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// maxFreeLeaves bounds the cgroups that an instance keeps for its next commands.
const maxFreeLeaves = 4

// killLimit is how long processes that were killed are waited for. Killing is certain; a task in the kernel's
// uninterruptible sleep can only be waited for.
const killLimit = 30 * time.Second

// leaves are the cgroups of one instance's commands. One that a command left empty is used again: making and
// removing it costs more than a command that does little. Commands that can change their own cgroup get a new one
// each, and one that was killed is not used again: kernels since 6.14 end at once what is born into it.
type leaves struct {
	dir   string // the instance's cgroup; empty: there are none
	reuse bool

	mu     sync.Mutex
	made   uint64
	free   []*leaf
	closed bool
}

// leaf is the cgroup of one command.
type leaf struct {
	dir    string
	fd     int // O_PATH, for starting into it
	events int // tells whether it holds live processes

	mu     sync.Mutex
	over   bool // the command has ended: the cgroup may be another's
	killed bool
}

// prepare makes the cgroup of the first command.
func (ls *leaves) prepare() error {
	if ls.dir == "" {
		return nil
	}
	l, err := ls.take()
	if err == nil {
		l.over = true
		ls.put(l)
	}
	return err
}

// take returns an empty cgroup.
func (ls *leaves) take() (*leaf, error) {
	ls.mu.Lock()
	if n := len(ls.free); n > 0 {
		old := ls.free[n-1]
		ls.free = ls.free[:n-1]
		ls.mu.Unlock()
		return &leaf{dir: old.dir, fd: old.fd, events: old.events}, nil // whoever holds the old one can end nothing
	}
	ls.made++
	dir := filepath.Join(ls.dir, "c"+strconv.FormatUint(ls.made, 10))
	ls.mu.Unlock()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make cgroup of a command: %w", err)
	}
	return openLeaf(dir)
}

func openLeaf(dir string) (*leaf, error) {
	l := &leaf{dir: dir, fd: -1, events: -1}
	var err error
	if l.fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		l.events, err = unix.Open(filepath.Join(dir, "cgroup.events"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		l.close()
		_ = os.Remove(dir)
		return nil, fmt.Errorf("open cgroup of a command: %w", err)
	}
	return l, nil
}

// put takes back an empty cgroup whose command has ended, to be used again or removed.
func (ls *leaves) put(l *leaf) {
	ls.mu.Lock()
	keep := ls.reuse && !l.killed && !ls.closed && len(ls.free) < maxFreeLeaves
	if keep {
		ls.free = append(ls.free, l)
	}
	ls.mu.Unlock()
	if !keep {
		l.close()
		_ = guestproto.RemoveCgroup(l.dir)
	}
}

// close gives up the descriptors; the directories are removed with the instance's.
func (ls *leaves) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, l := range ls.free {
		l.close()
	}
	ls.free = nil
}

// forget gives up a cgroup that nothing is left of.
func (l *leaf) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.close()
}

func (l *leaf) close() { closeFDs([]int{l.fd, l.events}) }

// kill ends everything in the cgroup of a command that has not ended.
func (l *leaf) kill() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return os.ErrProcessDone
	}
	l.killed = true
	return os.WriteFile(filepath.Join(l.dir, "cgroup.kill"), []byte("1"), 0)
}

// finish waits up to grace for a command's cgroup to drain, kills what is left, and gives the cgroup back. It
// reports whether anything had to be killed.
func (ls *leaves) finish(l *leaf, grace time.Duration) (killed bool, err error) {
	if l.waitEmpty(grace) {
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
		ls.put(l)
		return false, nil
	}
	if err := l.kill(); err != nil {
		return true, err
	}
	if !l.waitEmpty(killLimit) {
		return true, fmt.Errorf("processes of %s do not end", l.dir)
	}
	l.forget()
	return true, guestproto.RemoveCgroup(l.dir)
}

// waitEmpty waits until the cgroup holds no live process.
func (l *leaf) waitEmpty(limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	var buf [128]byte
	for {
		n, err := unix.Pread(l.events, buf[:], 0)
		if errors.Is(err, syscall.ENODEV) || err == nil && strings.Contains(string(buf[:n]), "populated 0") {
			return true // empty, or removed as only an empty one can be
		}
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		fds := []unix.PollFd{{Fd: int32(l.events), Events: unix.POLLPRI}}
		_, _ = unix.Poll(fds, int(left.Milliseconds())+1) // woken by every change of the file
	}
}
