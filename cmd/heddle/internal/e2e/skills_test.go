package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Roots of skills that a client names are listed, shown to the model of its
// threads, and gone when it names others.
func TestExtraSkillRoots(t *testing.T) {
	m := newModel(t, map[string][]step{"HELLO": {{say: "hello there"}}})
	w := newWorld(t, m)
	root := filepath.Join(filepath.Dir(w.home), "extra")
	dir := filepath.Join(root, "group", "weave")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.write(filepath.Join(dir, "SKILL.md"), "---\nname: weave\ndescription: knows the warp\n---\nOver and under.\n")
	app := w.appServer()
	defer app.close()
	listed := func() string {
		return fmt.Sprint(app.call("skills/list", map[string]any{"cwds": []any{w.workspace}})["data"])
	}
	said := func(input ...any) string {
		params := map[string]any{"threadId": app.startThread(), "input": append([]any{map[string]any{"type": "text", "text": "HELLO"}}, input...)}
		turn, _ := app.call("turn/start", params)["turn"].(map[string]any)
		app.awaitTurn(fmt.Sprint(turn["id"]), 30*time.Second)
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.requests[len(m.requests)-1]
	}
	if strings.Contains(listed(), "weave") {
		t.Error("the skill is listed before its root is named")
	}
	app.call("skills/extraRoots/set", map[string]any{"extraRoots": []any{root, "/no/such/folder"}})
	app.await("notice", 10*time.Second, func(m message) bool { return m.Method == "skills/changed" })
	if got := listed(); !strings.Contains(got, filepath.Join(dir, "SKILL.md")) || !strings.Contains(got, "scope:user") {
		t.Errorf("listed: %s", got)
	}
	skill := map[string]any{"type": "skill", "name": "weave", "path": filepath.Join(dir, "SKILL.md")}
	if got := said(skill); !strings.Contains(got, "knows the warp") || !strings.Contains(got, "Over and under.") {
		t.Errorf("the model was shown: %.3000s", got)
	}
	// Another client's server has none of it.
	other := w.appServer()
	if got := fmt.Sprint(other.call("skills/list", map[string]any{"cwds": []any{w.workspace}})["data"]); strings.Contains(got, "weave") {
		t.Errorf("listed for another client: %s", got)
	}
	other.close()
	// The session brings them again after the control plane is gone.
	w.kill(w.controlPlane())
	if got := listed(); !strings.Contains(got, "weave") {
		t.Errorf("listed after a restart: %s", got)
	}
	app.call("skills/extraRoots/set", map[string]any{"extraRoots": []any{}})
	if strings.Contains(listed(), "weave") || strings.Contains(said(), "knows the warp") {
		t.Error("the skill is there after its root was taken back")
	}
	many := make([]any, 65)
	for i := range many {
		many[i] = root
	}
	if got := app.refused("skills/extraRoots/set", map[string]any{"extraRoots": many}); got != "-32600 65 roots were given, the limit is 64" {
		t.Error(got)
	}
}
