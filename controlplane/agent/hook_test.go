package agent

import (
	"testing"

	"github.com/heddle-dev/heddle/controlplane/hook"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// What hooks tell the model is bounded as outputs of tools are.
func TestHookRefusalIsBounded(t *testing.T) {
	run := &heddlev1.HookRun{EventName: hook.PreToolUse}
	run.Status, run.Entries = hook.Blocked, []*heddlev1.HookEntry{{Kind: "feedback", Text: string(make([]byte, maxHookOutput))}}
	why, refused := hookRefusal([]*heddlev1.HookRun{run})
	if !refused || len(why) > maxHookOutput/4 {
		t.Errorf("refused %v with %d bytes", refused, len(why))
	}
}
