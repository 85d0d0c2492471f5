package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/config"
)

// The folders of keys are there, and closed, before any command runs: only what
// is there can be hidden from one that runs already.
func TestFoldersOfKeysAreThereFirst(t *testing.T) {
	r := newRig(t)
	for _, dir := range []string{config.AccountDir, config.SecretsDir} {
		info, err := os.Stat(filepath.Join(r.home, dir))
		if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
}
