// Package skill finds skills: folders with a SKILL.md, whose front matter names
// and describes what the rest of the file teaches.
//
// Files are read through an FS, since a repository lies on an executor and the
// user's own skills in the home. Nothing is kept between calls; all functions are
// safe for concurrent use as far as the FS is.
package skill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

const (
	// File is the name of a skill's file, RepoFolder where a repository keeps skills.
	File       = "SKILL.md"
	RepoFolder = ".agents/skills"
	// MaxBytes bounds a skill's file.
	MaxBytes = 256 << 10

	// MaxRoots is how many folders with skills a client may name.
	MaxRoots = 64

	maxSkills      = 200
	maxFolders     = 1000
	maxDepth       = 6
	maxParents     = 64
	maxName        = 64
	maxDescription = 1024
)

// Scopes of a skill.
const (
	ScopeRepo = "repo"
	ScopeUser = "user"
)

// FS reads files. Paths are absolute; what is not there is fs.ErrNotExist.
type FS interface {
	// Folders returns the names of the folders in a folder, sorted.
	Folders(ctx context.Context, dir string) ([]string, error)
	// Read returns a file of at most max bytes.
	Read(ctx context.Context, path string, max int64) ([]byte, error)
	// Exists reports whether something is at a path.
	Exists(ctx context.Context, path string) (bool, error)
}

// Skill is one skill.
type Skill struct {
	Name, Description, Short string
	// Path is that of its file.
	Path, Scope string
}

// Problem is a skill that cannot be used.
type Problem struct{ Path, Message string }

// Repo finds the skills of a folder and of its parents up to the root of its
// repository.
func Repo(ctx context.Context, files FS, cwd string) ([]Skill, []Problem) {
	dirs, err := upward(ctx, files, path.Clean(cwd))
	if err != nil {
		return nil, []Problem{{cwd, err.Error()}}
	}
	return inAll(ctx, files, dirs)
}

// RepoAt is Repo where the repository's root is known already; empty for none.
func RepoAt(ctx context.Context, files FS, cwd, root string) ([]Skill, []Problem) {
	at, root := path.Clean(cwd), path.Clean(root)
	dirs := []string{at}
	if strings.HasPrefix(at, strings.TrimSuffix(root, "/")+"/") {
		for at != root && len(dirs) < maxParents {
			at = path.Dir(at)
			dirs = append(dirs, at)
		}
	}
	return inAll(ctx, files, dirs)
}

// inAll reads folders at the same time.
func inAll(ctx context.Context, files FS, dirs []string) ([]Skill, []Problem) {
	found := make([]struct {
		skills   []Skill
		problems []Problem
	}, len(dirs))
	var wg sync.WaitGroup
	for i, dir := range dirs {
		wg.Go(func() {
			found[i].skills, found[i].problems = In(ctx, files, path.Join(dir, RepoFolder), ScopeRepo)
		})
	}
	wg.Wait()
	var skills []Skill
	var problems []Problem
	for _, f := range found {
		skills, problems = append(skills, f.skills...), append(problems, f.problems...)
	}
	return skills, problems
}

// upward is the folder and its parents up to the repository's root; the folder
// alone outside of any.
func upward(ctx context.Context, files FS, dir string) ([]string, error) {
	var dirs []string
	for at := dir; len(dirs) < maxParents; at = path.Dir(at) {
		dirs = append(dirs, at)
		root, err := files.Exists(ctx, path.Join(at, ".git"))
		if err != nil {
			return nil, err
		}
		if root {
			return dirs, nil
		}
		if at == "/" || at == "." {
			break
		}
	}
	return []string{dir}, nil
}

// In finds the skills in the folders of one folder, which need not exist.
func In(ctx context.Context, files FS, root, scope string) ([]Skill, []Problem) {
	names, err := files.Folders(ctx, root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []Problem{{root, err.Error()}}
	}
	var skills []Skill
	var problems []Problem
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue
		}
		if len(skills)+len(problems) >= maxSkills {
			return skills, append(problems, Problem{root, fmt.Sprintf("only the first %d skills are read", maxSkills)})
		}
		file := path.Join(root, name, File)
		data, err := files.Read(ctx, file, MaxBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var s Skill
		if err == nil {
			s, err = Parse(data)
		}
		if err != nil {
			problems = append(problems, Problem{file, err.Error()})
			continue
		}
		s.Path, s.Scope = file, scope
		skills = append(skills, s)
	}
	return skills, problems
}

// Parse reads the front matter of a skill's file.
func Parse(data []byte) (Skill, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	rest, ok := strings.CutPrefix(text, "---\n")
	head, _, closed := strings.Cut("\n"+rest, "\n---")
	if !ok || !closed {
		return Skill{}, errors.New("the file does not begin with front matter between lines of ---")
	}
	var front struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
		Metadata    struct {
			Short string `yaml:"short-description"`
		} `yaml:"metadata"`
	}
	if err := yaml.Unmarshal([]byte(head), &front); err != nil {
		return Skill{}, fmt.Errorf("front matter: %w", err)
	}
	s := Skill{Name: oneLine(front.Name), Description: oneLine(front.Description), Short: oneLine(front.Metadata.Short)}
	switch {
	case s.Name == "":
		return Skill{}, errors.New("front matter: name is missing")
	case s.Description == "":
		return Skill{}, errors.New("front matter: description is missing")
	case utf8.RuneCountInString(s.Name) > maxName:
		return Skill{}, fmt.Errorf("front matter: name is longer than %d characters", maxName)
	case utf8.RuneCountInString(s.Description) > maxDescription:
		return Skill{}, fmt.Errorf("front matter: description is longer than %d characters", maxDescription)
	}
	return s, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
