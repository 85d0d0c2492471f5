package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// skeleton makes the directory that becomes the root of every sandbox: empty directories to mount on, and the
// links that the host's root has. One is shared by all; it is read-only inside.
func skeleton(stateDir string) (string, error) {
	sum := sha256.New()
	ents := topLevel()
	for _, e := range ents {
		link, _ := os.Readlink("/" + e.Name())
		fmt.Fprintf(sum, "%s\x00%v\x00%s\x00", e.Name(), e.Type(), link)
	}
	dir := filepath.Join(stateDir, "rootfs-"+hex.EncodeToString(sum.Sum(nil)[:6]))
	// Mkdir, here and below: a state directory that was deleted meanwhile must not come back.
	if err := mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make sandbox root: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask
		return "", fmt.Errorf("make sandbox root: %w", err)
	}
	for _, name := range private[:5] {
		if err := mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return "", fmt.Errorf("make sandbox root: %w", err)
		}
	}
	for _, e := range ents {
		err := os.ErrInvalid
		at := filepath.Join(dir, e.Name())
		if e.IsDir() {
			err = os.Mkdir(at, 0o755)
		} else if link, lerr := os.Readlink("/" + e.Name()); lerr == nil {
			err = os.Symlink(link, at)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make sandbox root: %w", err)
		}
	}
	return dir, nil
}

// mkdir makes one directory; one that exists is not an error.
func mkdir(path string, mode os.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
