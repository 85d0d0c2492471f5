package agent

import (
	"github.com/heddle-dev/heddle/controlplane/approval"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// tightenedText is what the model is told of an action that was made ready before
// the thread's permissions were taken back.
const tightenedText = "it was not run, since the user changed the permissions meanwhile; try again under those that hold now"

// tightened reports whether the command was made ready under what the thread may
// not do any more: behind other calls of its step, or while it was asked about. What
// a person accepts outside of the sandbox is theirs to accept.
func (e *execution) tightened() bool {
	s := e.t.settings()
	if !e.args.Escalated && wider(e.action.GetPolicy(), e.action.GetWorkspace(), s.GetSandbox(), s.GetCwd()) {
		return true
	}
	verdict := e.t.decideCommand(s, e.args, e.argv, e.action.GetStartProcess().GetCwd())
	return verdict.Outcome == approval.Refuse || verdict.Outcome == approval.Ask && e.asked == nil
}

// refuseTightened ends a command that is not run for that.
func (e *execution) refuseTightened() result {
	e.t.lt.dropProcess(e.proc)
	e.close(heddlev1.ItemStatus_ITEM_STATUS_FAILED, &heddlev1.ActionError{Code: "refused", Message: tightenedText})
	return text("exec_command failed: " + tightenedText)
}

// tightened reports whether the patch was made ready under what the thread may not
// do any more.
func (p *patching) tightened() bool {
	s := p.t.settings()
	return wider(p.policy, p.space, s.GetSandbox(), s.GetCwd())
}
