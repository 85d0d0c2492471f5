package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A workspace may hold heddle's own home, or be it. What is configured there says what runs outside of a sandbox
// later, so that no contained command changes it, nor puts another home in its place; at full access it can.
func TestCommandsDoNotConfigureHeddle(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	root := filepath.Dir(w.home)
	plant := fmt.Sprintf("cd %s; echo '# owned' >> config.toml; mkdir -p rules skills/x; echo x > rules/default.rules; echo x > skills/x/SKILL.md; echo x > hooks.json; "+
		"mv config.toml c2; cd ..; mv home h2; echo beside > beside.txt; echo done", w.home)
	w.model.scripts = map[string][]step{
		"PLANT": {run(plant), {call: "apply_patch", args: map[string]any{"input": "*** Begin Patch\n*** Add File: " + w.home + "/rules/other.rules\n+x\n*** End Patch\n"}}, {say: "done"}},
		"OWN":   {run("echo '# owned' >> " + w.home + "/config.toml"), {say: "done"}},
	}
	app := w.appServer()
	defer app.close()
	config := string(readFile(t, filepath.Join(w.home, "config.toml")))
	for _, cwd := range []string{root, w.home} {
		thread, _ := app.call("thread/start", map[string]any{"cwd": cwd, "sandbox": "workspace-write"})["thread"].(map[string]any)
		app.awaitTurn(app.startTurn(fmt.Sprint(thread["id"]), "PLANT"), 30*time.Second)
		items := app.completed("commandExecution")
		if out := output(items[len(items)-1]); !strings.HasSuffix(out, "done\n") || strings.Count(out, "Read-only file system") < 4 {
			t.Errorf("in %s: %s", cwd, out)
		}
		if got := string(readFile(t, filepath.Join(w.home, "config.toml"))); got != config {
			t.Errorf("in %s the config became %q", cwd, got)
		}
		for _, name := range []string{"rules", "skills", "hooks.json", "c2"} {
			if left, _ := filepath.Glob(filepath.Join(w.home, name)); len(left) > 0 {
				t.Errorf("in %s a command made %s", cwd, name)
			}
		}
	}
	if string(readFile(t, filepath.Join(root, "beside.txt"))) != "beside\n" {
		t.Error("beside the home nothing could be written")
	}
	thread, _ := app.call("thread/start", map[string]any{"cwd": root, "sandbox": "danger-full-access"})["thread"].(map[string]any)
	app.awaitTurn(app.startTurn(fmt.Sprint(thread["id"]), "OWN"), 30*time.Second)
	if got := string(readFile(t, filepath.Join(w.home, "config.toml"))); got != config+"# owned\n" {
		t.Errorf("at full access: %q", got)
	}
}

// What a person approved is done in heddle's home too: a patch of exactly that file.
func TestApprovedPatchOfHeddlesHome(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	name := filepath.Join(w.home, "AGENTS.md")
	w.model.scripts = map[string][]step{"PATCH": {
		{call: "apply_patch", args: map[string]any{"input": "*** Begin Patch\n*** Add File: " + name + "\n+be kind\n*** End Patch\n"}}, {say: "done"},
	}}
	app := w.appServer()
	defer app.close()
	turn := app.startTurn(app.asking(), "PATCH")
	q := app.await("the question", 30*time.Second, func(m message) bool { return m.Method == "item/fileChange/requestApproval" })
	app.send(map[string]any{"id": q.ID, "result": map[string]any{"decision": "accept"}})
	app.awaitTurn(turn, 30*time.Second)
	if got := string(readable(name)); got != "be kind\n" {
		t.Errorf("the approved file holds %q", got)
	}
}
