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
	w = newWorld(t, newModel(t, map[string][]step{}))
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
	plays(w, "GO", write("first"), ask, write("second"), step{say: "done"})
	// What was granted is told as a message of its own, and the script goes on there.
	plays(w, "writable_roots", write("second"), step{say: "done"})
	plays(w, "AGAIN", write("third"), step{say: "done"})
	return w, folder
}

// plays sets what the model does after a word.
func plays(w *world, word string, steps ...step) {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	w.model.scripts[word] = steps
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
	w, folder := permissionsWorld(t, writeTo)
	a := w.appServer()
	a.wire.wrong = true
	for name, answer := range map[string]map[string]any{
		"wider":   {"permissions": writes(filepath.Dir(folder), "/", folder+"/..")},
		"nothing": {"permissions": map[string]any{}},
		"deny": {"permissions": map[string]any{"fileSystem": map[string]any{"write": []any{folder}, "entries": []any{
			map[string]any{"path": map[string]any{"type": "path", "path": filepath.Join(folder, "deep")}, "access": "deny"}}}}},
		"reviewed":    {"permissions": writes(folder), "strictAutoReview": true},
		"other scope": {"permissions": writes(folder), "scope": "forever"},
		"unusable":    {"decision": "accept"},
	} {
		turn := a.startTurn(a.startThread(), "GO")
		q := a.await("the question", 30*time.Second, func(m message) bool { return askedPermissions(m) && m.Params["turnId"] == turn })
		a.send(map[string]any{"id": q.ID, "result": answer})
		if got := a.awaitTurn(turn, 30*time.Second); got != "completed" {
			t.Fatalf("%s: turn %s", name, got)
		}
		if there(filepath.Join(folder, "second")) {
			t.Errorf("%s: the folder was written", name)
		}
	}
	// A part of what was asked is granted as that part.
	turn := a.startTurn(a.startThread(), "GO")
	q := a.await("the question", 30*time.Second, func(m message) bool { return askedPermissions(m) && m.Params["turnId"] == turn })
	plays(w, "writable_roots", run("cd "+folder+"; echo a > deep/in; echo b > second"), step{say: "done"})
	a.send(map[string]any{"id": q.ID, "result": map[string]any{"permissions": writes(filepath.Join(folder, "deep"))}})
	if got := a.awaitTurn(turn, 30*time.Second); got != "completed" {
		t.Fatalf("turn %s", got)
	}
	if !there(filepath.Join(folder, "deep/in")) || there(filepath.Join(folder, "second")) {
		t.Error("the part that was granted is not what can be written")
	}
	a.close()
}

func writes(folders ...string) map[string]any {
	return map[string]any{"fileSystem": map[string]any{"write": folders}}
}

// What can never be granted is not even asked about, whatever form it has; the
// model is told why.
func TestPermissionsThatAreNotAsked(t *testing.T) {
	w, folder := permissionsWorld(t, writeTo)
	if err := os.Symlink(w.home, nextTo(w, "link")); err != nil {
		t.Fatal(err)
	}
	a := w.appServer()
	cases := map[string]struct {
		wanted map[string]any
		told   string
	}{
		"root":       {writeTo("/"), "too wide"},
		"system":     {writeTo("/etc"), "too wide"},
		"kernel":     {writeTo("/proc/self"), "belongs to the system"},
		"home":       {writeTo(w.home), "data of the control plane"},
		"above-home": {writeTo(filepath.Dir(w.home)), "too wide"},
		"dots":       {writeTo(folder + "/../home"), "data of the control plane"},
		"relative":   {writeTo("../home"), "data of the control plane"},
		"link":       {writeTo(nextTo(w, "link")), "data of the control plane"},
		"protected":  {writeTo(filepath.Join(w.workspace, ".git")), "is protected"},
		"missing":    {writeTo(filepath.Join(folder, "missing")), "no folder that exists"},
		"file":       {writeTo(filepath.Join(w.home, "config.toml")), "no folder that exists"},
		"bad-form":   {map[string]any{"file_system": map[string]any{"write": "/x"}}, "failed to parse function arguments"},
		"empty":      {map[string]any{}, "at least one permission"},
	}
	for name, c := range cases {
		plays(w, "TRY-"+name+";", step{call: "request_permissions", args: map[string]any{"permissions": c.wanted}}, step{say: "done"})
	}
	never := a.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "never"})["thread"].(map[string]any)["id"].(string)
	asks := a.startThread()
	try := func(name, thread, prompt, told string) {
		t.Helper()
		if got := a.awaitTurn(a.startTurn(thread, prompt), 30*time.Second); got != "completed" {
			t.Fatalf("%s: turn %s", name, got)
		}
		w.model.mu.Lock()
		defer w.model.mu.Unlock()
		last := w.model.requests[len(w.model.requests)-1]
		if at := strings.LastIndex(last, "function_call_output"); at < 0 || !strings.Contains(last[at:], told) {
			t.Errorf("%s: the model was not told %q", name, told)
		}
	}
	for name, c := range cases {
		try(name, asks, "TRY-"+name+";", c.told)
	}
	plays(w, "TRY-never;", step{call: "request_permissions", args: map[string]any{"permissions": writeTo(folder)}}, step{say: "done"})
	try("never", never, "TRY-never;", "nobody is asked")
	if n := a.count("item/permissions/requestApproval"); n != 0 {
		t.Errorf("asked %d times", n)
	}
	a.close()
}

// A link is shown as what it leads to, and a folder that leads elsewhere by the
// time of the answer is not granted.
func TestPermissionsAreForWhatWasShown(t *testing.T) {
	w, folder := permissionsWorld(t, func(f string) map[string]any { return writeTo(filepath.Join(filepath.Dir(f), "link")) })
	if err := os.Symlink(folder, nextTo(w, "link")); err != nil {
		t.Fatal(err)
	}
	a := w.appServer()
	turn := a.startTurn(a.startThread(), "GO")
	q := a.await("the question", 30*time.Second, askedPermissions)
	if shownFolders(q) != "["+folder+"]" {
		t.Errorf("asked %v", q.Params)
	}
	other := nextTo(w, "other")
	if err := os.Rename(folder, other); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, folder); err != nil {
		t.Fatal(err)
	}
	a.send(map[string]any{"id": q.ID, "result": map[string]any{"permissions": q.Params["permissions"], "scope": "session"}})
	if got := a.awaitTurn(turn, 30*time.Second); got != "completed" {
		t.Fatalf("turn %s", got)
	}
	if there(filepath.Join(other, "second")) {
		t.Error("the folder was written")
	}
	a.close()
}

// A process that was started under the grant of a turn ends with it.
func TestPermissionsEndForProcessesToo(t *testing.T) {
	w, folder := permissionsWorld(t, writeTo)
	plays(w, "writable_roots", runFor("echo begun > "+filepath.Join(folder, "second")+"; sleep 3600", 300), step{say: "done"})
	a := w.appServer()
	turn := a.startTurn(a.startThread(), "GO")
	q := a.await("the question", 30*time.Second, askedPermissions)
	a.send(map[string]any{"id": q.ID, "result": map[string]any{"permissions": q.Params["permissions"]}})
	if got := a.awaitTurn(turn, 30*time.Second); got != "completed" || !there(filepath.Join(folder, "second")) {
		t.Fatalf("turn %s", got)
	}
	w.eventually("the process ends with the turn", 10*time.Second, func() bool { return !w.running("sleep 3600") })
	a.close()
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
