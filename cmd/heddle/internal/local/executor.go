package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ExecutorConfig describes the executor process that a control plane keeps.
type ExecutorConfig struct {
	// Exe is the program; default this one.
	Exe string
	// Args are the arguments for an executor that serves the control plane at
	// an address. ExecutorLockFD is open in the process.
	Args func(address string) []string
	// Output receives what the process writes.
	Output *os.File
	// Tied kills the executor at once when this process dies. Without it the
	// executor goes on until its fence deadline, for the next control plane.
	Tied bool
}

// ExecutorLockFD is the descriptor in an executor process that holds the
// executor lock. The process must close it on exec.
const ExecutorLockFD = 3

// Times of the executor keeper.
const (
	executorBackoffMin = 100 * time.Millisecond
	executorBackoffMax = 5 * time.Second
	// executorHealthy is how long one must have lived to reset the backoff.
	executorHealthy = 10 * time.Second
	// executorStop is how long one may take to end its sandboxes.
	executorStop = 5 * time.Second
	adoptedPoll  = 100 * time.Millisecond
)

// errLeave ends a keeper without ending its executor.
var errLeave = errors.New("the executor goes on")

func leaving(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errLeave) }

// executorKeeper keeps exactly one executor alive for the home.
type executorKeeper struct {
	cfg      ExecutorConfig
	args     []string
	lockPath string
	exited   func(pid int, err error)
	log      *slog.Logger
}

// run returns when ctx ended and no executor of the home is left, unless it is
// to be left.
func (k *executorKeeper) run(ctx context.Context) {
	backoff := executorBackoffMin
	for {
		lock, err := k.lock(ctx)
		if err != nil {
			return // ctx ended, and the one that held the lock was ended with it
		}
		began := time.Now()
		pid, err := k.once(ctx, lock)
		if ctx.Err() != nil {
			return
		}
		if why := lastWords(k.cfg.Output); why != "" {
			err = fmt.Errorf("%s (%w)", why, err)
		}
		k.log.Warn("executor ended", "pid", pid, "error", err)
		k.exited(pid, err)
		if time.Since(began) > executorHealthy {
			backoff = executorBackoffMin
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
		backoff = min(backoff*2, executorBackoffMax)
	}
}

// lock waits for the end of an executor that outlived an earlier control plane.
func (k *executorKeeper) lock(ctx context.Context) (*fileLock, error) {
	quick, cancel := context.WithTimeout(ctx, time.Millisecond)
	lock, err := acquireLock(quick, k.lockPath)
	cancel()
	if err == nil || ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
		return lock, err
	}
	pid := holder(k.lockPath)
	k.log.Info("an executor of an earlier control plane is alive", "pid", pid)
	for {
		select {
		case <-ctx.Done():
			if !leaving(ctx) {
				k.endAdopted(pid)
			}
			return nil, ctx.Err()
		case <-time.After(adoptedPoll):
		}
		quick, cancel := context.WithTimeout(ctx, time.Millisecond)
		lock, err := acquireLock(quick, k.lockPath)
		cancel()
		if err == nil {
			k.exited(pid, errors.New("executor of an earlier control plane ended"))
			return lock, nil
		}
	}
}

// endAdopted ends a process that is not a child of ours. While it holds the
// lock its number cannot belong to another process.
func (k *executorKeeper) endAdopted(pid int) {
	if pid <= 0 {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		lock, err := acquireLock(ctx, k.lockPath)
		cancel()
		if err == nil {
			lock.release()
			return
		}
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(executorStop.Milliseconds()))
	}
}

// once runs one executor to its end. It takes over the lock.
func (k *executorKeeper) once(ctx context.Context, lock *fileLock) (pid int, err error) {
	exe := k.cfg.Exe
	if exe == "" {
		exe = executable()
	}
	stdin, parent, err := os.Pipe()
	if err != nil {
		lock.release()
		return 0, err
	}
	defer parent.Close() // its end is the parent's death notice
	cmd := exec.Command(exe, k.args...)
	cmd.Args[0] = "heddle"
	cmd.Dir = "/"
	cmd.Env = pick(os.Environ(), withFailpoints(executorEnv))
	cmd.Stdin = stdin
	if k.cfg.Output != nil {
		cmd.Stdout, cmd.Stderr = k.cfg.Output, k.cfg.Output
	}
	cmd.ExtraFiles = []*os.File{lock.f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if k.cfg.Tied {
		// The signal comes when the thread that forked ends, so it must live.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	err = cmd.Start()
	_ = stdin.Close()
	if err != nil {
		lock.release()
		return 0, err
	}
	pid = cmd.Process.Pid
	noteErr := lock.note(pid)
	lock.release() // the process holds it now
	if noteErr != nil {
		k.log.Warn("executor lock cannot be labelled", "error", noteErr)
	}
	k.log.Info("executor started", "pid", pid)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err = <-done:
		if err == nil {
			err = io.EOF
		}
		return pid, err
	case <-ctx.Done():
	}
	if leaving(ctx) {
		return pid, nil
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err = <-done:
	case <-time.After(executorStop):
		_ = cmd.Process.Kill()
		err = <-done
	}
	return pid, err
}

// lastWordsMax is how much of the log's end is looked at.
const lastWordsMax = 4 << 10

// lastWords finds what a process that ended with an error said at last: the
// final "heddle: ..." line of the log that it wrote to.
func lastWords(out *os.File) string {
	if out == nil {
		return ""
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", out.Fd()))
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return "" // a terminal or a pipe has shown it already
	}
	data := make([]byte, lastWordsMax)
	n, _ := f.ReadAt(data, max(0, info.Size()-lastWordsMax))
	lines := strings.Split(strings.TrimRight(string(data[:n]), "\n"), "\n")
	if said, ok := strings.CutPrefix(lines[len(lines)-1], "heddle: "); ok {
		return said
	}
	return ""
}
