package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/controlplane/hook"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// A session that a hook refused has not begun: the hook is asked before the next
// input too, instead of letting it pass.
func TestRefusedSessionIsAskedAbout(t *testing.T) {
	r := newRig(t, func(c *Config) {
		path := filepath.Join(c.Home.Dir, "config.toml")
		toml := "[[hooks.SessionStart]]\n[[hooks.SessionStart.hooks]]\ntype = 'command'\ncommand = 'echo {\"continue\":false,\"stopReason\":\"no\"}'\n"
		if err := os.WriteFile(path, []byte(toml), 0o600); err != nil {
			t.Fatal(err)
		}
		loaded, err := config.Load(config.Options{Home: c.Home})
		if err != nil {
			t.Fatal(err)
		}
		hooks, warnings := hook.Of(loaded)
		if len(hooks) != 1 || len(warnings) != 0 {
			t.Fatalf("hooks %v, warnings %v", hooks, warnings)
		}
		toml += fmt.Sprintf("[hooks.state.%q]\ntrusted_hash = %q\n", hooks[0].Key, hooks[0].Hash)
		if err := os.WriteFile(path, []byte(toml), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	for i := range 2 {
		r.startTurn(ctx, th.GetId(), fmt.Sprint("input ", i))
		run := f.until(func(e *heddlev1.Event) bool { return e.GetHookCompleted() != nil }).GetHookCompleted().GetRun()
		if run.GetStatus() != hook.Stopped {
			t.Errorf("input %d: %v", i, run)
		}
		if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
			t.Errorf("input %d: %v", i, end)
		}
	}
}
