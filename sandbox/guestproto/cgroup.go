package guestproto

import (
	"encoding/json"
	"errors"
	"io/fs"
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
		if err = removeTree(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
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

// SweepBoxes removes the cgroups of the sandboxes in an owner's state directory whose keeper was killed. Their
// processes end with their guest, which may take a moment.
func SweepBoxes(ownerDir string) {
	states, _ := filepath.Glob(filepath.Join(ownerDir, "runc", "*", "state.json"))
	for _, s := range states {
		var st struct {
			CgroupPaths map[string]string `json:"cgroup_paths"`
		}
		b, err := os.ReadFile(s)
		if err != nil || json.Unmarshal(b, &st) != nil {
			continue
		}
		for _, p := range st.CgroupPaths {
			if strings.HasPrefix(filepath.Base(p), "heddle-") {
				removeEmptied(p)
			}
		}
	}
}

func removeEmptied(dir string) {
	for range 100 {
		if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
