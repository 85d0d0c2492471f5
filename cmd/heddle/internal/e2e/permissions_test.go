package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// permissionsWorld is a world in which the model may ask for permissions, and a
// folder beside the workspace that a turn wants to write in.
func permissionsWorld(t *testing.T, wanted func(folder string) map[string]any) (w *world, folder string) {
	t.Helper()
	scripts := map[string][]step{}
	w = newWorld(t, newModel(t, scripts))
	folder = nextTo(w, "out")
	if err := os.MkdirAll(filepath.Join(folder, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(w.home, "config.toml")
	w.write(name, strings.Replace(string(readFile(t, name)), `"never"`, `"on-request"`, 1)+"\n[features]\nrequest_permissions_tool = true\n")
	write := func(name string) step {
		return run("echo hello > " + filepath.Join(folder, name) + " && echo wrote-$((40+2))")
	}
	ask := step{call: "request_permissions", args: map[string]any{"reason": "to keep the results", "permissions": wanted(folder)}}
	scripts["GO"] = []step{write("first"), ask, write("second"), {say: "done"}}
	// What was granted is told as a message of its own, and the script goes on there.
	scripts["writable_roots"] = []step{write("second"), {say: "done"}}
	scripts["AGAIN"] = []step{write("third"), {say: "done"}}
	return w, folder
}

// nextTo is a path beside the workspace and the home.
func nextTo(w *world, name string) string { return filepath.Join(filepath.Dir(w.home), name) }

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func writeTo(folder string) map[string]any {
	return map[string]any{"file_system": map[string]any{"write": []any{folder}}}
}

func askedPermissions(m message) bool { return m.Method == "item/permissions/requestApproval" }

// shownFolders are the folders that a question asks to write in.
func shownFolders(m message) string {
	p, _ := m.Params["permissions"].(map[string]any)
	fs, _ := p["fileSystem"].(map[string]any)
	return fmt.Sprint(fs["write"])
}

// A command fails, the model asks, and what is granted holds for the rest of the
// turn or of the session, and no longer.
func TestPermissionsAreGranted(t *testing.T) {
	for _, row := range []struct {
		scope string
		third bool
	}{{"turn", false}, {"session", true}} {
		t.Run(row.scope, func(t *testing.T) {
			w, folder := permissionsWorld(t, writeTo)
			a := w.appServer()
			id := a.startThread()
			turn := a.startTurn(id, "GO")
			q := a.await("the question", 30*time.Second, askedPermissions)
			if shownFolders(q) != "["+folder+"]" || q.Params["reason"] != "to keep the results" || q.Params["cwd"] != w.workspace || q.Params["turnId"] != turn {
				t.Errorf("asked %v", q.Params)
			}
			a.send(map[string]any{"id": q.ID, "result": map[string]any{"permissions": q.Params["permissions"], "scope": row.scope}})
			a.await("the end of the question", 20*time.Second, func(m message) bool {
				return m.Method == "serverRequest/resolved" && fmt.Sprint(m.Params["requestId"]) == string(q.ID)
			})
			if got := a.awaitTurn(turn, 30*time.Second); got != "completed" {
				t.Fatalf("turn %s", got)
			}
			if there(filepath.Join(folder, "first")) || !there(filepath.Join(folder, "second")) {
				t.Error("the folder was written before the grant, or not under it")
			}
			if got := a.awaitTurn(a.startTurn(id, "AGAIN"), 30*time.Second); got != "completed" {
				t.Fatalf("turn %s", got)
			}
			if there(filepath.Join(folder, "third")) != row.third {
				t.Errorf("written in the next turn: %v", !row.third)
			}
			other := a.startThread()
			if got := a.awaitTurn(a.startTurn(other, "AGAIN and in another thread"), 30*time.Second); got != "completed" {
				t.Fatalf("turn %s", got)
			}
			if !row.third && there(filepath.Join(folder, "third")) {
				t.Error("another thread has the grant")
			}
			a.close()
		})
	}
}

// Answers that are wider than the question, or none, grant nothing.
func TestPermissionsAreNotWidened(t *testing.T) {
	for name, answer := range map[string]func(folder string) map[string]any{
		"wider": func(f string) map[string]any {
			return map[string]any{"permissions": map[string]any{"fileSystem": map[string]any{"write": []any{filepath.Dir(f), "/"}}}}
		},
		"nothing": func(string) map[string]any { return map[string]any{"permissions": map[string]any{}} },
		"deny": func(f string) map[string]any {
			return map[string]any{"permissions": map[string]any{"fileSystem": map[string]any{"write": []any{f}, "entries": []any{
				map[string]any{"path": map[string]any{"type": "path", "path": filepath.Join(f, "deep")}, "access": "deny"}}}}}
		},
		"unusable": func(string) map[string]any { return map[string]any{"decision": "accept"} },
	} {
		t.Run(name, func(t *testing.T) {
			w, folder := permissionsWorld(t, writeTo)
			a := w.appServer()
			turn := a.startTurn(a.startThread(), "GO")
			q := a.await("the question", 30*time.Second, askedPermissions)
			a.send(map[string]any{"id": q.ID, "result": answer(folder)})
			if got := a.awaitTurn(turn, 30*time.Second); got != "completed" {
				t.Fatalf("turn %s", got)
			}
			if there(filepath.Join(folder, "second")) {
				t.Error("the folder was written")
			}
			a.close()
		})
	}
}

// What can never be granted is not even asked about, and a link is shown as what
// it leads to.
func TestPermissionsThatAreNotAsked(t *testing.T) {
	for name, wanted := range map[string]func(folder string) map[string]any{
		"root":        func(string) map[string]any { return writeTo("/") },
		"system":      func(string) map[string]any { return writeTo("/etc") },
		"heddle home": func(f string) map[string]any { return writeTo(filepath.Join(filepath.Dir(f), "home")) },
		"above it":    func(f string) map[string]any { return writeTo(filepath.Dir(f)) },
		"dots":        func(f string) map[string]any { return writeTo(f + "/../home") },
		"protected":   func(f string) map[string]any { return writeTo(filepath.Join(filepath.Dir(f), "ws/.git")) },
		"relative":    func(string) map[string]any { return writeTo("../home") },
		"link":        func(f string) map[string]any { return writeTo(filepath.Join(filepath.Dir(f), "link")) },
		"no folder":   func(f string) map[string]any { return writeTo(filepath.Join(f, "missing")) },
		"bad form":    func(string) map[string]any { return map[string]any{"file_system": map[string]any{"write": "/x"}} },
		"empty":       func(string) map[string]any { return map[string]any{} },
	} {
		t.Run(name, func(t *testing.T) {
			w, folder := permissionsWorld(t, wanted)
			if err := os.Symlink(w.home, nextTo(w, "link")); err != nil {
				t.Fatal(err)
			}
			a := w.appServer()
			if got := a.awaitTurn(a.startTurn(a.startThread(), "GO"), 30*time.Second); got != "completed" {
				t.Fatalf("turn %s", got)
			}
			if n := a.count("item/permissions/requestApproval"); n != 0 || there(filepath.Join(folder, "second")) {
				t.Errorf("asked %d times", n)
			}
			a.close()
		})
	}
	t.Run("never", func(t *testing.T) {
		w, folder := permissionsWorld(t, writeTo)
		a := w.appServer()
		th := a.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "never"})
		if got := a.awaitTurn(a.startTurn(th["thread"].(map[string]any)["id"].(string), "GO"), 30*time.Second); got != "completed" {
			t.Fatalf("turn %s", got)
		}
		if n := a.count("item/permissions/requestApproval"); n != 0 || there(filepath.Join(folder, "second")) {
			t.Errorf("asked %d times", n)
		}
		a.close()
	})
}

