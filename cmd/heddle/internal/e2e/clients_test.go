//go:build clients

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests of this build tag run programs of others, as their registries have
// them, against the heddle binary. Each has a folder in testdata/clients that
// pins its version and those of all that it needs. It is installed once into
// .cache/clients. A tool or a registry that is missing is a failure.

// clientDir is where a client of testdata/clients is installed; install is
// called to fill it when what is there is not what the folder asks for. The
// folder's own files are copied anew each time.
func clientDir(t *testing.T, name string, install func(dir string)) string {
	t.Helper()
	installMu.Lock()
	defer installMu.Unlock()
	source := filepath.Join("testdata/clients", name)
	dir, err := filepath.Abs(filepath.Join("../../../../.cache/clients", name))
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(source)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	for _, f := range files {
		if filepath.Ext(f.Name()) == ".json" || filepath.Ext(f.Name()) == ".txt" {
			sum.Write(readFile(t, filepath.Join(source, f.Name())))
		}
	}
	want := hex.EncodeToString(sum.Sum(nil))
	stamp := filepath.Join(dir, "installed")
	have, _ := os.ReadFile(stamp)
	if string(have) != want {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // programs that any user may run
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name()), readFile(t, filepath.Join(source, f.Name())), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if string(have) != want {
		install(dir)
		if err := os.WriteFile(stamp, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// installMu keeps tests that run at the same time from installing one thing twice.
var installMu sync.Mutex

// npmClient installs a client from npm with the versions of its lock file. No
// script of a package runs. (Not `npm ci`: it refuses lock files that lack
// optional packages of other systems, which some publishers never uploaded.)
func npmClient(t *testing.T, name string, args ...string) string {
	t.Helper()
	needTool(t, "node", "install Node.js 20 or later")
	needTool(t, "npm", "it comes with Node.js")
	return clientDir(t, name, func(dir string) {
		args := append([]string{"install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"}, args...)
		if out, err := runIn(t, dir, 5*time.Minute, "npm", args...); err != nil {
			registry, _ := runIn(t, dir, time.Minute, "npm", "config", "get", "registry")
			t.Fatalf("the client %q could not be installed from the npm registry %s: %v\n%s", name, strings.TrimSpace(registry), err, out)
		}
	})
}

func needTool(t *testing.T, tool, remedy string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Fatalf("%s is missing, and this test needs it: %s", tool, remedy)
	}
}

func runIn(t *testing.T, dir string, within time.Duration, tool string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// runClient runs a client's check program and returns what it printed. The
// last line must be "ok".
func (w *world) runClient(dir string, extra []string, program ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Dir = dir
	cmd.Env = append(w.env(), extra...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.HasSuffix(bytes.TrimSpace(out), []byte("ok")) {
		w.t.Fatalf("%v: %v\n%s", program, err, out)
	}
	return string(out)
}

// ask makes the world ask the client before a command leaves the sandbox.
func (w *world) ask() {
	w.t.Helper()
	name := filepath.Join(w.home, "config.toml")
	text := string(readFile(w.t, name))
	w.write(name, strings.Replace(text, `approval_policy = "never"`, `approval_policy = "on-request"`, 1))
}

// outside is a command that needs an approval: it writes beside the workspace.
func (w *world) outside(name string) step {
	return step{call: "exec_command", args: map[string]any{
		"cmd":                 "echo asked > " + w.beside(name) + "; echo wrote-$((40+2))",
		"sandbox_permissions": "require_escalated",
		"justification":       "May I write beside the workspace?",
	}}
}

func (w *world) beside(name string) string { return filepath.Join(filepath.Dir(w.home), name) }

func (w *world) exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
