package config

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Codes of a WriteError, as clients know them.
const (
	CodeValidation      = "configValidationError"
	CodeVersionConflict = "configVersionConflict"
	CodeReadonly        = "configLayerReadonly"
)

// WriteError is a write that was refused; nothing was changed.
type WriteError struct{ Code, Message string }

func (e *WriteError) Error() string { return e.Message }

func refused(code, format string, args ...any) error {
	return &WriteError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Writer writes a home's config file. It is safe for concurrent use: writes
// happen one after the other.
type Writer struct {
	home Home
	mu   sync.Mutex
}

// NewWriter returns the writer of a home.
func NewWriter(home Home) *Writer { return &Writer{home: home} }

// Written is the file after a write.
type Written struct {
	Path string
	// Version is "sha256:..." of the content.
	Version string
}

// Write changes keys of the config file, all or none, and makes that durable.
// file is empty or names the home's config file, the only one that is written;
// with a version the file must have it. A file that is a symbolic link stays
// one: the file it leads to is written. Refusals are *WriteError.
func (w *Writer) Write(file, version string, edits []Edit) (Written, error) {
	path := w.home.Path()
	if file != "" && !w.isHomeFile(file) {
		return Written{}, refused(CodeReadonly, "Only writes to the user config are allowed (%s)", path)
	}
	for _, e := range edits {
		if e.Key == "" {
			return Written{}, refused(CodeValidation, "keyPath must not be empty")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	real, old, err := readTarget(path)
	if err != nil {
		return Written{}, err
	}
	if version != "" && version != versionOf(old) {
		return Written{}, refused(CodeVersionConflict, "Configuration was modified since last read. Fetch latest version and retry.")
	}
	data, err := ApplyEdits(old, edits)
	if err != nil {
		return Written{}, refused(CodeValidation, "Invalid configuration: %v", err)
	}
	if err := validate(path, old, data); err != nil {
		return Written{}, err
	}
	if !bytes.Equal(old, data) {
		if err := replaceFile(real, old, data); err != nil {
			return Written{}, err
		}
	}
	return Written{Path: path, Version: versionOf(data)}, nil
}

// isHomeFile reports whether a path names the home's config file.
func (w *Writer) isHomeFile(file string) bool {
	if filepath.Clean(file) == w.home.Path() {
		return true
	}
	a, err := filepath.EvalSymlinks(file)
	if err != nil {
		return false
	}
	b, err := filepath.EvalSymlinks(w.home.Path())
	return err == nil && a == b
}

func versionOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// readTarget reads the file that is to be replaced. A missing one is empty.
func readTarget(path string) (real string, data []byte, err error) {
	real, err = filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return "", nil, refused(CodeReadonly, "%s is a symbolic link to a file that does not exist; make the file or remove the link", path)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", nil, fmt.Errorf("write config: %w", err)
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", nil, fmt.Errorf("write config: %w", err)
		}
		return filepath.Join(dir, ConfigFile), nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("write config: %w", err)
	}
	info, err := os.Lstat(real)
	if err != nil {
		return "", nil, fmt.Errorf("write config: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", nil, refused(CodeReadonly, "%s is not a regular file of at most %d bytes", real, maxFile)
	}
	if data, err = os.ReadFile(real); err != nil {
		return "", nil, fmt.Errorf("write config: %w", err)
	}
	return real, data, nil
}

// validate refuses a file with values that are wrong and were not so before.
func validate(path string, old, data []byte) error {
	if len(data) > maxFile {
		return refused(CodeValidation, "Invalid configuration: the file would be larger than %d bytes", maxFile)
	}
	before, err := parseTree(old)
	if err != nil {
		return refused(CodeValidation, "Invalid configuration: %s: %v", path, err)
	}
	after, err := parseTree(data)
	if err != nil {
		return refused(CodeValidation, "Invalid configuration: %s: %v", path, err)
	}
	if name := missingProfile(after); name != "" && name != missingProfile(before) {
		// With it nothing that reads the config would work.
		return refused(CodeValidation, "Invalid configuration: profile: there is no [profiles.%s] table; write the table first", joinKey([]string{name}))
	}
	known := check(schema(), before, nil)
	for _, p := range check(schema(), after, nil) {
		same := slices.ContainsFunc(known, func(o problem) bool { return o.what == p.what && slices.Equal(o.path, p.path) })
		if !p.unknown && !same {
			return refused(CodeValidation, "Invalid configuration: %s: %s; %s", joinKey(p.path), p.what, p.fix)
		}
	}
	return nil
}

// missingProfile is the profile that a file chooses and does not have, empty for
// none.
func missingProfile(tree map[string]any) string {
	name, _ := tree["profile"].(string)
	if name == "" {
		return ""
	}
	if _, ok := lookup(tree, "profiles", name).(map[string]any); ok {
		return ""
	}
	return name
}

// replaceFile puts new content in the place of old, whole and durable. It is
// refused when somebody else wrote meanwhile. The folder is held, so that no
// name of the path can be exchanged between the steps.
func replaceFile(path string, old, data []byte) (err error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	defer dir.Close()
	name := filepath.Base(path)
	mode := os.FileMode(0o600)
	info, err := dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("write config: %w", err)
	case !info.Mode().IsRegular():
		return refused(CodeVersionConflict, "Configuration was exchanged while it was written. Fetch latest version and retry.")
	default:
		mode = info.Mode().Perm()
	}
	tmp := "." + name + "." + rand.Text()[:12] + ".tmp"
	f, err := dir.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	defer func() {
		if err != nil {
			_ = dir.Remove(tmp)
		}
	}()
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	now, err := dir.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write config: %w", err)
	}
	if !bytes.Equal(now, old) {
		return refused(CodeVersionConflict, "Configuration was modified while it was written. Fetch latest version and retry.")
	}
	if err = dir.Rename(tmp, name); err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	return syncDir(dir)
}

func syncDir(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	return nil
}

// Path is the file that is written.
func (w *Writer) Path() string { return w.home.Path() }
