package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox"
)

// DiskEnv names a small file system of its own that an ordinary user was given for the row about a full disk.
const DiskEnv = "HEDDLE_ROWS_DISK"

const (
	smallDisk = 96 << 20
	diskLeft  = 48 << 20
)

// SmallDisk mounts a file system that nobody else uses, so that what others write and remove meanwhile does not
// matter. It needs the rights of root.
func SmallDisk(dir string, uid int) (unmount func(), err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	data := fmt.Sprintf("size=%d,mode=755,uid=%d,gid=%d", smallDisk, uid, uid)
	if err := unix.Mount("heddle-rows", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return nil, fmt.Errorf("mount a small file system: %w", err)
	}
	return func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }, nil
}

// fillDisk has a command leave less on a disk than it may.
func fillDisk(e *Env) Verdict {
	disk := os.Getenv(DiskEnv)
	if e.Root {
		disk = filepath.Join(filepath.Dir(e.WS), "disk")
		defer os.Remove(disk)
		unmount, err := SmallDisk(disk, 0)
		e.must(err)
		defer unmount()
	}
	if disk == "" {
		return fillShared(e)
	}
	s := e.Acquire(sandbox.Policy{Workspace: disk, Limits: sandbox.Limits{MinFreeBytes: diskLeft}})
	file := filepath.Join(disk, "r04c")
	defer os.Remove(file)
	return endedEarly(e, s, fmt.Sprintf("head -c %d /dev/zero >%s; sleep 30", smallDisk-diskLeft+8<<20, file))
}

// fillShared does it where others use the disk too, and free some of it: step by step, and more than the limit.
func fillShared(e *Env) Verdict {
	free, err := freeSpace(e.WS)
	e.must(err)
	s := e.Acquire(sandbox.Policy{Limits: sandbox.Limits{MinFreeBytes: free - 300<<20}})
	dir := filepath.Join(e.WS, "r04c")
	defer os.RemoveAll(dir)
	return endedEarly(e, s, "mkdir "+dir+" && cd "+dir+" && for i in $(seq 12); do fallocate -l 500M f$i; sleep 0.3; done; sleep 20")
}

// endedEarly runs a script that sleeps for long once it has filled the disk.
func endedEarly(e *Env, s *sandbox.Sandbox, script string) Verdict {
	c := shell(script)
	c.Timeout = time.Minute
	o := e.RunIn(s, c)
	if !o.DiskLow || o.TimedOut || o.ExitCode == 0 {
		e.T.Logf("%+v", o)
		return Allowed
	}
	return Denied
}

// sharedDisk is for a user who has no disk for himself.
func sharedDisk(e *Env) string {
	if e.Root || os.Getenv(DiskEnv) != "" {
		return ""
	}
	if free, err := freeSpace(e.WS); err == nil && free < 8<<30 {
		return "less than 8 GiB are free here"
	}
	return ""
}

func freeSpace(path string) (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	return int64(st.Bavail) * st.Bsize, err
}
