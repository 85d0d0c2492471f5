package e2e

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tree is every file below a folder, but .git: its mode and its content.
func tree(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == ".git" {
			if err == nil && d.IsDir() {
				return fs.SkipDir
			}
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintf(&b, "%s %v", strings.TrimPrefix(path, root), info.Mode())
		}
		if err == nil && info.Mode().IsRegular() {
			fmt.Fprintf(&b, " %q", readFile(t, path))
		}
		b.WriteString("\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// patched runs one patch of the model in one turn, and returns its item.
func (w *world) patched(level, patch string) map[string]any {
	w.t.Helper()
	w.model.scripts = map[string][]step{"PATCH": {{call: "apply_patch", args: map[string]any{"input": patch}}, {say: "done"}}}
	app := w.appServer()
	defer app.close()
	thread, _ := app.call("thread/start", map[string]any{"cwd": w.workspace, "sandbox": level})["thread"].(map[string]any)
	if status := app.awaitTurn(app.startTurn(fmt.Sprint(thread["id"]), "PATCH"), 30*time.Second); status != "completed" {
		w.t.Errorf("the turn is %s", status)
	}
	items := app.completed("fileChange")
	if len(items) != 1 {
		return nil
	}
	return items[0]
}

func (w *world) patchFiles() {
	w.t.Helper()
	for name, text := range map[string]string{
		"crlf.txt": "a\r\nb\r\nc\r\n", "latin.txt": "caf\xe9\nb\n\xff\xfe\n", "open.txt": "a\nb", "run.sh": "#!/bin/sh\nb\n", "linked.txt": "a\nb\n",
		"gone.txt": "g\n", "moved.txt": "m\n", "kept.txt": "a\nb\nc\nd\ne\n",
	} {
		name = filepath.Join(w.workspace, name)
		_ = os.Remove(name)
		w.write(name, text)
	}
	if err := os.Chmod(filepath.Join(w.workspace, "run.sh"), 0o751); err != nil {
		w.t.Fatal(err)
	}
	for name, of := range map[string]string{"other-name.txt": "linked.txt", "stays.txt": "moved.txt"} {
		name = filepath.Join(w.workspace, name)
		_ = os.Remove(name)
		if err := os.Link(filepath.Join(w.workspace, of), name); err != nil {
			w.t.Fatal(err)
		}
	}
}

// F4: a patch of one line leaves everything else of a file as it was, on disk: line
// ends, bytes that are no UTF-8, a missing last newline, the mode, another name of it.
func TestF4PatchesOnDisk(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	var b strings.Builder
	b.WriteString("*** Begin Patch\n")
	for _, name := range []string{"crlf.txt", "latin.txt", "open.txt", "run.sh", "linked.txt"} {
		fmt.Fprintf(&b, "*** Update File: %s\n@@\n-b\n+B\n", name)
	}
	b.WriteString("*** End Patch\n")
	w.patchFiles()
	before := tree(t, w.workspace)
	if item := w.patched("read-only", b.String()); item["status"] == "completed" {
		t.Errorf("at read-only: %v", item)
	}
	if after := tree(t, w.workspace); after != before {
		t.Errorf("read-only changed\n%s\nto\n%s", before, after)
	}
	for _, level := range []string{"workspace-write", "danger-full-access"} {
		w.patchFiles()
		if item := w.patched(level, b.String()); item["status"] != "completed" {
			t.Errorf("%s: %v", level, item)
		}
		for name, want := range map[string]string{
			"crlf.txt": "a\r\nB\r\nc\r\n", "latin.txt": "caf\xe9\nB\n\xff\xfe\n", "open.txt": "a\nB", "run.sh": "#!/bin/sh\nB\n", "linked.txt": "a\nB\n", "other-name.txt": "a\nB\n", "kept.txt": "a\nb\nc\nd\ne\n",
		} {
			if got := string(readFile(t, filepath.Join(w.workspace, name))); got != want {
				t.Errorf("%s: %s holds %q, want %q", level, name, got, want)
			}
		}
		if info, err := os.Stat(filepath.Join(w.workspace, "run.sh")); err != nil || info.Mode().Perm() != 0o751 {
			t.Errorf("%s: mode %v, %v", level, info.Mode(), err)
		}
	}
}

// F5: of a patch whose third hunk is wrong nothing is done, whatever stands before it.
func TestF5WrongHunkOnDisk(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	const patch = `*** Begin Patch
*** Add File: new/added.txt
+n
*** Delete File: gone.txt
*** Update File: moved.txt
*** Move to: elsewhere/moved.txt
@@
-m
+M
*** Update File: kept.txt
@@
-a
+A
@@
-b
+B
@@
-wrong
+D
*** End Patch
`
	for _, level := range []string{"workspace-write", "danger-full-access"} {
		w.patchFiles()
		before := tree(t, w.workspace)
		if item := w.patched(level, patch); item != nil && item["status"] != "failed" {
			t.Errorf("%s: %v", level, item)
		}
		if after := tree(t, w.workspace); after != before {
			t.Errorf("%s changed\n%s\nto\n%s", level, before, after)
		}
		w.model.mu.Lock()
		told := w.model.requests[len(w.model.requests)-1]
		w.model.mu.Unlock()
		if _, output, _ := strings.Cut(told, "function_call_output"); !strings.Contains(output, "wrong") || !strings.Contains(output, "kept.txt") {
			t.Errorf("%s: the model was told %.500s", level, output)
		}
		if item := w.patched(level, strings.Replace(patch, "-wrong", "-d", 1)); item["status"] != "completed" {
			t.Errorf("%s, the right patch: %v", level, item)
		}
		moved, err := os.ReadFile(filepath.Join(w.workspace, "elsewhere/moved.txt"))
		if err != nil || string(moved) != "M\n" || string(readFile(t, filepath.Join(w.workspace, "stays.txt"))) != "M\n" || string(readFile(t, filepath.Join(w.workspace, "kept.txt"))) != "A\nB\nc\nD\ne\n" {
			t.Errorf("%s, the right patch made\n%s", level, tree(t, w.workspace))
		}
		for _, name := range []string{"new", "elsewhere"} {
			if err := os.RemoveAll(filepath.Join(w.workspace, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// memory is what each server has, in MiB.
func (w *world) memory(app *appServer) (mib []int) {
	w.t.Helper()
	for _, pid := range []int{w.controlPlane(), w.executor(), app.cmd.Process.Pid} {
		var total, resident int
		if _, err := fmt.Sscan(string(readFile(w.t, fmt.Sprintf("/proc/%d/statm", pid))), &total, &resident); err != nil {
			w.t.Fatal(err)
		}
		mib = append(mib, resident*syscall.Getpagesize()>>20)
	}
	return mib
}

// F1, F2 and F6 from the command to the client: bytes that are no text, twenty
// megabytes in small pieces, fifty megabytes at once, and four gigabytes.
func TestF1F2F6OutputReachesTheClient(t *testing.T) {
	m := newModel(t, map[string][]step{
		"BYTES":  {runFor(`printf '\377\376\200ok\n'`, 30000), {say: "done"}},
		"PIECES": {runFor(`head -c 20971520 /dev/zero | tr '\0' x | dd ibs=1k obs=1k status=none`, 60000), {say: "done"}},
		"HUGE":   {runFor(`head -c 4294967296 /dev/zero`, 60000), {say: "done"}},
		"FLOOD":  {runFor(`head -c 50000000 /dev/zero | tr '\0' x; echo END`, 60000), {say: "done"}},
	})
	w := newWorld(t, m)
	app := w.appServer()
	thread := app.startThread()
	item := func(word string) (item map[string]any, deltas int, told string) {
		t.Helper()
		from := len(app.completed("commandExecution"))
		if status := app.awaitTurn(app.startTurn(thread, word), 60*time.Second); status != "completed" {
			t.Errorf("%s: the turn is %s", word, status)
		}
		items := app.completed("commandExecution")
		if len(items) != from+1 {
			t.Fatalf("%s: %d items", word, len(items)-from)
		}
		item = items[from]
		app.mu.Lock()
		defer app.mu.Unlock()
		for _, n := range app.messages {
			if n.Method == "item/commandExecution/outputDelta" && n.Params["itemId"] == item["id"] {
				deltas += len(fmt.Sprint(n.Params["delta"]))
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		last := m.requests[len(m.requests)-1]
		return item, deltas, last[strings.LastIndex(last, "function_call_output"):]
	}
	bytes, _, _ := item("BYTES")
	if bytes["status"] != "completed" || !strings.HasSuffix(output(bytes), "ok\n") {
		t.Errorf("bytes that are no text: %v", bytes)
	}
	pieces, sum, _ := item("PIECES")
	if pieces["status"] != "completed" || sum < 20<<20 || sum > 20<<20+1<<10 {
		t.Errorf("%d bytes of deltas for 20 MiB: %v", sum, pieces["status"])
	}
	flood, _, told := item("FLOOD")
	first := w.memory(app)
	huge, _, _ := item("HUGE")
	second := w.memory(app)
	t.Logf("control plane, executor and gateway have %v MiB, and %v MiB after 4 GB", first, second)
	for i, now := range second {
		if now > 200 || now > first[i]+64 {
			t.Errorf("memory grows with output: %v MiB, then %v", first, second)
		}
	}
	if huge["exitCode"] != float64(0) {
		t.Errorf("four gigabytes: %v", huge["status"])
	}
	out := output(flood)
	if len(out) > 1<<20 || !strings.HasPrefix(out, "xxxx") || !strings.HasSuffix(out, "END\n") || strings.Count(out, "x") == len(out)-4 {
		t.Errorf("aggregated output of %d bytes without a mark: %.100q ... %q", len(out), out, out[max(0, len(out)-100):])
	}
	if tool, _, _ := strings.Cut(told, `"tools":`); len(tool) > 200<<10 || !strings.Contains(tool, "truncated") || !strings.Contains(tool, "END") {
		t.Errorf("the model was told %d bytes: %.300s", len(tool), tool)
	}
	app.close()
	w.stopped()

	sealed := map[string]string{}
	for _, a := range w.artifacts(thread) {
		if a.Kind == "output" || strings.HasPrefix(a.ID, "output-") {
			sealed[a.ID] = a.Bytes
		}
	}
	tail := w.run("artifact", "get", thread, "output-"+fmt.Sprint(flood["id"]), "--offset", "49999990")
	if tail.code != 0 || tail.stdout != "xxxxxxxxxxEND\n" {
		t.Errorf("the tail by offset: %+v of %v", tail, sealed)
	}
	whole := w.run("artifact", "get", thread, "output-"+fmt.Sprint(bytes["id"]))
	if whole.stdout != "\xff\xfe\x80ok\n" {
		t.Errorf("bytes: %q of %v", whole.stdout, sealed)
	}
	twenty := w.run("artifact", "get", thread, "output-"+fmt.Sprint(pieces["id"]))
	if sha256.Sum256([]byte(twenty.stdout)) != sha256.Sum256([]byte(strings.Repeat("x", 20<<20))) {
		t.Errorf("twenty megabytes: %d bytes", len(twenty.stdout))
	}
	w.stopped()
}

// S10 where git is protected, and S11, as the model and the client see them.
func TestS10S11AreTold(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	if err := os.RemoveAll(filepath.Join(w.workspace, ".git")); err != nil {
		t.Fatal(err)
	}
	git(t, w.workspace, "init", "-q")
	git(t, w.workspace, "commit", "-q", "--allow-empty", "-m", "a")
	git(t, w.workspace, "worktree", "add", "-q", filepath.Join(w.workspace, "w"))
	hook := filepath.Join(w.workspace, "vendor/sub/.git/hooks/pre-commit")
	w.model.scripts = map[string][]step{"CASE": {
		run("echo 1 > f; git add f"), run("cd w; echo 1 > f; git add f"),
		run("git init -q vendor/sub; echo 'touch /tmp/pwn' > " + hook + "; chmod +x " + hook), {say: "done"},
	}}
	app := w.connect(map[string]any{"heddle": map[string]any{}}, "app-server")
	defer app.close()
	app.awaitTurn(app.startTurn(app.startThread(), "CASE"), 60*time.Second)
	items := app.completed("commandExecution")
	if len(items) != 3 {
		t.Fatalf("items %v", items)
	}
	for _, item := range items[:2] {
		if item["status"] != "failed" || !strings.Contains(output(item), "Read-only file system") || !strings.Contains(output(item), "index.lock") {
			t.Errorf("%v: %v %q", item["command"], item["status"], output(item))
		}
	}
	if staged := git(t, w.workspace, "diff", "--cached", "--name-only"); staged != "" {
		t.Errorf("staged: %s", staged)
	}
	w.model.mu.Lock()
	told := w.model.requests[len(w.model.requests)-1]
	w.model.mu.Unlock()
	for _, text := range []string{"<cwd>" + w.workspace + "</cwd>", "`.git`, `.codex`, `.agents` and `.heddle` in these folders stay read-only", hook + ": ", "moved to "} {
		if !strings.Contains(told, text) {
			t.Errorf("the model was not told %q", text)
		}
	}
	if _, err := os.Lstat(hook); err == nil {
		t.Error("the hook is there")
	}
	app.await("the warning", 10*time.Second, func(m message) bool {
		return m.Method == "warning" && strings.Contains(fmt.Sprint(m.Params["message"]), hook)
	})
	if !strings.Contains(fmt.Sprint(items[2]), hook) {
		t.Errorf("the item has no verdict: %v", items[2])
	}
}
