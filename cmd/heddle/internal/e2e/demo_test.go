package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestDemo(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	cmd := w.command(t.Context(), "demo")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, part := range []string{"SCRIPTED", "diff of the turn", "enforced by runc-", "controlplane.log", `model_provider = "openai"`} {
		if !strings.Contains(string(out), part) {
			t.Errorf("the demo does not show %q:\n%s", part, out)
		}
	}
	if strings.Contains(string(out), "  FAIL  ") {
		t.Errorf("a check failed although the demo ended with 0:\n%s", out)
	}
}

// Without its helper nothing can be contained: the cause and the fix are told,
// and the run is no success. A program given in HEDDLE_BIN may carry the helper,
// so that this one is built here, without it.
func TestS13NoHelper(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	alone := filepath.Join(t.TempDir(), "heddle")
	if err := buildHeddle(alone); err != nil {
		t.Fatal(err)
	}
	cmd := w.command(t.Context(), "exec", "please RUN")
	cmd.Path, cmd.Args[0] = alone, alone
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "set HEDDLE_GUEST to its path") {
		t.Errorf("exit %d\n%s", cmd.ProcessState.ExitCode(), out)
	}
}
