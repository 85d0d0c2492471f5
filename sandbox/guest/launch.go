package guest

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guest/early"
	"github.com/heddle-dev/heddle/sandbox/guest/spawn"
	"github.com/heddle-dev/heddle/sandbox/seccomp"
)

// launcher starts processes with what the setup asks for. Its caller holds server.mu.
type launcher struct {
	spawner   *spawn.Spawner
	domain    int // Landlock ruleset with the signal scope, or -1
	supervise bool
	alone     bool // a second filter, but nothing is handed over
}

// prepareLaunches makes what launch needs.
func (s *server) prepareLaunches() error {
	l := &launcher{domain: -1, supervise: s.setup.Connect}
	var err error
	if s.setup.Scope {
		if l.domain, err = signalDomain(s.setup.Landlock); err != nil {
			return err
		}
	}
	var calls []unix.SockFilter
	switch {
	case l.supervise:
		calls = seccomp.SuperviseProgram()
	case s.setup.Landlock:
		calls, l.alone = seccomp.AloneProgram(), true
	}
	l.spawner, err = spawn.New(calls)
	s.launcher = l
	return err
}

// signalDomain makes the rules of a domain from which processes outside cannot be signalled. Each process that
// enters it gets a domain of its own, although the rules are the same. Below a domain with rules for files, one
// without any would forbid links and renames between directories, so it then has one rule, which allows them.
func signalDomain(below bool) (int, error) {
	attr := struct{ fs, net, scoped uint64 }{scoped: 1 << 1}
	if below {
		attr.fs = unix.LANDLOCK_ACCESS_FS_REFER
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return -1, fmt.Errorf("make signal domain: %w", errno)
	}
	if !below {
		return int(fd), nil
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make signal domain: %w", err)
	}
	defer unix.Close(root)
	var rule [12]byte // struct landlock_path_beneath_attr is packed
	*(*uint64)(unsafe.Pointer(&rule[0])) = attr.fs
	*(*int32)(unsafe.Pointer(&rule[8])) = int32(root)
	if _, _, errno = unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule[0])), 0, 0, 0); errno != 0 {
		return -1, fmt.Errorf("make signal domain: %w", errno)
	}
	return int(fd), nil
}

// launch starts a process; its connect calls, if they are supervised, are served until it and what it started end.
// A shim puts the signal domain on the command itself.
func (s *server) launch(id uint64, r spawn.Request, shim bool) (pid int, err error) {
	r.TimerSlack, r.Supervise, r.Domain = early.TimerSlack, s.launcher.supervise, s.launcher.domain
	r.Filter = s.launcher.alone
	if shim {
		r.Domain = -1
	}
	pid, listener, err := s.launcher.spawner.Start(r)
	if listener >= 0 {
		go s.calls.follow(id, listener)
	}
	s.wakeReaper() // a start that failed leaves a child too
	return pid, err
}

// wakeReaper tells that there may be children to wait for.
func (s *server) wakeReaper() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}
