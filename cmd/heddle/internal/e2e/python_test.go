//go:build clients

package e2e

import (
	"path/filepath"
	"testing"
	"time"
)

// TestClientPythonSDK lets the SDK for Python drive `heddle app-server`. The
// package with OpenAI's own binary is not installed: heddle takes its place.
func TestClientPythonSDK(t *testing.T) {
	t.Parallel()
	needTool(t, "python3", "install Python 3.10 or later")
	dir := clientDir(t, "python", func(dir string) {
		if out, err := runIn(t, dir, 2*time.Minute, "python3", "-m", "venv", "env"); err != nil {
			t.Fatalf("python3 cannot make an environment (on Debian or Ubuntu: apt-get install python3-venv): %v\n%s", err, out)
		}
		out, err := runIn(t, dir, 4*time.Minute, "env/bin/pip", "install", "--quiet", "--disable-pip-version-check",
			"--no-deps", "--only-binary", ":all:", "-r", "requirements.txt")
		if err != nil {
			t.Fatalf("openai-codex could not be installed from the Python package index (PyPI, or what pip is configured for): %v\n%s", err, out)
		}
	})
	scripts := map[string][]step{"HELLO": sdkScripts["HELLO"], "PATCH": sdkScripts["PATCH"], "SLOW": sdkScripts["SLOW"]}
	w := newWorld(t, newModel(t, scripts))
	w.ask()
	scripts["FIRST"] = []step{w.outside("first"), {say: "it was allowed"}}
	scripts["SECOND"] = []step{w.outside("second"), {say: "it was not"}}
	w.runClient(dir, nil, filepath.Join(dir, "env/bin/python"), "check.py", w.tapped(), w.workspace)
}
