package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// maxMessage bounds one gRPC message in both directions: a page of items with
// their bounded views fits.
const maxMessage = 64 << 20

// readyFD is the descriptor on which a started process reports.
const readyFD = 3

// nothingListens tells a missing or dead listener from a refusal.
func nothingListens(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// spawn starts a detached control plane and returns when it listens. It
// outlives this process and its terminal.
func (c *Client) spawn(ctx context.Context) error {
	logFile, err := os.OpenFile(c.paths.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the control plane's log: %w", err)
	}
	defer logFile.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command(c.cfg.Exe, "controlplane", "--local", "--home", c.paths.home, "--ready-fd", fmt.Sprint(readyFD))
	cmd.Args[0] = "heddle"
	cmd.Dir = "/"
	cmd.Env = pick(os.Environ(), withFailpoints(controlPlaneEnv))
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("start the control plane: %w", err)
	}
	go func() { _ = cmd.Wait() }() // no zombie while this process lives

	answer := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(r).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			line = ""
		}
		answer <- strings.TrimSpace(line)
	}()
	// Another one may listen before ours: its starter gave up while it waited for
	// the home's lock. Ours waits for the same lock then and is not needed.
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("start the control plane: %w", context.Cause(ctx))
		case <-poll.C:
			if conn, err := c.connectOnce(ctx); err == nil {
				_ = conn.Close()
				return nil
			}
		case line := <-answer:
			if line == readyWord {
				return nil
			}
			if text, ok := strings.CutPrefix(line, errorWord); ok {
				return fmt.Errorf("the control plane could not start: %s", text)
			}
			return fmt.Errorf("the control plane ended while it started; see %s", c.paths.log)
		}
	}
}

// Words of the report on the ready descriptor.
const (
	readyWord = "ready"
	errorWord = "error "
)

// Ready reports the start of a process to the one that started it. The zero
// value reports to nobody.
type Ready struct{ f *os.File }

// NewReady takes over descriptor fd; a negative one means that nobody waits.
func NewReady(fd int) Ready {
	if fd < 0 {
		return Ready{}
	}
	syscall.CloseOnExec(fd)
	return Ready{f: os.NewFile(uintptr(fd), "ready")}
}

// Tell reports success, or err on one line, once.
func (r *Ready) Tell(err error) {
	if r.f == nil {
		return
	}
	text := readyWord
	if err != nil {
		text = errorWord + strings.Join(strings.Fields(err.Error()), " ")
	}
	_, _ = io.WriteString(r.f, text+"\n")
	_ = r.f.Close()
	r.f = nil
}
