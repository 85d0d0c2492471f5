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

// runCovered is Run with paths hidden before the owner hears of the guest. libcontainer takes too long for thousands of
// mounts, and the guest has no right to make any. They are made while the guest's runtime starts: it reads the table of
// mounts to its end, which takes as long as making them. The guest does nothing before the owner has seen that all hold.
func (k *keeper) runCovered(c *libcontainer.Container, p *libcontainer.Process, b guestproto.Box) error {
	if err := c.Start(p); err != nil {
		return err
	}
	files, err := namespaces(p)
	defer closeAll(files)
	if err == nil {
		err = c.Exec()
	}
	if err == nil {
		err = cover(files, b)
	}
	if err != nil {
		_ = p.Signal(unix.SIGKILL)
		_, _ = p.Wait()
	}
	return err
}

// namespaces opens those that the mounts are made in. The guest leaves the first of them when it begins.
func namespaces(p *libcontainer.Process) (files []*os.File, err error) {
	pid, err := p.Pid()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"user", "mnt"} {
		f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/" + name)
		if err != nil {
			return files, fmt.Errorf("open namespace of the sandbox: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// cover hides paths in the open namespaces.
func cover(files []*os.File, b guestproto.Box) error {
	fd, err := unix.MemfdCreate("heddle-covers", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("list hidden paths: %w", err)
	}
	list := os.NewFile(uintptr(fd), "heddle-covers")
	defer list.Close()
	if _, err := list.Write(append([]byte(b.EmptyDir+"\x00"+b.EmptyFile+"\x00"), b.Covers...)); err != nil {
		return fmt.Errorf("list hidden paths: %w", err)
	}
	cmd := exec.Command("/proc/self/exe") // sealed, in memory
	cmd.Env = []string{early.CoverEnv + "=1"}
	cmd.ExtraFiles = append(files[:len(files):len(files)], list)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("hide paths: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
