package guestproto

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// OpenTerminal makes a pseudo-terminal in the devpts instance that this process sees.
func OpenTerminal(rows, cols uint16) (master, tty int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("open terminal: %w", err)
	}
	opened := master
	defer func() {
		if err != nil {
			unix.Close(opened)
		}
	}()
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, -1, fmt.Errorf("unlock terminal: %w", err)
	}
	// By descriptor: no path lookup that could be led elsewhere.
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		err = fmt.Errorf("open terminal peer: %w", errno)
		return -1, -1, err
	}
	tty = int(peer)
	if rows == 0 || cols == 0 {
		rows, cols = 24, 80
	}
	if err = unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		unix.Close(tty)
		return -1, -1, fmt.Errorf("size terminal: %w", err)
	}
	return master, tty, nil
}
