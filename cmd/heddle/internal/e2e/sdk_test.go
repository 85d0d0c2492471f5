//go:build clients

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTypeScriptSDK installs the SDK from npm as it is and lets it drive heddle.
func TestTypeScriptSDK(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"package.json", "check.mjs"} {
		data, err := os.ReadFile(filepath.Join("testdata/sdk", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	npm := exec.CommandContext(t.Context(), "npm", "install", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	m := newModel(t, sdkScripts)
	w := newWorld(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	node := exec.CommandContext(ctx, "node", "check.mjs", heddleBin, w.workspace)
	node.Dir = dir
	node.Env = w.env()
	out, err := node.CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "ok") {
		t.Fatalf("%v\n%s", err, out)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	schema := false
	for _, r := range m.requests {
		schema = schema || strings.Contains(r, `"json_schema"`)
	}
	if !schema {
		t.Error("the output schema did not reach the model")
	}
}

var sdkScripts = map[string][]step{
	"HELLO": {{say: "hello there"}},
	"PATCH": {
		run("echo before"),
		run("apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: patched.txt\n+new\n*** End Patch\nEOF"),
		{say: "patched"},
	},
	"SLOW": plainScripts["SLOW"],
}
