package guest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fence fires at a time of CLOCK_BOOTTIME, which goes on while the machine sleeps.
type fence struct{ timer *os.File }

func newFence(fire func()) (*fence, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make fence timer: %w", err)
	}
	f := &fence{timer: os.NewFile(uintptr(fd), "fence")}
	go func() {
		var b [8]byte
		for {
			if n, err := f.timer.Read(b[:]); n == len(b) {
				fire()
			} else if err != nil {
				return
			}
		}
	}()
	return f, nil
}

// set moves the fence to ns nanoseconds since boot; 0 removes it. One in the past fires at once.
func (f *fence) set(ns int64) {
	spec := unix.ItimerSpec{}
	if ns > 0 {
		spec.Value = unix.NsecToTimespec(ns)
	}
	raw, err := f.timer.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { err = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil) })
	if err != nil {
		os.Exit(1) // a fence that cannot be set must not be assumed
	}
}
