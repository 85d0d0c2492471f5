package guest

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guest/early"
	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// reap waits for every child: commands, and orphans that ended up here.
func (s *server) reap() {
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		pid, err := syscall.Wait4(-1, &ws, 0, &ru)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no children: sleep until there is one again
			<-s.more
		default:
			s.ended(pid, ws, ru)
		}
	}
}

func (s *server) ended(pid int, ws syscall.WaitStatus, ru syscall.Rusage) {
	s.mu.Lock()
	p := s.pids[pid]
	delete(s.pids, pid)
	if p != nil && p.shimPID == 0 {
		p.alive = false
		delete(s.procs, p.id)
	}
	s.mu.Unlock()
	if p == nil {
		return
	}
	if p.shimPID != 0 { // its end is told by its report
		close(p.reaped)
		return
	}
	x := guestproto.Exit{Status: uint32(ws), UserUS: ru.Utime.Nano() / 1000, SystemUS: ru.Stime.Nano() / 1000}
	if p.direct {
		go s.endDirect(p, x) // not here: it needs this loop
		return
	}
	s.sendExit(p.id, x)
}

// endDirect ends what the one command without a shim left behind.
func (s *server) endDirect(p *process, x guestproto.Exit) {
	limit := time.Now().Add(time.Duration(s.setup.GraceMS) * time.Millisecond)
	for s.hasOrphans() {
		s.mu.Lock()
		killed := p.killed
		s.mu.Unlock()
		if killed || time.Now().After(limit) {
			x.Leftovers = true
			s.killOrphans()
			break
		}
		time.Sleep(time.Millisecond)
	}
	s.mu.Lock()
	s.direct = false
	s.mu.Unlock()
	s.sendExit(p.id, x)
}

// hasOrphans reports whether there is a child that is no command and no subreaper.
func (s *server) hasOrphans() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if errors.Is(err, unix.ECHILD) {
		return false // the usual case, for the price of one call
	}
	return len(s.orphans()) > 0
}

func (s *server) orphans() []int {
	all := children()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(all, func(pid int) bool { return s.pids[pid] != nil })
}

// followShim waits for the subreaper's first report, answers the start, and follows it to the end.
func (s *server) followShim(p *process, report *os.File, name string, st streams) (code int, text string) {
	rep, err := readReport(report)
	if err != nil || rep.kind != early.ReportStarted {
		s.forget(p)
		report.Close()
		if err == nil {
			return execFailure(name, syscall.Errno(rep.value))
		}
		return execFailure(name, errors.New("its supervisor was killed"))
	}
	s.mu.Lock()
	p.pid = int(rep.value)
	s.mu.Unlock()
	s.sendStarted(p.id, p.pid, st)
	go func() {
		defer report.Close()
		rep, err := readReport(report)
		x := guestproto.Exit{Status: uint32(rep.value), UserUS: rep.user, SystemUS: rep.sys, Leftovers: rep.leftovers}
		if err != nil {
			x = guestproto.Exit{Status: uint32(unix.SIGKILL), Leftovers: true, ShimKilled: true}
			<-p.reaped // only then are its children ours
			s.killOrphans()
		}
		s.forget(p)
		s.sendExit(p.id, x)
	}()
	return 0, ""
}

func (s *server) forget(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.alive = false
	delete(s.procs, p.id)
}

type report struct {
	kind, value int32
	user, sys   int64
	leftovers   bool
}

func readReport(f *os.File) (report, error) {
	var b [early.ReportLen]byte
	if _, err := io.ReadFull(f, b[:]); err != nil {
		return report{}, err
	}
	le := binary.NativeEndian
	return report{kind: int32(le.Uint32(b[0:])), value: int32(le.Uint32(b[4:])), user: int64(le.Uint64(b[8:])),
		sys: int64(le.Uint64(b[16:])), leftovers: le.Uint32(b[24:]) != 0}, nil
}

// killOrphans kills what a killed subreaper left: its children came to us. Every child that is not a subreaper
// is such an orphan. It repeats until none is left, because their children come next.
func (s *server) killOrphans() {
	for range 1000 {
		list := s.orphans()
		if len(list) == 0 {
			return
		}
		for _, pid := range list {
			_ = syscall.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
	s.endAll() // they multiply faster than they can be killed
}

// endShims ends every command without namespaces or cgroups, and waits until that is done.
func (s *server) endShims() {
	for range 5000 {
		s.mu.Lock()
		n := len(s.procs)
		for _, p := range s.procs {
			_ = syscall.Kill(p.shimPID, unix.SIGUSR1)
		}
		s.mu.Unlock()
		if n == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
}
