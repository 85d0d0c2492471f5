//go:build cgo

// Package spawn starts the processes of a sandbox, with what each is to have of its own: a session, a cgroup, a
// Landlock domain, a filter that hands calls to a supervisor.
//
// It does in C what os/exec would do in more steps, because the start of a command is on the way of everything.
// One Spawner may be used by one goroutine at a time.
package spawn

// #include <stdlib.h>
// #include "spawn.h"
import "C"

import (
	"bytes"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Spawner starts processes.
type Spawner struct {
	channel [2]C.int
	calls   *C.struct_sock_fprog
}

// New makes a Spawner. calls is the filter for Request.Supervise and Request.Filter; nil when that is not used.
func New(calls []unix.SockFilter) (*Spawner, error) {
	s := &Spawner{}
	if len(calls) == 0 {
		return s, nil
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make channel for listeners: %w", err)
	}
	s.channel = [2]C.int{C.int(pair[0]), C.int(pair[1])}
	// In memory of C's own, for the life of the process.
	size := len(calls) * int(unsafe.Sizeof(calls[0]))
	filter := C.CBytes(unsafe.Slice((*byte)(unsafe.Pointer(&calls[0])), size))
	s.calls = (*C.struct_sock_fprog)(C.calloc(1, C.size_t(unsafe.Sizeof(C.struct_sock_fprog{}))))
	s.calls.len = C.ushort(len(calls))
	s.calls.filter = (*C.struct_sock_filter)(filter)
	return s, nil
}

// Start starts a process and returns its id, and with Supervise the descriptor that its calls arrive at. Whoever
// waits for the children of this process waits for it, also when starting it failed halfway.
func (s *Spawner) Start(r Request) (pid, listener int, err error) {
	argv, keepArgv, err := vector(r.Argv)
	if err != nil {
		return 0, -1, err
	}
	env, keepEnv, err := vector(r.Env)
	if err != nil {
		return 0, -1, err
	}
	path, keepPath, err := vector([]string{r.Path, r.Dir})
	if err != nil {
		return 0, -1, err
	}
	c := &C.struct_spawn{extra: C.int(r.Extra), cgroup: C.int(r.Cgroup), domain: C.int(r.Domain), death: C.int(r.DeathSignal),
		slack: C.ulong(r.TimerSlack), channel: s.channel}
	for i, fd := range r.Stdio {
		c.stdio[i] = C.int(fd)
	}
	if r.Terminal {
		c.terminal = 1
	}
	if r.Supervise || r.Filter {
		c.calls = s.calls
	}
	if r.Supervise {
		c.listen = 1
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, p := range []*byte{keepArgv, keepEnv, keepPath} {
		pin.Pin(p)
	}
	pin.Pin(&argv[0])
	pin.Pin(&env[0])
	c.argv, c.envp = (**C.char)(unsafe.Pointer(&argv[0])), (**C.char)(unsafe.Pointer(&env[0]))
	c.path, c.dir = (*C.char)(unsafe.Pointer(path[0])), (*C.char)(unsafe.Pointer(path[1]))
	n := C.spawn(c)
	if n < 0 {
		return 0, -1, syscall.Errno(c.err)
	}
	return int(n), int(c.listener), nil
}

// vector lays strings out as execve wants them: pointers into one block, and a nil at the end.
func vector(list []string) (ptrs []*byte, block *byte, err error) {
	n := 1
	for _, s := range list {
		n += len(s) + 1
	}
	b := make([]byte, 0, n)
	ptrs = make([]*byte, 0, len(list)+1)
	for _, s := range list {
		at := len(b)
		b = append(append(b, s...), 0)
		if bytes.IndexByte(b[at:len(b)-1], 0) >= 0 {
			return nil, nil, syscall.EINVAL
		}
		ptrs = append(ptrs, &b[at])
	}
	return append(ptrs, nil), &b[:1][0], nil
}
