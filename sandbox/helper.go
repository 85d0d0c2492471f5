package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestbin"
)

const helperName = "heddle-guest"

var errNoHelper = errors.New("sandbox helper not found")

// loadHelper puts the helper binary into a sealed, anonymous file, so that what runs inside can neither find nor
// change it.
func loadHelper(cfg Config) (*os.File, error) {
	if b := guestbin.Embedded(); b != nil && cfg.GuestPath == "" {
		return seal(func(w io.Writer) error { _, err := w.Write(b); return err })
	}
	path, err := helperPath(cfg)
	if err != nil {
		return nil, err
	}
	src, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoHelper, err)
	}
	defer src.Close()
	return seal(func(w io.Writer) error { _, err := io.Copy(w, src); return err })
}

func helperPath(cfg Config) (string, error) {
	if cfg.GuestPath != "" {
		return cfg.GuestPath, nil
	}
	if p := os.Getenv("HEDDLE_GUEST"); p != "" {
		return p, nil
	}
	exe, err := os.Executable()
	if err == nil {
		p := filepath.Join(filepath.Dir(exe), helperName)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: %s is not beside %s; set HEDDLE_GUEST to its path", errNoHelper, helperName, exe)
}

func seal(fill func(io.Writer) error) (*os.File, error) {
	fd, err := unix.MemfdCreate(helperName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err != nil { // kernels before 6.3 do not know MFD_EXEC
		fd, err = unix.MemfdCreate(helperName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("make memory file for sandbox helper: %w", err)
	}
	f := os.NewFile(uintptr(fd), helperName)
	if err := fill(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("copy sandbox helper: %w", err)
	}
	if err := unix.Fchmod(fd, 0o511); err != nil {
		f.Close()
		return nil, fmt.Errorf("copy sandbox helper: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal sandbox helper: %w", err)
	}
	return f, nil
}
