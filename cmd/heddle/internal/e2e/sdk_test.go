//go:build clients

package e2e

import (
	"strings"
	"testing"
)

// TestClientTypeScriptSDK lets the SDK for TypeScript drive `heddle exec`.
func TestClientTypeScriptSDK(t *testing.T) {
	t.Parallel()
	dir := npmClient(t, "sdk", "--omit=optional")
	m := newModel(t, sdkScripts)
	w := newWorld(t, m)
	w.runClient(dir, nil, "node", "check.mjs", heddleBin, w.workspace)
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