// A question that is open when the control plane is killed is put again, with the
// same id, and its answer counts; a session's grant survives a restart too.
func TestPermissionsSurviveRestarts(t *testing.T) {
	w, folder := permissionsWorld(t, writeTo)
	a := w.appServer()
	id := a.startThread()
	turn := a.startTurn(id, "GO")
	q := a.await("the question", 30*time.Second, askedPermissions)
	w.kill(w.controlPlane())
	w.eventually("the answer is taken", 60*time.Second, func() bool {
		a.send(map[string]any{"id": q.ID, "result": map[string]any{"permissions": q.Params["permissions"], "scope": "session"}})
		return there(filepath.Join(folder, "second"))
	})
	if got := a.awaitTurn(turn, 60*time.Second); got != "completed" {
		t.Fatalf("turn %s", got)
	}
	w.kill(w.controlPlane())
	w.eventually("the grant holds after another restart", 60*time.Second, func() bool {
		m := a.ask("turn/start", map[string]any{"threadId": id, "input": []any{map[string]any{"type": "text", "text": "AGAIN"}}})
		return m.Error == nil
	})
	w.eventually("the folder is written again", 30*time.Second, func() bool { return there(filepath.Join(folder, "third")) })
	a.await("the end", 30*time.Second, func(m message) bool {
		return m.Method == "thread/status/changed" && strings.Contains(fmt.Sprint(m.Params["status"]), "idle")
	})
	a.close()
}
