package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// changedFor matches fs/changed of a watch.
func changedFor(id, path string) func(message) bool {
	return func(m message) bool {
		if m.Method != "fs/changed" || m.Params["watchId"] != id {
			return false
		}
		paths, _ := m.Params["changedPaths"].([]any)
		return slices.Contains(paths, any(path))
	}
}

// Client file work goes on over the death of the control plane, and bytes are
// exact at a size past every message and window.
func TestFilesOfAClient(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.appServer()
	defer app.close()
	big := strings.Repeat("\x00\xff0123456789abc\n", 130_000) // 2 MB
	path := filepath.Join(w.workspace, "big.bin")
	app.call("fs/writeFile", map[string]any{"path": path, "dataBase64": base64.StdEncoding.EncodeToString([]byte(big))})
	if data, err := os.ReadFile(path); err != nil || string(data) != big {
		t.Errorf("on disk: %d bytes, %v", len(data), err)
	}
	if got := app.call("fs/readFile", map[string]any{"path": path})["dataBase64"]; got != base64.StdEncoding.EncodeToString([]byte(big)) {
		t.Error("read back: other bytes")
	}

	app.call("fs/watch", map[string]any{"watchId": "w", "path": w.workspace})
	w.write(filepath.Join(w.workspace, "one"), "1")
	app.await("a change", 10*time.Second, changedFor("w", filepath.Join(w.workspace, "one")))
	w.kill(w.controlPlane())
	app.await("word of what may have been missed", 30*time.Second, changedFor("w", w.workspace))
	w.write(filepath.Join(w.workspace, "two"), "2")
	app.await("a change after the restart", 10*time.Second, changedFor("w", filepath.Join(w.workspace, "two")))
	app.call("fs/remove", map[string]any{"path": path})
}

// F3: what is written to the config keeps the rest of the file, counts for the
// next thread, and one of 400 KB works.
func TestConfigWriteCountsAtOnce(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	file := filepath.Join(w.home, "config.toml")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// There before the first command: a folder of this name that comes while one
	// runs counts as the command's.
	if err := os.Mkdir(filepath.Join(w.workspace, ".heddle"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.write(filepath.Join(w.workspace, ".heddle", "config.toml"), "model = \"project-model\"\nmodel_provider = \"elsewhere\"\n")
	app := w.appServer()
	defer app.close()
	version := app.call("config/value/write", map[string]any{"keyPath": "model", "value": "other-model", "mergeStrategy": "replace"})["version"]
	after, _ := os.ReadFile(file)
	if want := strings.Replace(string(before), `"mock-model"`, `"other-model"`, 1); string(after) != want {
		t.Errorf("file:\n%s", after)
	}
	if got := app.call("thread/start", map[string]any{"cwd": w.workspace})["model"]; got != "other-model" {
		t.Errorf("the next thread has model %v", got)
	}
	large := strings.Repeat("rule\n", 80_000)
	app.call("config/batchWrite", map[string]any{"expectedVersion": version, "edits": []any{
		map[string]any{"keyPath": "developer_instructions", "value": large, "mergeStrategy": "replace"},
		map[string]any{"keyPath": `projects."` + w.workspace + `".trust_level`, "value": "trusted", "mergeStrategy": "upsert"},
	}})
	config, _ := app.call("config/read", map[string]any{})["config"].(map[string]any)
	if config["developer_instructions"] != large {
		t.Error("the large value differs")
	}

	// The project is trusted now: its own config counts.
	res := app.call("thread/start", map[string]any{"cwd": w.workspace})
	if res["model"] != "project-model" || res["modelProvider"] != "mock" {
		t.Errorf("the thread has %v of %v", res["model"], res["modelProvider"])
	}
	if err := os.RemoveAll(filepath.Join(w.workspace, ".heddle")); err != nil {
		t.Fatal(err)
	}
}

func TestFileSearch(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	w.write(filepath.Join(w.workspace, ".gitignore"), "*.o\n")
	w.write(filepath.Join(w.workspace, "walrus.c"), "")
	w.write(filepath.Join(w.workspace, "walrus.o"), "")
	app := w.appServer()
	defer app.close()
	files, _ := app.call("fuzzyFileSearch", map[string]any{"query": "wlrs", "roots": []string{w.workspace}})["files"].([]any)
	if len(files) != 1 || !strings.Contains(fmt.Sprint(files[0]), "walrus.c") {
		t.Errorf("found %v", files)
	}
}
