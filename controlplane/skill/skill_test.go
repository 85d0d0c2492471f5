package skill

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct{ text, name, description, fault string }{
		"plain":          {"---\nname: foo\ndescription: does things\n---\nBody", "foo", "does things", ""},
		"windows lines":  {"---\r\nname: foo\r\ndescription: d\r\n---\r\n", "foo", "d", ""},
		"byte order":     {"\xef\xbb\xbf---\nname: foo\ndescription: d\n---\n", "foo", "d", ""},
		"folded":         {"---\nname: foo\ndescription: >\n  one\n  two\n---\n", "foo", "one two", ""},
		"extra keys":     {"---\nname: foo\nlicense: x\ndescription: d\n---\n", "foo", "d", ""},
		"no matter":      {"# Title\n", "", "", "front matter"},
		"not closed":     {"---\nname: foo\ndescription: d\n", "", "", "front matter"},
		"no name":        {"---\ndescription: d\n---\n", "", "", "name is missing"},
		"no description": {"---\nname: foo\n---\n", "", "", "description is missing"},
		"not yaml":       {"---\nname: [\n---\n", "", "", "front matter"},
		"long name":      {"---\nname: " + strings.Repeat("x", 65) + "\ndescription: d\n---\n", "", "", "longer than"},
		"empty":          {"", "", "", "front matter"},
	} {
		s, err := Parse([]byte(c.text))
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: error %v, want %q", name, err, c.fault)
			}
			continue
		}
		if err != nil || s.Name != c.name || s.Description != c.description {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func front(name string) string {
	return "---\nname: " + name + "\ndescription: about " + name + "\n---\n"
}

// Skills come from the folder up to the repository's root and from no further.
func TestRepo(t *testing.T) {
	top := t.TempDir()
	write(t, filepath.Join(top, RepoFolder, "outside", File), front("outside"))
	repo := filepath.Join(top, "repo")
	write(t, filepath.Join(repo, ".git", "HEAD"), "")
	write(t, filepath.Join(repo, RepoFolder, "b", File), front("b"))
	write(t, filepath.Join(repo, RepoFolder, "broken", File), "nothing")
	write(t, filepath.Join(repo, RepoFolder, "empty", "other.md"), "")
	write(t, filepath.Join(repo, RepoFolder, ".hidden", File), front("hidden"))
	write(t, filepath.Join(repo, "sub", RepoFolder, "a", File), front("a"))
	skills, problems := Repo(t.Context(), Local{}, filepath.Join(repo, "sub"))
	var names []string
	for _, s := range skills {
		names = append(names, s.Name+" "+s.Scope)
	}
	if !slices.Equal(names, []string{"a repo", "b repo"}) {
		t.Errorf("skills %v", names)
	}
	for root, want := range map[string]int{repo: 2, "": 1, top: 3, filepath.Join(repo, "sub"): 1, filepath.Join(repo, "other"): 1} {
		if at, _ := RepoAt(t.Context(), Local{}, filepath.Join(repo, "sub"), root); len(at) != want {
			t.Errorf("with root %q: %v, want %d", root, at, want)
		}
	}
	if len(problems) != 1 || problems[0].Path != filepath.Join(repo, RepoFolder, "broken", File) {
		t.Errorf("problems %v", problems)
	}
	if skills, problems = Repo(t.Context(), Local{}, filepath.Join(top, "absent")); len(skills)+len(problems) != 0 {
		t.Errorf("of a folder that is not there: %v, %v", skills, problems)
	}
}

func TestLargeFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "big", File), front("big")+strings.Repeat("x", MaxBytes))
	skills, problems := In(t.Context(), Local{}, dir, ScopeUser)
	if len(skills) != 0 || len(problems) != 1 || !strings.Contains(problems[0].Message, "larger than") {
		t.Errorf("%v, %v", skills, problems)
	}
}

func TestIsUser(t *testing.T) {
	for path, want := range map[string]bool{
		"/h/skills/a/SKILL.md": true, "/h/skills/../config.toml": false, "/h/skills/../x/SKILL.md": false, "/h/skills/a/other": false, "/x/SKILL.md": false,
	} {
		if IsUser("/h", path) != want {
			t.Errorf("%s: want %v", path, want)
		}
	}
}

// Skills lie at any depth below a root, not within another skill, and what two
// roots hold is found once.
func TestBelow(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a", File), front("a"))
	write(t, filepath.Join(root, "a", "inner", File), front("inner"))
	write(t, filepath.Join(root, "group", "more", "b", File), front("b"))
	write(t, filepath.Join(root, ".hidden", File), front("hidden"))
	write(t, filepath.Join(root, "broken", File), "nothing")
	write(t, filepath.Join(root, "1/2/3/4/5/6/7", File), front("deep"))
	skills, problems := Below(t.Context(), Local{}, []string{root, filepath.Join(root, "group"), filepath.Join(root, "none")})
	var got []string
	for _, s := range skills {
		if s.Scope != ScopeUser || filepath.Base(s.Path) != File {
			t.Errorf("%+v", s)
		}
		got = append(got, s.Name)
	}
	if !slices.Equal(got, []string{"a", "b"}) || len(problems) != 1 || problems[0].Path != filepath.Join(root, "broken", File) {
		t.Errorf("%v, %v", got, problems)
	}
	many := make([]string, MaxRoots+1)
	for i := range many {
		many[i] = filepath.Join(root, "none")
	}
	if _, problems := Below(t.Context(), Local{}, many); len(problems) != 1 {
		t.Errorf("%v", problems)
	}
}

// A search is bounded: links that lead up do not make it endless.
func TestBelowIsBounded(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := os.Symlink(root, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if skills, problems := Below(t.Context(), Local{}, []string{root}); len(skills) != 0 || len(problems) != 1 || !strings.Contains(problems[0].Message, "only the first") {
		t.Errorf("%v, %v", skills, problems)
	}
}
