package guest

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guest/early"
	"github.com/heddle-dev/heddle/sandbox/seccomp"
)

// launcher is a thread that starts one process and ends. What it has put on itself, the process inherits: a signal
// domain of its own, and the supervision of connect. Neither can be taken off again, so no other goroutine may
// ever run on such a thread. One is kept ready, because making it takes longer than what it is for.
type launcher struct {
	listener int // for the calls of connect, or -1
	err      error
	jobs     chan launch
}

type launch struct {
	exe  string
	argv []string
	attr *syscall.ProcAttr
	done chan<- launched
}

type launched struct {
	pid int
	err error
}

// launchers makes and keeps launchers of one kind.
type launchers struct {
	domain  int // Landlock ruleset with the signal scope, or -1
	connect bool
	ready   chan *launcher
}

func newLaunchers(scope, connect bool) (*launchers, error) {
	l := &launchers{domain: -1, connect: connect, ready: make(chan *launcher, 1)}
	if scope {
		var err error
		if l.domain, err = signalDomain(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// take returns a launcher, and has the next one made.
func (l *launchers) take() *launcher {
	defer func() {
		go func() {
			n := l.make()
			select {
			case l.ready <- n:
			default: // another is ready already
				close(n.jobs)
			}
		}()
	}()
	select {
	case n := <-l.ready:
		return n
	default:
		return l.make()
	}
}

func (l *launchers) make() *launcher {
	n := &launcher{listener: -1, jobs: make(chan launch)}
	made := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		n.err = n.restrict(l)
		close(made)
		j, ok := <-n.jobs
		if !ok {
			if n.listener >= 0 {
				unix.Close(n.listener)
			}
			return
		}
		pid, err := syscall.ForkExec(j.exe, j.argv, j.attr)
		j.done <- launched{pid, err}
	}()
	<-made
	return n
}

func (n *launcher) restrict(l *launchers) error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, early.TimerSlack, 0, 0, 0); err != nil {
		return fmt.Errorf("reset timer slack: %w", err)
	}
	if l.domain >= 0 {
		// Each call makes a domain of its own, although the rules are the same.
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(l.domain), 0, 0); errno != 0 {
			return fmt.Errorf("enter signal domain: %w", errno)
		}
	}
	if l.connect {
		var err error
		if n.listener, err = seccomp.Supervise(); err != nil {
			return err
		}
	}
	return nil
}

// signalDomain makes the rules of a domain from which processes outside cannot be signalled.
func signalDomain() (int, error) {
	attr := struct{ fs, net, scoped uint64 }{scoped: 1 << 1}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return -1, fmt.Errorf("make signal domain: %w", errno)
	}
	return int(fd), nil
}

// launch starts a process with what the setup asks for. A shim puts the signal domain on the command itself.
func (s *server) launch(id uint64, exe string, argv []string, attr *syscall.ProcAttr, shim bool) (pid int, err error) {
	l := s.launchers
	if shim {
		l = s.shimLaunchers
	}
	if l == nil {
		return syscall.ForkExec(exe, argv, attr)
	}
	n := l.take()
	if n.err != nil {
		close(n.jobs)
		return 0, n.err
	}
	done := make(chan launched, 1)
	n.jobs <- launch{exe, argv, attr, done}
	r := <-done
	if n.listener >= 0 {
		go s.calls.follow(id, n.listener) // ends at once when there is no process
	}
	return r.pid, r.err
}

// prepareLaunches makes what launch needs, and the first thread.
func (s *server) prepareLaunches() (err error) {
	if s.launchers, err = newLaunchers(s.setup.Scope, s.setup.Connect); err != nil {
		return err
	}
	s.launchers.ready <- s.launchers.make()
	if s.setup.Connect && s.setup.Shim {
		s.shimLaunchers, err = newLaunchers(false, true)
	}
	return err
}
