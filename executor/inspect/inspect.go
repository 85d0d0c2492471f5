// Package inspect reads what a thread needs to know of its workspace: the
// repository, its instruction files, the shell and the machine.
//
// It only reads, runs no program, and follows no symbolic link out of the
// repository's root for instruction files. What cannot be read becomes a warning
// that names it. Functions may be called concurrently.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

const (
	maxMaxBytes = 1 << 20
	maxDepth    = 256
)

// Query says what to read.
type Query struct {
	// Cwd is an absolute path.
	Cwd string
	// Names of instruction files; in each folder the first one that is there counts.
	Names []string
	// MaxBytes of all instructions together; 0 for none, 1 MiB at most.
	MaxBytes int64
	// RootMarkers are names of entries. Instructions are read from the nearest folder
	// at or above Cwd that holds one, and from those below it down to Cwd; without,
	// or where there is none, from Cwd alone.
	RootMarkers []string
}

// File is one instruction file.
type File struct{ Path, Content string }

// Result is what was found.
type Result struct {
	CwdExists bool
	// RepoRoot is empty outside of a repository.
	RepoRoot string
	Git      Git
	// Instructions from the root down to the cwd.
	Instructions []File
	Warnings     []string
	Shell        string
	Timezone     string
	OS           string
}

// Workspace reads the workspace around q.Cwd. A folder that does not exist is
// not an error.
func Workspace(ctx context.Context, q Query) (Result, error) {
	if !filepath.IsAbs(q.Cwd) {
		return Result{}, fmt.Errorf("inspect: folder %q is not an absolute path", q.Cwd)
	}
	cwd := filepath.Clean(q.Cwd)
	res := Result{Shell: Shell(os.Getenv("SHELL")), Timezone: Timezone(os.Getenv("TZ")), OS: runtime.GOOS}
	info, err := os.Stat(cwd)
	if err != nil || !info.IsDir() {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			res.Warnings = append(res.Warnings, fmt.Sprintf("cannot look at %s: %v", cwd, cause(err)))
		}
		return res, nil
	}
	res.CwdExists = true
	res.RepoRoot = nearest(cwd, ".git")
	if res.RepoRoot != "" {
		res.Git, err = ReadGit(res.RepoRoot)
		if err != nil {
			res.Warnings = append(res.Warnings, err.Error())
		}
	}
	return res, res.readInstructions(ctx, cwd, q)
}

// nearest returns the nearest folder at or above dir that holds an entry of one of
// the names, empty when there is none.
func nearest(dir string, names ...string) string {
	for range maxDepth {
		for _, name := range names {
			if !plainName(name) {
				continue
			}
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				return dir
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	return ""
}

func plainName(name string) bool { return name != "" && !strings.ContainsAny(name, "/\x00") }

func (res *Result) readInstructions(ctx context.Context, cwd string, q Query) error {
	names, left := q.Names, min(q.MaxBytes, maxMaxBytes)
	if left <= 0 || len(names) == 0 {
		return nil
	}
	top := nearest(cwd, q.RootMarkers...)
	if top == "" {
		top = cwd
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		res.Warnings = append(res.Warnings, fmt.Sprintf("cannot open %s: %v", top, cause(err)))
		return nil
	}
	defer root.Close()
	for _, dir := range steps(top, cwd) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		left -= res.readFirst(root, top, dir, names, left)
	}
	return nil
}

// steps returns the folders from top down to cwd, relative to top.
func steps(top, cwd string) []string {
	out := []string{"."}
	rel, err := filepath.Rel(top, cwd)
	if err != nil || rel == "." {
		return out
	}
	at := ""
	for part := range strings.SplitSeq(rel, "/") {
		at = filepath.Join(at, part)
		out = append(out, at)
	}
	return out
}

// readFirst reads the first of the names that exists in a folder and returns how
// many bytes it took.
func (res *Result) readFirst(root *os.Root, top, dir string, names []string, left int64) int64 {
	for _, name := range names {
		if !plainName(name) {
			continue
		}
		rel := filepath.Join(dir, name)
		path := filepath.Join(top, rel)
		data, more, err := readRegular(root, rel, left)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			res.Warnings = append(res.Warnings, fmt.Sprintf("cannot read %s: %v", path, cause(err)))
			return 0
		case more:
			res.Warnings = append(res.Warnings, fmt.Sprintf("%s is cut off: instructions are limited in size", path))
		}
		if len(data) > 0 {
			res.Instructions = append(res.Instructions, File{Path: path, Content: strings.ToValidUTF8(string(data), "\uFFFD")})
		}
		return int64(len(data))
	}
	return 0
}

var errNotRegular = errors.New("not a regular file")

// readRegular reads at most limit bytes and tells whether there were more. It
// never blocks on a pipe or device.
func readRegular(root *os.Root, name string, limit int64) (data []byte, more bool, err error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	if !info.Mode().IsRegular() {
		return nil, false, errNotRegular
	}
	limit = max(limit, 0)
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(data)) > limit {
		return data[:limit], true, err
	}
	return data, false, err
}

// cause leaves the path out of an error; the caller names it.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
