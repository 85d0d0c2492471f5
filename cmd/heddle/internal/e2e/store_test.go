package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run runs any subcommand to its end.
func (w *world) run(args ...string) execResult {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 90*time.Second)
	defer cancel()
	cmd := w.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	return execResult{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

func (w *world) stopped() {
	w.t.Helper()
	w.eventually("nothing runs", 20*time.Second, func() bool { return len(w.processes()) == 0 })
}

func (w *world) store() string { return filepath.Join(w.home, "state.db") }

func TestBackupWhileRunning(t *testing.T) {
	w, app, thread, turn := startLong(t, "LONG")
	file := filepath.Join(filepath.Dir(w.home), "backup.db")
	got := w.run("backup", file)
	if got.code != 0 || !strings.Contains(got.stdout, "1 threads") || !strings.Contains(got.stdout, "sha256 ") {
		t.Fatalf("backup: %+v", got)
	}
	if got := w.run("backup", file); got.code != 2 || !strings.Contains(got.stderr, "--force") {
		t.Errorf("a second backup to the same file: %+v", got)
	}
	if got := w.run("doctor", "--store"); got.code != 0 || !strings.Contains(got.stdout, "damage      none") {
		t.Errorf("check while running: %+v", got)
	}
	if got := w.run("doctor", "--repair"); got.code != 1 || !strings.Contains(got.stderr, "in use by a control plane") {
		t.Errorf("repair while running: %+v", got)
	}
	if status := app.awaitTurn(turn, 60*time.Second); status != "completed" {
		t.Errorf("the turn is %s after a backup", status)
	}
	app.close()
	w.stopped()
	if got := w.run("backup", "--force", filepath.Join(filepath.Dir(w.home), "later.db")); got.code != 0 {
		t.Errorf("backup with nothing running: %+v", got)
	}
	w.stopped()

	// The first copy in another home: its turn was open, and is ended there.
	other := newWorld(t, newModel(t, killScripts))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other.write(other.store(), string(data))
	next := other.appServer()
	other.eventually("the turn of the copy ends", 30*time.Second, func() bool {
		row, _ := next.call("thread/resume", map[string]any{"threadId": thread})["thread"].(map[string]any)
		turns, _ := row["turns"].([]any)
		last, _ := turns[len(turns)-1].(map[string]any)
		return last["id"] == turn && last["status"] != "inProgress"
	})
	next.close()
}

func TestRepairOfDamagedStore(t *testing.T) {
	const mark = "zanzibarquartz"
	w := newWorld(t, newModel(t, map[string][]step{"HI": {{say: mark}}, "FINE": {{say: "fine"}}}))
	var threads []string
	for _, word := range []string{"HI", "FINE"} {
		app := w.appServer()
		threads = append(threads, app.startThread())
		app.awaitTurn(app.startTurn(threads[len(threads)-1], word), 30*time.Second)
		app.close()
	}
	w.stopped()
	data, err := os.ReadFile(w.store())
	if err != nil {
		t.Fatal(err)
	}
	// Pages that are free hold old copies; all are hit alike.
	if n := bytes.Count(data, []byte(mark)); n == 0 {
		t.Fatal("the answer is not in the store")
	}
	bad := bytes.ReplaceAll(data, []byte(mark), []byte("ZANZIBARQUARTZ"))
	w.write(w.store(), string(bad))

	got := w.run("doctor", "--store")
	if got.code != 1 || !strings.Contains(got.stdout, "thread "+threads[0]) || strings.Contains(got.stdout, threads[1]) || !strings.Contains(got.stdout, "--repair") {
		t.Fatalf("check: %+v", got)
	}
	if now, _ := os.ReadFile(w.store()); !bytes.Equal(now, bad) {
		t.Error("the check wrote to the store")
	}
	// The other thread works, damage or not.
	app := w.appServer()
	app.call("thread/resume", map[string]any{"threadId": threads[1]})
	app.close()
	w.stopped()
	bad, err = os.ReadFile(w.store())
	if err != nil {
		t.Fatal(err)
	}

	got = w.run("doctor", "--repair")
	if got.code != 0 || !strings.Contains(got.stdout, "repaired    2 threads") {
		t.Fatalf("repair: %+v", got)
	}
	kept, _ := filepath.Glob(w.store() + ".damaged-*")
	if len(kept) != 1 {
		t.Fatalf("kept: %v", kept)
	}
	if old, _ := os.ReadFile(kept[0]); !bytes.Equal(old, bad) {
		t.Error("the damaged store was not kept as it was")
	}
	app = w.appServer()
	for _, id := range threads {
		row, _ := app.call("thread/resume", map[string]any{"threadId": id})["thread"].(map[string]any)
		if turns, _ := row["turns"].([]any); len(turns) != 1 {
			t.Errorf("thread %s has turns %v", id, row["turns"])
		}
	}
	turn := app.startTurn(threads[0], "FINE")
	if status := app.awaitTurn(turn, 30*time.Second); status != "completed" {
		t.Errorf("a turn on the repaired thread: %s", status)
	}
	app.close()
	w.stopped()
	// What could not be read stays named; nothing else is wrong.
	for line := range strings.Lines(w.run("doctor", "--store").stdout) {
		if strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "  events ") {
			t.Errorf("left after the repair: %s", line)
		}
	}
}

func TestStoreCommandsWithoutStore(t *testing.T) {
	w := newWorld(t, newModel(t, killScripts))
	for _, args := range [][]string{{"backup", "x.db"}, {"doctor", "--store"}, {"doctor", "--repair"}} {
		if got := w.run(args...); got.code != 2 || !strings.Contains(got.stderr, "has no store yet") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	w.write(w.store(), fmt.Sprintf("%08192d", 7))
	if got := w.run("doctor", "--store"); got.code != 1 || !strings.Contains(got.stderr, "damaged or not a store") {
		t.Errorf("a file that is no store: %+v", got)
	}
	_ = os.Remove(w.store())
}
