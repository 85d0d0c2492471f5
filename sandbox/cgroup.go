package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// makeOwnerCgroup makes a cgroup v2 directory for our commands below our own cgroup and proves that processes can
// be started into it and killed as a whole.
// The controllers are those that limits can be set with below it.
func makeOwnerCgroup(id string, helper *os.File) (dir string, controllers []string, err error) {
	base, err := ownCgroup()
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(base, groupName(ownerPrefix, id))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("no writable cgroup v2 directory: %w", err)
	}
	if err := tryCgroup(dir, helper); err != nil {
		_ = os.Remove(dir)
		return "", nil, err
	}
	return dir, delegate(base, dir), nil
}

// delegate makes the controllers that base has available below dir, as far as that is allowed. A cgroup with
// processes of its own cannot hand controllers on: when we are the only one in base, as in a service with
// Delegate=yes, we move into a cgroup beside dir.
func delegate(base, dir string) []string {
	words := func(file string) []string {
		b, _ := os.ReadFile(file)
		return strings.Fields(string(b))
	}
	available := words(filepath.Join(base, "cgroup.controllers"))
	var out []string
	for _, c := range []string{"memory", "pids", "cpu"} {
		if !slices.Contains(available, c) {
			continue
		}
		if !slices.Contains(words(filepath.Join(base, "cgroup.subtree_control")), c) {
			err := put(filepath.Join(base, "cgroup.subtree_control"), "+"+c)
			if errors.Is(err, syscall.EBUSY) && stepAside(base) {
				err = put(filepath.Join(base, "cgroup.subtree_control"), "+"+c)
			}
			if err != nil {
				continue
			}
		}
		if put(filepath.Join(dir, "cgroup.subtree_control"), "+"+c) == nil {
			out = append(out, c)
		}
	}
	return out
}

// stepAside moves this process into a cgroup of its own below base when no other process is in base. It stays
// there; a later manager removes it when we are gone.
func stepAside(base string) bool {
	b, err := os.ReadFile(filepath.Join(base, "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(b)) != strconv.Itoa(os.Getpid()) {
		return false
	}
	self := filepath.Join(base, groupName(selfPrefix, randomID()))
	if os.Mkdir(self, 0o755) != nil {
		return false
	}
	if put(filepath.Join(self, "cgroup.procs"), "0") != nil {
		_ = os.Remove(self)
		return false
	}
	return true
}

func tryCgroup(dir string, helper *os.File) error {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		return fmt.Errorf("the kernel has no cgroup.kill: %w", err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open cgroup: %w", err)
	}
	defer unix.Close(fd)
	c := helperCommand(helper, "none", helper)
	c.SysProcAttr.UseCgroupFD, c.SysProcAttr.CgroupFD = true, fd
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("start a process in a cgroup: %w", err)
	}
	return nil
}

// ownCgroup finds the directory of this process's cgroup in the v2 hierarchy, or the one it has stepped aside in.
func ownCgroup() (string, error) {
	path := ""
	if err := eachLine("/proc/self/cgroup", func(l string) {
		if p, ok := strings.CutPrefix(l, "0::"); ok {
			path = p
		}
	}); err != nil {
		return "", err
	}
	mount, root := "", ""
	if err := eachLine("/proc/self/mountinfo", func(l string) {
		pre, post, ok := strings.Cut(l, " - ")
		if f := strings.Fields(pre); ok && mount == "" && strings.HasPrefix(post, "cgroup2 ") && len(f) > 5 {
			mount, root = f[4], f[3]
		}
	}); err != nil {
		return "", err
	}
	if path == "" || mount == "" {
		return "", errors.New("no cgroup v2 hierarchy is mounted")
	}
	rel, err := filepath.Rel(root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return "", fmt.Errorf("own cgroup %s is outside of the mounted hierarchy", path)
	}
	dir := filepath.Join(mount, rel)
	if strings.HasPrefix(filepath.Base(dir), selfPrefix) {
		dir = filepath.Dir(dir)
	}
	return dir, nil
}

func eachLine(file string, f func(string)) error {
	h, err := os.Open(file)
	if err != nil {
		return err
	}
	defer h.Close()
	sc := bufio.NewScanner(h)
	for sc.Scan() {
		f(sc.Text())
	}
	return sc.Err()
}
