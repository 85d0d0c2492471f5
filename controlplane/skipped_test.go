package controlplane

import (
	"fmt"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// I2: an interrupt that comes between the commit of a step and the start of its
// calls ends their items too, and questions among them.
func TestI2InterruptBeforeCallsRun(t *testing.T) {
	r := newRig(t)
	ctx, th := r.thread(workspaceWrite("on-request"))
	f := r.follow(th.GetId(), 1)
	for i := range 40 {
		var list []*heddlev1.ToolCall
		for j := range 3 {
			list = append(list, shell(fmt.Sprintf("c%d-%d", i, j), "sleep 60"))
		}
		list = append(list, shell(fmt.Sprintf("q%d", i), "id", `,"sandbox_permissions":"require_escalated","justification":"May it?"`))
		r.model.script(calls(list...))
		turn := r.startTurn(ctx, th.GetId(), "go")
		// The first item is shown right after the commit, while the calls start.
		f.until(func(e *heddlev1.Event) bool { return e.GetItemStarted().GetItem().GetCommandExecution() != nil })
		from := len(f.seen) - 1
		r.interrupt(ctx, th.GetId(), turn.GetId())
		f.turnEnd()
		open := map[string]bool{}
		for _, e := range f.seen[from:] {
			if item := e.GetItemStarted().GetItem(); item != nil {
				open[item.GetId()] = true
			}
			if a := e.GetApprovalRequested().GetApproval(); a != nil {
				open[a.GetId()] = true
			}
			delete(open, e.GetItemCompleted().GetItem().GetId())
			delete(open, e.GetApprovalResolved().GetApproval().GetId())
		}
		if len(open) > 0 {
			t.Fatalf("round %d: the turn ended with %v open", i, open)
		}
	}
}
