package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// L03 and invariant I10: what one thread said and printed, and what the parts of heddle keep of it, cannot be read by a
// contained command of another.
func TestL03I10OtherThreadsCannotBeRead(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	kept := filepath.Join(os.TempDir(), "heddle-l03-"+w.mark) // at full access the host's
	defer os.Remove(kept)
	look := "grep -raoh 'TOPSECRE[T]-A' " + w.home + " | sort | uniq -c; ls " + w.home + "/streams " + w.home + "/log; test -s " + w.home + "/state.db && echo store; echo looked"
	w.model.scripts = map[string][]step{
		"TELL": {run("echo TOPSECRET-A"), {say: "TOPSECRET-A"}},
		"LOOK": {run("echo kept > " + kept), run(look), run("cat " + kept), {say: "done"}},
	}
	app := w.appServer()
	defer app.close()
	for _, ephemeral := range []bool{false, true} {
		thread, _ := app.call("thread/start", map[string]any{"cwd": w.workspace, "ephemeral": ephemeral})["thread"].(map[string]any)
		app.awaitTurn(app.startTurn(fmt.Sprint(thread["id"]), "TELL"), 30*time.Second)
	}
	for level, visible := range map[string]bool{"read-only": false, "workspace-write": false, "danger-full-access": true} {
		from := len(app.completed("commandExecution"))
		thread, _ := app.call("thread/start", map[string]any{"cwd": w.workspace, "sandbox": level})["thread"].(map[string]any)
		app.awaitTurn(app.startTurn(fmt.Sprint(thread["id"]), "LOOK"), 30*time.Second)
		items := app.completed("commandExecution")[from:]
		if len(items) != 3 || !strings.HasSuffix(output(items[1]), "looked\n") {
			t.Fatalf("%s: %d items, %v", level, len(items), items)
		}
		if got := output(items[1]); strings.Contains(got, "TOPSECRET-A") != visible || strings.Contains(got, "store\n") != visible {
			t.Errorf("%s: %s", level, got)
		} else if !visible && got != w.home+"/log:\n\n"+w.home+"/streams:\nlooked\n" {
			t.Errorf("%s shows: %q", level, got)
		}
		if output(items[2]) != "kept\n" {
			t.Errorf("%s: the sandbox was made anew between two commands: %q", level, output(items[2]))
		}
	}
}
