//go:build clients

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClientMCP lets the MCP inspector and the MCP client for TypeScript call
// the tools of `heddle mcp-server`.
func TestClientMCP(t *testing.T) {
	t.Parallel()
	dir := npmClient(t, "mcp", "--omit=optional")
	scripts := map[string][]step{"HELLO": sdkScripts["HELLO"], "SLOW": sdkScripts["SLOW"]}
	w := newWorld(t, newModel(t, scripts))
	scripts["FIRST"] = []step{w.outside("first"), {say: "it was allowed"}}
	scripts["SECOND"] = []step{w.outside("second"), {say: "it was not"}}

	inspect := func(method string, args ...string) string {
		t.Helper()
		argv := []string{"--cli", "-e", "HEDDLE_HOME=" + w.home, "-e", "HEDDLE_IDLE_EXIT=500ms", "-e", "LC_HEDDLE_E2E=" + w.mark,
			"--cwd", w.workspace, heddleBin, "mcp-server", "--method", method}
		out, err := runIn(t, dir, time.Minute, filepath.Join(dir, "node_modules/.bin/mcp-inspector"), append(argv, args...)...)
		if err != nil {
			t.Fatalf("inspector %s: %v\n%s", method, err, out)
		}
		return out
	}
	if out := inspect("tools/list"); !strings.Contains(out, `"codex"`) || !strings.Contains(out, `"codex-reply"`) || !strings.Contains(out, `"approval-policy"`) {
		t.Errorf("tools/list: %s", out)
	}
	if out := inspect("tools/call", "--tool-name", "codex", "--tool-arg", "prompt=HELLO"); !strings.Contains(out, "hello there") || !strings.Contains(out, `"threadId"`) {
		t.Errorf("tools/call: %s", out)
	}

	w.runClient(dir, nil, "node", "check.mjs", heddleBin, w.workspace)
	if !w.exists(w.beside("first")) || w.exists(w.beside("second")) {
		t.Error("want the allowed command done and the refused one not")
	}
}
