package guestproto

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// RemoveCgroup kills everything below a cgroup v2 directory and removes it with its children. It gives up
// after five seconds, for tasks that the kernel itself holds.
func RemoveCgroup(dir string) error {
	var err error
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		if err = removeTree(dir); err == nil || os.IsNotExist(err) {
			return nil
		}
	}
	return err
}

func removeTree(dir string) error {
	ents, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range ents {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}

// Populated reports whether a cgroup v2 directory holds live processes.
func Populated(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	return err == nil && strings.Contains(string(b), "populated 1")
}
