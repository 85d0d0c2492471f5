package e2e

import (
	"path/filepath"
	"testing"
	"time"
)

func TestDiagnosticsOfTheServer(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.experimental()
	defer app.close()
	app.startThread()
	got := app.call("server/diagnostics", map[string]any{})
	process, _ := got["process"].(map[string]any)
	if process["id"] != float64(app.cmd.Process.Pid) || process["residentMemoryBytes"].(float64) < 1<<20 {
		t.Errorf("process: %v", process)
	}
	var values map[any]any
	w.eventually("the request before is counted no more", 10*time.Second, func() bool {
		values = map[any]any{}
		for _, g := range app.call("server/diagnostics", map[string]any{})["gauges"].([]any) {
			gauge, _ := g.(map[string]any)
			values[gauge["name"]] = gauge["value"]
		}
		return values["app.requests.in_flight"] == 1.0
	})
	if values["core.threads.live"] != 1.0 || values["controlplane.sessions"] != 1.0 {
		t.Errorf("gauges: %v", values)
	}
	if got := app.call("mock/experimentalMethod", map[string]any{"value": "x"}); got["echoed"] != "x" {
		t.Errorf("mock: %v", got)
	}
}

// Switches that a client turns are those of its server only, also when the
// control plane is another one; they leave the config as it was.
func TestEnablementOfFeatures(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	before := string(readFile(t, filepath.Join(w.home, "config.toml")))
	app, other := w.appServer(), w.appServer()
	defer app.close()
	defer other.close()
	goals := func(a *appServer) any {
		t.Helper()
		for _, f := range a.call("experimentalFeature/list", map[string]any{})["data"].([]any) {
			if feature, _ := f.(map[string]any); feature["name"] == "goals" {
				return feature["enabled"]
			}
		}
		return nil
	}
	done, _ := app.call("experimentalFeature/enablement/set", map[string]any{"enablement": map[string]any{"goals": true, "no-such": true}})["enablement"].(map[string]any)
	if len(done) != 1 || done["goals"] != true {
		t.Errorf("done: %v", done)
	}
	if goals(app) != true || goals(other) != false {
		t.Errorf("goals are on: %v, elsewhere %v", goals(app), goals(other))
	}
	w.kill(w.controlPlane())
	w.eventually("the switch is on again", 30*time.Second, func() bool { return goals(app) == true })
	if after := string(readFile(t, filepath.Join(w.home, "config.toml"))); after != before {
		t.Errorf("the config was changed:\n%s", after)
	}
}
