package skill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Local reads the folders of the control plane's own machine; it is for the home
// alone.
type Local struct{}

// Folders implements FS.
func (Local) Folders(_ context.Context, dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		// A link to a folder counts too.
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Read implements FS.
func (Local) Read(_ context.Context, path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, err
}

// Exists implements FS.
func (Local) Exists(_ context.Context, path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// UserFolder is where a home keeps the user's skills.
func UserFolder(home string) string { return filepath.Join(home, "skills") }

// IsUser reports whether a path is that of a skill in the home.
func IsUser(home, path string) bool {
	return home != "" && filepath.Base(path) == File && strings.HasPrefix(filepath.Clean(path), UserFolder(home)+"/")
}
