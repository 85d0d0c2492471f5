//go:build clients

package e2e

import (
	"testing"
	"time"
)

// TestClientAISDK lets the AI SDK drive `heddle app-server` by a provider that
// subscribes to a turn only when it has the answer that the turn started.
func TestClientAISDK(t *testing.T) {
	t.Parallel()
	dir := npmClient(t, "aisdk")
	m := newModel(t, map[string][]step{
		"HELLO": sdkScripts["HELLO"],
		"PATCH": sdkScripts["PATCH"],
		"SLOW":  sdkScripts["SLOW"],
		"SHAPE": {{say: `{"a":"b"}`}},
		"WAIT":  {runFor("sleep 3", 20000), {say: "nobody spoke"}},
	})
	// The provider loses a turn whose end it reads together with the answer
	// that the turn started, which happens on a busy machine with a model that
	// answers at once. No real model does.
	m.thinks = 500 * time.Millisecond
	w := newWorld(t, m)
	w.runClient(dir, nil, "node", "check.mjs", w.tapped(), w.workspace)
}
