package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guest/early"
	"github.com/heddle-dev/heddle/sandbox/guest/spawn"
	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// process is one running command. Its fields are guarded by server.mu.
type process struct {
	id      uint64
	pid     int // of the main process, also its session and process group
	shimPID int // 0 without a shim
	alive   bool
	direct  bool // without cgroups, but also without a shim, see server.direct
	killed  bool
	reaped  chan struct{} // closed when the shim was waited for
}

// streams are the descriptors of a command's start, in the order of the protocol.
type streams struct {
	cgroup      int
	stdio       [3]int
	master, tty int
}

// start runs a command and answers; the end follows as a frame of its own.
func (s *server) start(m *guestproto.Msg) {
	req, err := guestproto.DecodeStart(m.Body)
	if err == nil && len(req.Argv) == 0 {
		err = errors.New("empty command")
	}
	if err != nil {
		s.reply(m.ID, failure(err))
		return
	}
	dir, err := openWorkDir(req, s.setup.Contained || s.setup.Landlock)
	if err != nil {
		r := failure(err)
		r.Body = []byte("dir")
		s.reply(m.ID, r)
		return
	}
	if req.Below != "" { // by its descriptor, because what leads to it may change
		req.Dir = "/proc/self/fd/" + strconv.Itoa(int(dir.Fd()))
	}
	defer dir.Close()
	st, err := s.takeStreams(m, req)
	if err != nil {
		s.reply(m.ID, failure(err))
		return
	}
	if st.tty >= 0 {
		defer unix.Close(st.tty)
		defer unix.Close(st.master)
	}
	path, code, text := lookPath(req.Argv[0], req.Env, req.Dir)
	if below, ok := strings.CutPrefix(path, req.Dir+"/"); ok && req.Below != "" {
		path = "./" + below // a subreaper in between does not have the descriptor
	}
	if code == 0 {
		if code, text = s.spawn(m.ID, path, req, st); code == 0 {
			return
		}
	}
	fmt.Fprintf(fdWriter(st.stdio[2]), "heddle: %s\n", text)
	s.sendStarted(m.ID, 0, st)
	s.sendExit(m.ID, guestproto.Exit{Status: uint32(code) << 8})
}

func (s *server) takeStreams(m *guestproto.Msg, req guestproto.Start) (st streams, err error) {
	st.cgroup, st.master, st.tty = -1, -1, -1
	null := int(s.null.Fd())
	st.stdio = [3]int{null, null, null}
	next := 0
	take := func(want bool, to *int) { // descriptors stay in m and are closed with it
		if want && next < len(m.Files) {
			*to = m.Files[next]
			next++
		}
	}
	take(req.HasCgroup, &st.cgroup)
	take(req.HasStdin, &st.stdio[0])
	take(req.HasStdout, &st.stdio[1])
	st.stdio[2] = st.stdio[1]
	take(req.HasStderr, &st.stdio[2])
	if req.GivenTTY {
		st.stdio = [3]int{st.stdio[0], st.stdio[0], st.stdio[0]}
	} else if req.TTY {
		if st.master, st.tty, err = guestproto.OpenTerminal(req.Rows, req.Cols); err == nil {
			st.stdio = [3]int{st.tty, st.tty, st.tty}
		}
	}
	return st, err
}

// spawn makes the process. A code other than 0 is the exit status for a command that could not be executed.
func (s *server) spawn(id uint64, path string, req guestproto.Start, st streams) (code int, text string) {
	r := spawn.Request{Path: path, Argv: req.Argv, Env: req.Env, Dir: req.Dir, Stdio: st.stdio, Extra: -1, Cgroup: -1}
	var report *os.File
	p := &process{id: id, alive: true, reaped: make(chan struct{}), direct: s.claimDirect()}
	if s.setup.Shim && !p.direct {
		read, write, err := os.Pipe()
		if err != nil {
			return 126, err.Error()
		}
		defer write.Close()
		report = read
		r.Extra = int(write.Fd())
		r.Argv = append([]string{early.ShimArg0, s.shimFlags(req.TTY), strconv.Itoa(s.setup.GraceMS), path}, req.Argv...)
		r.Path = "/proc/self/fd/" + strconv.Itoa(binaryFD)
		if !s.setup.Contained {
			r.DeathSignal = int(unix.SIGUSR1) // a killed guest ends its commands; our threads never end before it
		}
	} else {
		r.Terminal, r.Cgroup = req.TTY, st.cgroup
	}
	s.mu.Lock()
	pid, err := s.launch(id, r, report != nil)
	if err != nil {
		if p.direct {
			s.direct = false
		}
		s.mu.Unlock()
		if report != nil {
			report.Close()
		}
		return execFailure(req.Argv[0], err)
	}
	p.pid = pid
	if report != nil {
		p.shimPID = pid
	}
	s.procs[id], s.pids[pid] = p, p
	if report == nil {
		s.sendStarted(id, pid, st)
	}
	s.mu.Unlock()
	if report != nil {
		return s.followShim(p, report, req.Argv[0], st)
	}
	return 0, ""
}

