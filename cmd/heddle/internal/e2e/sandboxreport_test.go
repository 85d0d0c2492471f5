package e2e

import (
	"testing"
	"time"
)

// A client that asked for our additions is told which mechanism contains its thread, when the sandbox is ready and
// at thread/resume; any other client is not.
func TestSandboxReport(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	plain := w.experimental()
	a := w.connect(map[string]any{"experimentalApi": true, "heddle": map[string]any{}}, "app-server")
	thread := a.startThread()
	told := a.await("the report", 30*time.Second, func(m message) bool { return m.Method == "thread/sandbox/reported" })
	report, _ := told.Params["report"].(map[string]any)
	if told.Params["threadId"] != thread || report["backend"] == "" || report["levels"] == nil || report["gaps"] == nil {
		t.Errorf("notification %v", told.Params)
	}
	extra, _ := a.call("thread/resume", map[string]any{"threadId": thread})["heddle"].(map[string]any)
	again, _ := extra["sandboxReport"].(map[string]any)
	if again["backend"] != report["backend"] || again["backend"] == nil {
		t.Errorf("thread/resume: %v", extra)
	}
	if extra := plain.call("thread/resume", map[string]any{"threadId": thread})["heddle"]; extra != nil {
		t.Errorf("a client that did not ask was told %v", extra)
	}
	plain.mu.Lock()
	defer plain.mu.Unlock()
	for _, m := range plain.messages {
		if m.Method == "thread/sandbox/reported" {
			t.Errorf("a client that did not ask was told %v", m.Params)
		}
	}
}
