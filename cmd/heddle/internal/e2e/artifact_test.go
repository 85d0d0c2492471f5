package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type shownArtifact struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"`
	Bytes  string `json:"bytes"`
	SHA256 string `json:"sha256"`
	Sealed bool   `json:"sealed"`
	Diff   struct {
		BaseCommit string `json:"baseCommit"`
		Files      []struct {
			Path, Kind string
		} `json:"files"`
	} `json:"diff"`
}

func (w *world) artifacts(thread string, args ...string) []shownArtifact {
	w.t.Helper()
	got := w.run(append([]string{"artifact", "list", thread, "--json"}, args...)...)
	if got.code != 0 {
		w.t.Fatalf("artifact list: %+v", got)
	}
	var out []shownArtifact
	for line := range strings.Lines(got.stdout) {
		var a shownArtifact
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			w.t.Fatalf("%q: %v", line, err)
		}
		out = append(out, a)
	}
	return out
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// After everything that was connected is gone, a new client lists what a turn
// left, fetches its patch, which turns a checkout of the base commit into what
// the turn made of it, and the whole output of its command.
func TestArtifactsAfterReconnect(t *testing.T) {
	const patch = "*** Begin Patch\n*** Update File: edited.txt\n@@\n-one\n+two\n*** Delete File: gone.txt\n*** Add File: sub/new file.txt\n+n\n*** Update File: moved.txt\n*** Move to: sub/moved.txt\n@@\n-m\n+M\n*** End Patch\n"
	w := newWorld(t, newModel(t, map[string][]step{"WORK": {
		{call: "apply_patch", args: map[string]any{"input": patch}},
		runFor("seq 1 400000; printf '\\377end'", 30_000),
		{say: "done"},
	}}))
	for name, text := range map[string]string{"edited.txt": "one\n", "gone.txt": "g\n", "moved.txt": "m\n"} {
		w.write(filepath.Join(w.workspace, name), text)
	}
	git(t, w.workspace, "init", "-q")
	git(t, w.workspace, "add", "-A")
	git(t, w.workspace, "commit", "-qm", "base")
	base := git(t, w.workspace, "rev-parse", "HEAD")
	checkout := filepath.Join(t.TempDir(), "checkout")
	git(t, filepath.Dir(checkout), "clone", "-q", w.workspace, checkout)

	app := w.appServer()
	thread := app.startThread()
	turn := app.startTurn(thread, "WORK")
	if status := app.awaitTurn(turn, 60*time.Second); status != "completed" {
		t.Fatalf("the turn is %s", status)
	}
	app.close()
	w.stopped()

	list := w.artifacts(thread)
	if len(list) != 2 || list[0].ID != "diff-"+turn || list[0].Diff.BaseCommit != base || len(list[0].Diff.Files) != 4 || !list[1].Sealed {
		t.Fatalf("artifacts %+v", list)
	}
	got := w.run("artifact", "get", thread, list[0].ID)
	if got.code != 0 {
		t.Fatalf("get: %+v", got)
	}
	cmd := exec.Command("git", "apply", "--index", "-")
	cmd.Dir, cmd.Stdin = checkout, strings.NewReader(got.stdout)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v %s\n%s", err, out, got.stdout)
	}
	git(t, w.workspace, "add", "-A")
	if a, b := git(t, w.workspace, "write-tree"), git(t, checkout, "write-tree"); a != b {
		t.Errorf("the patch makes another tree\n%s", got.stdout)
	}

	file := filepath.Join(t.TempDir(), "out")
	if got := w.run("artifact", "get", thread, list[1].ID, "-o", file); got.code != 0 {
		t.Fatalf("get: %+v", got)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != list[1].SHA256 || !strings.HasPrefix(string(data), "1\n2\n") || !strings.HasSuffix(string(data), "400000\n\xffend") {
		t.Errorf("output of %d bytes, artifact %+v", len(data), list[1])
	}
	if got := w.run("artifact", "get", thread, list[1].ID, "--offset", "2", "--length", "4"); got.stdout != "2\n3\n" {
		t.Errorf("range: %+v", got)
	}
	if got := w.run("artifact", "get", thread, "diff-none"); got.code != 1 || !strings.Contains(got.stderr, "artifact not found") {
		t.Errorf("unknown artifact: %+v", got)
	}
	if got := w.run("artifact", "list", thread); got.code != 0 || !strings.Contains(got.stdout, "4 files changed since "+base[:12]) {
		t.Errorf("list: %+v", got)
	}
	w.stopped()
}
