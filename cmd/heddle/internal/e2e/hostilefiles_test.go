package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A workspace whose every file that heddle reads by itself is a pipe that nobody writes to, or leads to a device
// without an end: nothing waits for it, and no memory fills.
func TestHostileFilesHoldNothingUp(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"GO": {run("echo ok"), {say: "done"}}}))
	in := func(name string) string { return filepath.Join(w.workspace, name) }
	for _, name := range []string{".heddle", ".agents/skills/x", ".git/info"} {
		if err := os.MkdirAll(in(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		_ = os.RemoveAll(in(".heddle"))
		_ = os.RemoveAll(in(".agents"))
	}()
	for _, name := range []string{".git/HEAD", ".git/info/exclude", ".heddle/config.toml", "AGENTS.override.md"} {
		_ = os.Remove(in(name))
		if err := syscall.Mkfifo(in(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".git/config", ".git/packed-refs", ".gitignore", "AGENTS.md", ".agents/skills/x/SKILL.md", ".heddle/hooks.json"} {
		if err := os.Symlink("/dev/zero", in(name)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(w.home, "config.toml")
	w.write(file, string(readFile(t, file))+fmt.Sprintf("\n[projects.%q]\ntrust_level = \"trusted\"\n", w.workspace))
	app := w.experimental()
	defer app.close()
	for _, level := range []string{"read-only", "workspace-write"} {
		thread, _ := app.call("thread/start", map[string]any{"cwd": w.workspace, "sandbox": level})["thread"].(map[string]any)
		if status := app.awaitTurn(app.startTurn(fmt.Sprint(thread["id"]), "GO"), 30*time.Second); status != "completed" {
			t.Errorf("%s: the turn is %s", level, status)
		}
	}
	for _, item := range app.completed("commandExecution") {
		if output(item) != "ok\n" {
			t.Errorf("command: %v", item)
		}
	}
	app.call("skills/list", map[string]any{"cwds": []any{w.workspace}})
	app.call("hooks/list", map[string]any{"cwds": []any{w.workspace}})
	app.call("config/read", map[string]any{"cwd": w.workspace})
	app.call("fuzzyFileSearch", map[string]any{"query": "a", "roots": []string{w.workspace}})
	for _, name := range []string{"AGENTS.md", "AGENTS.override.md"} {
		if got := app.refused("fs/readFile", map[string]any{"path": in(name)}); got != "-32600 path `"+in(name)+"` is not a file" {
			t.Error(got)
		}
	}
	for i, mib := range w.memory(app) {
		if mib > 200 {
			t.Errorf("server %d has %d MiB", i, mib)
		}
	}
}
