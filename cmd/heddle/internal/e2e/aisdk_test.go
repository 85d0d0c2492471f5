//go:build clients

package e2e

import "testing"

// TestClientAISDK lets the AI SDK drive `heddle app-server` by a provider that
// subscribes to a turn only when it has the answer that the turn started.
func TestClientAISDK(t *testing.T) {
	t.Parallel()
	dir := npmClient(t, "aisdk")
	w := newWorld(t, newModel(t, map[string][]step{
		"HELLO": sdkScripts["HELLO"],
		"PATCH": sdkScripts["PATCH"],
		"SLOW":  sdkScripts["SLOW"],
		"SHAPE": {{say: `{"a":"b"}`}},
		"WAIT":  {runFor("sleep 3", 20000), {say: "nobody spoke"}},
	}))
	w.runClient(dir, nil, "node", "check.mjs", w.tapped(), w.workspace)
}
