package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A file of instructions goes before a text, and starts at the folder of the file
// that names it, or at the one that the config is loaded for.
func TestBaseInstructionsFromAFile(t *testing.T) {
	h := home(t, "instructions = \"text\"\nmodel_instructions_file = \"base.md\"\n")
	cwd := t.TempDir()
	for dir, text := range map[string]string{h.Dir: "\n of the home \n", cwd: "of the folder"} {
		if err := os.WriteFile(filepath.Join(dir, "base.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	project := &Project{Dir: "/ws/.heddle", Data: []byte("model_instructions_file = \"/etc/passwd\"\n")}
	over := map[string]any{"model_instructions_file": "base.md"}
	for name, tt := range map[string]struct {
		o    Options
		want string
	}{
		"file":    {Options{Home: h, Cwd: cwd}, "of the home"},
		"session": {Options{Home: h, Cwd: cwd, Overrides: over}, "of the folder"},
		"thread":  {Options{Home: h, Cwd: cwd, Thread: over}, "of the folder"},
		"home":    {Options{Home: h, Env: map[string]string{"HOME": h.Dir}, Overrides: map[string]any{"model_instructions_file": "~/base.md"}}, "of the home"},
		"project": {Options{Home: h, Cwd: "/ws", Project: project, Overrides: map[string]any{`projects."/ws".trust_level`: "trusted"}}, "of the home"},
		"text":    {Options{Home: home(t, "instructions = \"text\"\n")}, "text"},
	} {
		if got, err := load(t, tt.o).BaseInstructions(); got != tt.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
	}
}

// Instructions that cannot be had are an error that names the file.
func TestInstructionsFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"blank": " \n", "binary": "a\xff", "long": strings.Repeat("x", maxInstructionsFile+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"blank": "is empty", "binary": "not UTF-8", "long": "larger than", "pipe": "not a regular file", "none": "no such file", ".": "not a regular file",
	} {
		c := load(t, Options{Home: Home{Dir: dir}, Cwd: dir, Overrides: map[string]any{"model_instructions_file": name}})
		text, err := c.BaseInstructions()
		if text != "" || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), filepath.Join(dir, name)) {
			t.Errorf("%s: %q, %v, want %q", name, text, err, want)
		}
	}
	c := load(t, Options{Home: Home{Dir: dir}, Overrides: map[string]any{"model_instructions_file": "blank"}})
	if _, err := c.BaseInstructions(); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("without a folder: %v", err)
	}
}

// Which instruction files of a workspace count follows the config; lists hold
// names, not paths, and a project does not say where it begins.
func TestProjectDocs(t *testing.T) {
	c := load(t, Options{Home: Home{Dir: t.TempDir()}})
	if names := c.ProjectDocNames(); !slices.Equal(names, []string{"AGENTS.override.md", "AGENTS.md"}) || !slices.Equal(c.ProjectRootMarkers(), []string{".git"}) || c.ProjectDocMaxBytes() != 32768 {
		t.Errorf("unset: %q, %q, %d", names, c.ProjectRootMarkers(), c.ProjectDocMaxBytes())
	}
	h := home(t, "project_doc_fallback_filenames = [\"TEAM.md\"]\nproject_root_markers = []\nproject_doc_max_bytes = 0\nprojects.\"/ws\".trust_level = \"trusted\"\n")
	project := &Project{Dir: "/ws/.heddle", Data: []byte("project_root_markers = [\"x\"]\nproject_doc_max_bytes = 7\n")}
	c = load(t, Options{Home: h, Cwd: "/ws", Project: project})
	if names := c.ProjectDocNames(); !slices.Equal(names, []string{"AGENTS.override.md", "AGENTS.md", "TEAM.md"}) || len(c.ProjectRootMarkers()) != 0 || c.ProjectDocMaxBytes() != 7 {
		t.Errorf("set: %q, %q, %d", names, c.ProjectRootMarkers(), c.ProjectDocMaxBytes())
	}
	for _, list := range [][]any{{"a/b"}, {".."}, {""}, {"x\x00"}, {strings.Repeat("x", 256)}, slices.Repeat([]any{"x"}, maxNames+1)} {
		for _, key := range []string{"project_doc_fallback_filenames", "project_root_markers"} {
			if _, err := Load(Options{Home: Home{Dir: t.TempDir()}, Overrides: map[string]any{key: list}}); err == nil {
				t.Errorf("%s took %q", key, list)
			}
		}
	}
}
