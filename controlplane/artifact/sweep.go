package artifact

import (
	"errors"
	"fmt"
	"os"
)

// sweep removes, of the threads that have a folder in dir, those that are not
// kept: left over from a deletion that was cut short. Folders of another name
// are left alone.
func sweep(dir string, keep func(threadID string) (bool, error), remove func(threadID string) error) (int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("sweep %s: %w", dir, err)
	}
	removed := 0
	for _, e := range entries {
		id, ok := threadOf(e.Name())
		if !ok {
			continue
		}
		kept, err := keep(id)
		if err != nil {
			return removed, fmt.Errorf("sweep what is left of thread %s: %w", id, err)
		}
		if kept {
			continue
		}
		if err := remove(id); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}
