package skill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Below finds the skills in folders that a client names, at any depth up to
// maxDepth: what lies below a skill is part of it. Folders that are not there
// hold none. A skill that two of the folders hold is found once.
func Below(ctx context.Context, files FS, roots []string) ([]Skill, []Problem) {
	w := walk{files: files, seen: map[string]bool{}}
	for i, root := range roots {
		if i == MaxRoots {
			w.problems = append(w.problems, Problem{root, fmt.Sprintf("only the first %d roots are read", MaxRoots)})
			break
		}
		w.into(ctx, path.Clean(root), 0)
	}
	return w.skills, w.problems
}

// walk is one search.
type walk struct {
	files    FS
	seen     map[string]bool
	full     bool
	skills   []Skill
	problems []Problem
}

// into reads a folder. What is below it is looked at only when it is no skill.
func (w *walk) into(ctx context.Context, dir string, depth int) {
	if w.seen[dir] || w.full {
		return
	}
	if len(w.seen) >= maxFolders || len(w.skills) >= maxSkills {
		w.full = true
		w.problems = append(w.problems, Problem{dir, fmt.Sprintf("only the first %d skills in %d folders are read", maxSkills, maxFolders)})
		return
	}
	w.seen[dir] = true
	file := path.Join(dir, File)
	switch s, err := read(ctx, w.files, file); {
	case err == nil:
		s.Path, s.Scope = file, ScopeUser
		w.skills = append(w.skills, s)
		return
	case !errors.Is(err, fs.ErrNotExist):
		w.problems = append(w.problems, Problem{file, err.Error()})
		return
	}
	if depth == maxDepth {
		return
	}
	names, err := w.files.Folders(ctx, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.problems = append(w.problems, Problem{dir, err.Error()})
	}
	for _, name := range names {
		if !strings.HasPrefix(name, ".") {
			w.into(ctx, path.Join(dir, name), depth+1)
		}
	}
}

func read(ctx context.Context, files FS, file string) (Skill, error) {
	data, err := files.Read(ctx, file, MaxBytes)
	if err != nil {
		return Skill{}, err
	}
	return Parse(data)
}
