// Package guest is the program inside a sandbox: it starts commands and performs file actions for the owner.
//
// At contained levels it is PID 1 and opens no path of its own binary: it runs from a sealed descriptor. Its
// only link to the outside is one socket. When that reaches end of file, or the fence passes, it ends, and the
// kernel ends every process of the namespace with it. Without namespaces it ends them itself before it goes.
// Output never passes through it: standard streams are descriptors made by the owner.
package guest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
	"github.com/heddle-dev/heddle/sandbox/seccomp"
)

const (
	controlFD = 3 // the socket to the owner
	binaryFD  = 4 // this program, for the subreaper

	// maxBusy bounds requests handled at the same time; more wait in the socket.
	maxBusy = 64
)

type server struct {
	conn     *guestproto.Conn
	setup    guestproto.Setup
	killFD   int // open cgroup.kill of the sandbox's commands, or -1
	null     *os.File
	fence    *fence
	calls    *connector // nil when connect is not supervised
	launcher *launcher
	over     atomic.Bool // everything is being ended: single ends are no longer told

	mu    sync.Mutex // held while a process is made, so that its end is not seen before its record
	procs map[uint64]*process
	pids  map[int]*process
	// direct tells that one command runs without a shim although there are no cgroups.
	direct bool
	more   chan struct{} // wakes the reaper
}

// Main runs the guest and never returns.
func Main() {
	// Whatever else was inherited must not reach a command.
	if err := unix.CloseRange(controlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		for fd := controlFD; fd < 1024; fd++ { // kernels before 5.11
			unix.CloseOnExec(fd)
		}
	}
	fmt.Fprintln(os.Stderr, "heddle-guest:", serve())
	os.Exit(1)
}

// serve works until the owner goes away, which ends the process; it returns only what prevented that.
func serve() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make process undumpable: %w", err)
	}
	drainSignals()
	debug.SetGCPercent(50)
	conn, err := guestproto.NewConn(controlFD)
	if err != nil {
		return err
	}
	s := &server{conn: conn, killFD: -1, procs: map[uint64]*process{}, pids: map[int]*process{}, more: make(chan struct{}, 1)}
	if s.null, err = os.OpenFile("/dev/null", os.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if err := s.configure(); err != nil {
		return err
	}
	go s.reap()
	busy := make(chan struct{}, maxBusy)
	for {
		m, err := conn.Recv()
		if err != nil {
			s.endAll() // the owner is gone, or wants us gone
		}
		s.dispatch(m, busy)
	}
}

// drainSignals catches every signal without acting on it. Ignoring them would be inherited by commands.
func drainSignals() {
	c := make(chan os.Signal, 16)
	signal.Notify(c)
	signal.Reset(unix.SIGPIPE, unix.SIGURG)
	go func() {
		for range c {
		}
	}()
}

// configure waits for the first frame and applies it.
func (s *server) configure() error {
	m, err := s.conn.Recv()
	if err != nil {
		return fmt.Errorf("wait for setup: %w", err)
	}
	err = s.apply(m)
	r := guestproto.Reply{}
	if err != nil {
		r = failure(err)
	}
	if serr := s.conn.Send(guestproto.KReply, m.ID, r.Encode()); serr != nil {
		return serr
	}
	return err
}

func (s *server) apply(m guestproto.Msg) error {
	var err error
	if s.setup, err = guestproto.DecodeSetup(m.Body); err != nil {
		return err
	}
	if m.Kind != guestproto.KSetup || s.setup.Version != guestproto.Version {
		return fmt.Errorf("owner speaks version %d, guest %d", s.setup.Version, guestproto.Version)
	}
	s.killFD = m.TakeFile(0)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("turn off core files: %w", err)
	}
	if n := s.setup.FileBytes; n > 0 {
		lim := unix.Rlimit{Cur: uint64(n), Max: uint64(n)}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
			return fmt.Errorf("limit file size: %w", err)
		}
	}
	if n := s.setup.Pids; n > 0 {
		lim := unix.Rlimit{Cur: uint64(n), Max: uint64(n)}
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &lim); err != nil {
			return fmt.Errorf("limit the number of processes: %w", err)
		}
	}
	if s.fence, err = newFence(s.endAll); err != nil {
		return err
	}
	if !s.setup.Contained {
		if s.setup.Landlock {
			if err := seccomp.Install(seccomp.Options{Alone: true, Frozen: s.setup.Frozen}); err != nil {
				return err
			}
		}
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("become subreaper: %w", err)
		}
		return s.prepareLaunches()
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if s.setup.Connect {
		s.calls = newConnector(s.setup.HostTmp, s.denied)
	}
	if err := seccomp.Install(seccomp.Options{Supervised: s.setup.Connect}); err != nil {
		return err
	}
	return s.prepareLaunches()
}

func (s *server) dispatch(m guestproto.Msg, busy chan struct{}) {
	switch m.Kind {
	case guestproto.KSignal:
		d := guestproto.Dec{B: m.Body}
		s.signal(m.ID, syscall.Signal(d.Int()))
	case guestproto.KKill:
		s.kill(m.ID)
	case guestproto.KDeadline:
		d := guestproto.Dec{B: m.Body}
		s.fence.set(d.Int())
	case guestproto.KStart, guestproto.KFile, guestproto.KListen:
		busy <- struct{}{}
		go func() {
			defer func() { <-busy }()
			defer m.CloseFiles()
			switch m.Kind {
			case guestproto.KStart:
				s.start(&m)
			case guestproto.KListen:
				s.listen(&m)
			default:
				s.file(&m)
			}
		}()
	default:
		m.CloseFiles()
	}
}

// endAll ends every process of the sandbox and the guest. As PID 1 going away is enough.
func (s *server) endAll() {
	if s.setup.Contained {
		os.Exit(0)
	}
	s.over.Store(true)
	if s.killFD >= 0 {
		unix.Write(s.killFD, []byte("1"))
	}
	if s.setup.Shim {
		s.endShims()
	}
	os.Exit(0)
}

// reply sends an answer. A send error means that the owner is gone, which Recv notices.
func (s *server) reply(id uint64, r guestproto.Reply, fds ...int) {
	_ = s.conn.Send(guestproto.KReply, id, r.Encode(), fds...)
}

// failure carries err to the owner; the errno travels as a number so that errors.Is works there.
func failure(err error) guestproto.Reply {
	r := guestproto.Reply{Errno: int(unix.EIO), Text: err.Error()}
	var e syscall.Errno
	if errors.As(err, &e) {
		r.Errno = int(e)
	}
	return r
}
