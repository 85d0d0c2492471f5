//go:build cgo

package runc

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guest/early"
	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// runCovered is Run with paths hidden before the guest begins. libcontainer takes too long for thousands of mounts, and
// the guest has no right to make any.
func (k *keeper) runCovered(c *libcontainer.Container, p *libcontainer.Process, b guestproto.Box) error {
	if err := c.Start(p); err != nil {
		return err
	}
	err := k.cover(p, b)
	if err == nil {
		err = c.Exec()
	}
	if err != nil {
		_ = p.Signal(unix.SIGKILL)
		_, _ = p.Wait()
	}
	return err
}

func (k *keeper) cover(p *libcontainer.Process, b guestproto.Box) error {
	pid, err := p.Pid()
	if err != nil {
		return err
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, name := range []string{"user", "mnt"} {
		f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/" + name)
		if err != nil {
			return fmt.Errorf("open namespace of the sandbox: %w", err)
		}
		files = append(files, f)
	}
	fd, err := unix.MemfdCreate("heddle-covers", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("list hidden paths: %w", err)
	}
	list := os.NewFile(uintptr(fd), "heddle-covers")
	files = append(files, list)
	var text strings.Builder
	text.WriteString(b.EmptyDir + "\x00" + b.EmptyFile + "\x00")
	for _, c := range b.Covers {
		kind := "f"
		if c.Dir {
			kind = "d"
		}
		text.WriteString(kind + c.Path + "\x00")
	}
	if _, err := list.WriteString(text.String()); err != nil {
		return fmt.Errorf("list hidden paths: %w", err)
	}
	cmd := exec.Command("/proc/self/exe") // sealed, in memory
	cmd.Env = []string{early.CoverEnv + "=1"}
	cmd.ExtraFiles = files
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("hide paths: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
