package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"
)

const (
	instructionsFileKey = "model_instructions_file"
	// maxInstructionsFile bounds the size of base instructions.
	maxInstructionsFile = 1 << 20
)

// The instruction files of a workspace, where the config says nothing else.
const (
	overrideDoc   = "AGENTS.override.md"
	projectDoc    = "AGENTS.md"
	projectMarker = ".git"
	maxProjectDoc = 32 << 10
)

// ProjectDocNames are the names of instruction files, in the order in which they
// are looked for in a folder (project_doc_fallback_filenames come last).
func (c *Config) ProjectDocNames() []string {
	return append([]string{overrideDoc, projectDoc}, texts(lookup(c.tree, "project_doc_fallback_filenames"))...)
}

// ProjectRootMarkers are the names of entries that mark the topmost folder of a
// project (project_root_markers); an empty list means that folders above the
// thread's do not count.
func (c *Config) ProjectRootMarkers() []string {
	if v := lookup(c.tree, "project_root_markers"); v != nil {
		return texts(v)
	}
	return []string{projectMarker}
}

// ProjectDocMaxBytes bounds the bytes of all instruction files together
// (project_doc_max_bytes); 0 means that none are read.
func (c *Config) ProjectDocMaxBytes() int64 {
	if n, ok := lookup(c.tree, "project_doc_max_bytes").(int64); ok {
		return n
	}
	return maxProjectDoc
}

// BaseInstructions replace the built-in ones; empty when unset. A file of them
// (model_instructions_file) goes before a text (instructions). A file that cannot
// be read or says nothing is an error: a thread would work without what it was to
// be told.
func (c *Config) BaseInstructions() (string, error) {
	path := c.str(instructionsFileKey)
	if path == "" {
		return c.str("instructions"), nil
	}
	path, err := c.instructionsPath(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", instructionsFileKey, err)
	}
	text, err := readText(path, maxInstructionsFile)
	if err != nil {
		return "", fmt.Errorf("read %s %s: %w", instructionsFileKey, path, err)
	}
	return text, nil
}

// instructionsPath makes the path absolute: in a file it starts at the file's
// folder, elsewhere at the folder that the config is loaded for.
func (c *Config) instructionsPath(path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && c.env["HOME"] != "" {
		path = filepath.Join(c.env["HOME"], rest)
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	from := c.cwd
	if i, ok := c.origins[instructionsFileKey]; ok && c.layers[i].File != "" {
		from = filepath.Dir(c.layers[i].File)
	}
	if from == "" {
		return "", fmt.Errorf("%q is not an absolute path", path)
	}
	return filepath.Join(from, path), nil
}

// readText reads a regular file of text that is not blank, without the space
// around it. It never blocks on a pipe or device.
func readText(path string, limit int64) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", withoutPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return "", withoutPath(err)
	case int64(len(data)) > limit:
		return "", fmt.Errorf("larger than %d bytes", limit)
	case !utf8.Valid(data):
		return "", errors.New("not UTF-8 text")
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return "", errors.New("the file is empty")
	}
	return text, nil
}

// withoutPath leaves the path out of an error; the caller names it.
func withoutPath(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}
