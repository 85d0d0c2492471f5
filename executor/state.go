package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// stateDir is the locked directory of one executor.
type stateDir struct {
	dir, spool, id string
	lock           *os.File
}

// openState makes and locks the directory, empties its spool, and reads or makes
// the executor's id.
func openState(dir, id string) (*stateDir, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("executor state directory %q is not an absolute path", dir)
	}
	s := &stateDir{dir: dir, spool: filepath.Join(dir, "spool"), id: id}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make executor state directory: %w", err)
	}
	var err error
	if s.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("open lock of executor state: %w", err)
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("executor state directory %s is used by another executor: %w", dir, err), s.lock.Close())
	}
	// Spool files have no name while they are used: one that has is left over.
	err = errors.Join(os.RemoveAll(s.spool), os.Mkdir(s.spool, 0o700))
	if err == nil && id == "" {
		s.id, err = keptID(filepath.Join(dir, "executor-id"))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare executor state: %w", err), s.lock.Close())
	}
	return s, nil
}

// keptID reads the id, or makes one at the first start.
func keptID(path string) (string, error) {
	data, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(data)); err == nil && id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(id.String()+"\n"), 0o600); err != nil {
		return "", err
	}
	return id.String(), os.Rename(tmp, path)
}

func (s *stateDir) close() error { return s.lock.Close() }

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
