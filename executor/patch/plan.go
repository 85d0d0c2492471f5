package patch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// File is the content of a regular file.
type File struct {
	Data []byte
	Mode fs.FileMode
	// Link is set when the name is not the only one of its file: a symbolic link, or one of several hard links.
	Link bool
}

// NewMode is the mode of an added file before umask.
const NewMode fs.FileMode = 0o666

// FS reads files for a plan. Errors must answer errors.Is with fs.ErrNotExist
// and fs.ErrPermission where these are the cause.
type FS interface {
	Read(ctx context.Context, path string) (File, error)
}

// Change is what a plan does to one file.
type Change struct {
	Path string
	// Kind is "add", "delete" or "update".
	Kind string
	// MovePath is the target of a move, else empty.
	MovePath string
	// Before is nil for a file that did not exist; After is nil for a file that
	// is gone. For a move they are the two contents of the moved file.
	Before, After *File
}

// Diff is the new content for add, the old one for delete, unified hunks for
// update.
func (c Change) Diff() string {
	switch c.Kind {
	case "add":
		return string(c.After.Data)
	case "delete":
		return string(c.Before.Data)
	}
	return Unified(string(c.Before.Data), string(c.After.Data))
}

// Plan is a verified patch.
type Plan struct {
	// Changes sorted by path.
	Changes []Change
	// Base has every touched path: nil for one that does not exist.
	Base map[string]*File
	// Summary has a line per file ("A new.txt"), added ones first, then
	// modified, then deleted; paths as the patch spells them.
	Summary string
}

// Hashes returns the SHA-256 of each base; empty for one that does not exist.
func (p *Plan) Hashes() map[string][]byte {
	out := make(map[string][]byte, len(p.Base))
	for path, f := range p.Base {
		out[path] = []byte{}
		if f != nil {
			sum := sha256.Sum256(f.Data)
			out[path] = sum[:]
		}
	}
	return out
}

// Make verifies every hunk of the patch against the present files. Relative
// paths refer to cwd. The error is a *RejectedError when the patch is at fault.
func Make(ctx context.Context, files FS, text, cwd string) (*Plan, error) {
	if !filepath.IsAbs(cwd) {
		return nil, fmt.Errorf("plan patch: folder %q is not an absolute path", cwd)
	}
	ops, err := Parse(text)
	if err != nil {
		return nil, err
	}
	m := &maker{files: files, cwd: cwd, states: map[string]*state{}}
	for _, op := range ops {
		if err := m.run(ctx, op); err != nil {
			return nil, err
		}
	}
	return m.plan(), nil
}

// state is a file as the sections of the patch change it one after the other.
type state struct {
	base, now *File
	movedFrom string
	added     bool // the last section that gave it content was an Add
	touched   bool
}

type maker struct {
	files    FS
	cwd      string
	states   map[string]*state
	a, m, d  []string
	modified map[string]bool
}

func (m *maker) abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(m.cwd, path)
}

// load returns the state of a path, reading it at its first use.
func (m *maker) load(ctx context.Context, path string) (*state, error) {
	if s := m.states[path]; s != nil {
		return s, nil
	}
	s := &state{}
	f, err := m.files.Read(ctx, path)
	switch {
	case err == nil:
		s.base = &f
		s.now = &f
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	m.states[path] = s
	return s, nil
}

func (m *maker) run(ctx context.Context, op Op) error {
	verb := map[Kind]string{Add: "add", Delete: "delete", Update: "update"}[op.Kind]
	s, err := m.load(ctx, m.abs(op.Path))
	if err != nil {
		return readError(verb, op.Path, err)
	}
	if op.Kind != Add && s.now == nil {
		return rejectf("Failed to read file to %s %s: no such file", verb, op.Path)
	}
	s.touched = true
	switch op.Kind {
	case Add:
		mode := NewMode
		if s.now != nil {
			mode = s.now.Mode
		}
		s.now, s.added, s.movedFrom = &File{Data: []byte(op.Content), Mode: mode}, true, ""
		m.a = append(m.a, op.Path)
	case Delete:
		s.now = nil
		m.d = append(m.d, op.Path)
	case Update:
		return m.update(ctx, op, s)
	}
	return nil
}

// readError makes what the file system says about a path of the patch a reason
// for its author; a failure of the sandbox itself stays an error.
func readError(verb, path string, err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return rejectf("Failed to read file to %s %s: %v", verb, path, errno)
	}
	if r, ok := errors.AsType[*RejectedError](err); ok {
		return rejectf("Failed to read file to %s %s: %s", verb, path, r.Reason)
	}
	return fmt.Errorf("plan patch: read %s: %w", path, err)
}

func (m *maker) update(ctx context.Context, op Op, s *state) error {
	data, err := apply(op.Path, string(s.now.Data), op.Hunks)
	if err != nil {
		return err
	}
	now := &File{Data: []byte(data), Mode: s.now.Mode, Link: s.now.Link}
	if op.MoveTo == "" || m.abs(op.MoveTo) == m.abs(op.Path) {
		s.now, s.added = now, s.added && s.base == nil
		m.modify(op.Path)
		return nil
	}
	to, err := m.load(ctx, m.abs(op.MoveTo))
	if err != nil {
		return readError("move to", op.MoveTo, err)
	}
	to.now, to.added, to.touched = now, false, true
	to.movedFrom = m.abs(op.Path)
	if s.movedFrom != "" {
		to.movedFrom = s.movedFrom
	}
	s.now, s.movedFrom = nil, ""
	m.modify(op.MoveTo)
	return nil
}

func (m *maker) modify(path string) {
	if !m.modified[path] {
		if m.modified == nil {
			m.modified = map[string]bool{}
		}
		m.modified[path] = true
		m.m = append(m.m, path)
	}
}

// plan compares each file's end with its start.
func (m *maker) plan() *Plan {
	p := &Plan{Base: map[string]*File{}, Summary: m.summary()}
	moved := map[string]bool{} // paths whose end is told by a move
	for path, s := range m.states {
		p.Base[path] = s.base
		src := m.states[s.movedFrom]
		if s.movedFrom == "" || s.now == nil || src.now != nil || src.base == nil {
			continue
		}
		moved[path], moved[s.movedFrom] = true, true
		p.Changes = append(p.Changes, Change{Path: s.movedFrom, Kind: "update", MovePath: path, Before: src.base, After: s.now})
	}
	for path, s := range m.states {
		if moved[path] || !s.touched || (s.base == nil && s.now == nil) {
			continue
		}
		c := Change{Path: path, Kind: "update", Before: s.base, After: s.now}
		switch {
		case s.now == nil:
			c.Kind = "delete"
		case s.base == nil || s.added:
			c.Kind = "add"
		}
		p.Changes = append(p.Changes, c)
	}
	slices.SortFunc(p.Changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return p
}

func (m *maker) summary() string {
	var b strings.Builder
	for _, group := range []struct {
		mark  string
		paths []string
	}{{"A", m.a}, {"M", m.m}, {"D", m.d}} {
		for _, path := range group.paths {
			fmt.Fprintf(&b, "%s %s\n", group.mark, path)
		}
	}
	return b.String()
}