// claimDirect reserves the one place for a command that needs no shim although there are no cgroups: everything in
// the namespace that is not below a shim is then its own. At full access a shim is always used, because it
// outlives a killed guest.
func (s *server) claimDirect() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.setup.Shim || !s.setup.Contained || s.direct {
		return false
	}
	s.direct = true
	return true
}

func (s *server) shimFlags(tty bool) string {
	f := "-"
	if tty {
		f += "t"
	}
	if s.setup.Scope {
		f += "s"
		if s.setup.Landlock {
			f += "l"
		}
	}
	return f
}

func (s *server) sendStarted(id uint64, pid int, st streams) {
	var e guestproto.Enc
	e.Uint(uint64(pid))
	if st.master >= 0 {
		s.reply(id, guestproto.Reply{Body: e.B}, st.master)
		return
	}
	s.reply(id, guestproto.Reply{Body: e.B})
}

func (s *server) sendExit(id uint64, x guestproto.Exit) {
	if !s.over.Load() {
		_ = s.conn.Send(guestproto.KExit, id, x.Encode())
	}
}

func (s *server) signal(id uint64, sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.procs[id]; p != nil && p.alive && p.pid > 1 && (p.shimPID == 0 || p.pid != p.shimPID) {
		_ = syscall.Kill(-p.pid, sig)
	}
}

// kill ends a command at once: its process group, and through the shim everything else.
func (s *server) kill(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.procs[id]
	switch {
	case p == nil || !p.alive:
	case p.shimPID != 0:
		_ = syscall.Kill(p.shimPID, unix.SIGUSR1)
	default:
		p.killed = true // its end kills what is outside of its group
		_ = syscall.Kill(-p.pid, unix.SIGKILL)
		_ = syscall.Kill(p.pid, unix.SIGKILL)
	}
}

// openWorkDir opens the directory that a command starts in.
func openWorkDir(req guestproto.Start, contained bool) (_ *os.File, err error) {
	fail := func(err error) (*os.File, error) {
		return nil, &os.PathError{Op: "use working directory", Path: req.Dir, Err: err}
	}
	if !filepath.IsAbs(req.Dir) {
		return fail(syscall.EINVAL)
	}
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	at, name := unix.AT_FDCWD, req.Dir
	if req.Below != "" {
		if at, err = unix.Openat2(unix.AT_FDCWD, req.Below, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_SYMLINKS}); err != nil {
			return fail(err)
		}
		defer unix.Close(at)
		if name, err = filepath.Rel(req.Below, req.Dir); err != nil {
			return fail(err)
		}
	}
	fd, err := unix.Openat2(at, name, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, unix.ENOSYS) {
		fd, err = unix.Openat(at, name, flags, 0)
	}
	if err != nil {
		return fail(err)
	}
	dir := os.NewFile(uintptr(fd), req.Dir)
	defer func() {
		if err != nil {
			dir.Close()
		}
	}()
	var fs unix.Statfs_t
	if err = unix.Fstatfs(fd, &fs); err != nil {
		return fail(err)
	}
	if contained && fs.Type == unix.PROC_SUPER_MAGIC {
		return fail(syscall.EACCES)
	}
	if err = unix.Faccessat2(fd, "", unix.X_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fail(err)
	}
	return dir, nil
}

// lookPath finds the program as a shell would. On failure it returns the exit status a shell would give.
func lookPath(name string, env []string, dir string) (path string, code int, text string) {
	if strings.ContainsRune(name, '/') {
		path = name
		if !filepath.IsAbs(path) {
			path = dir + "/" + path // not cleaned: dir may be a link
		}
		if err := executable(path); err != nil {
			code, text = execFailure(name, err)
			return "", code, text
		}
		return path, 0, ""
	}
	search := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	denied := false
	for _, d := range filepath.SplitList(search) {
		if !filepath.IsAbs(d) {
			d = dir + "/" + d
		}
		p := d + "/" + name
		err := executable(p)
		if err == nil {
			return p, 0, ""
		}
		denied = denied || errors.Is(err, syscall.EACCES) && exists(p)
	}
	// The reader of the text waits for the end of the start: it must fit into a pipe.
	if denied {
		return "", 126, fmt.Sprintf("%s: permission denied", clipped(name))
	}
	return "", 127, fmt.Sprintf("%s: command not found", clipped(name))
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}

func executable(p string) error {
	var st unix.Stat_t
	if err := unix.Stat(p, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return syscall.EISDIR
	}
	return unix.Faccessat(unix.AT_FDCWD, p, unix.X_OK, unix.AT_EACCESS)
}

func execFailure(name string, err error) (code int, text string) {
	code = 126
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		code = 127
	}
	what := err.Error()
	switch {
	case errors.Is(err, syscall.E2BIG):
		what = "an argument or the whole of arguments and environment is longer than the kernel allows"
	case errors.Is(err, syscall.ENOENT):
		what = "no such file or directory"
	}
	return code, fmt.Sprintf("%s: %s", clipped(name), what)
}

// clipped is a name that is fit for a message.
func clipped(name string) string {
	if len(name) > 256 {
		return name[:256] + "..."
	}
	return name
}

type fdWriter int

func (w fdWriter) Write(b []byte) (int, error) { return unix.Write(int(w), b) }
