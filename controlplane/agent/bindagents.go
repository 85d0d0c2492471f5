package agent

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// bindWait bounds how long a change of a thread's settings waits for one agent.
const bindWait = 10 * time.Second

// bindAgents takes from the agents of a thread, and from those under them, what
// the thread may not do any more under its settings after a change; it holds for
// their next commands. One that may do more than the thread takes
// over its policy whole; what a thread is given, its agents get with the next input
// that it sends them. It is called before the thread's own change is
// recorded, so that a crash in between leaves no agent wider than its parent, and
// after it, for agents that were started meanwhile.
//
// An agent that cannot be bound is stopped. Gates are taken from parent to child,
// never the other way.
func (a *Agent) bindAgents(ctx context.Context, parent string, before, after *heddlev1.ThreadSettings) {
	if proto.Equal(permissionsOf(before), permissionsOf(after)) {
		return
	}
	for _, id := range a.children(parent) {
		child := a.peek(id)
		if child == nil {
			continue
		}
		patch := taken(child.currentSettings(), before, after)
		if patch == nil {
			// Those under it may be wider than it is.
			a.bindAgents(ctx, id, before, after)
			continue
		}
		if err := a.bindAgent(ctx, id, patch); err != nil {
			a.cfg.Logger.Warn("an agent is stopped, since what its parent may not do any more could not be taken from it", "thread", parent, "agent", id, "error", err)
			a.stopAgent(id, causeThreadClosed)
		}
	}
}

func (a *Agent) bindAgent(ctx context.Context, id string, patch *heddlev1.ThreadSettings) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bindWait)
	defer cancel()
	_, err := a.UpdateSettings(ctx, id, patch)
	return err
}

// taken is what an agent with settings s loses by a change of its parent's
// settings; nil when it loses nothing.
func taken(s, before, after *heddlev1.ThreadSettings) *heddlev1.ThreadSettings {
	var patch *heddlev1.ThreadSettings
	from, to := permissionsOf(before), permissionsOf(after)
	lost := permissionsOf(after)
	if wider(s.GetSandbox(), s.GetCwd(), after.GetSandbox(), after.GetCwd()) {
		patch = &heddlev1.ThreadSettings{Cwd: lost.GetCwd(), Sandbox: lost.GetSandbox()}
	}
	// Who is asked and when has no order: it is taken over when it was changed.
	from.Cwd, from.Sandbox, to.Cwd, to.Sandbox = "", nil, "", nil
	if !proto.Equal(from, to) {
		if patch == nil {
			patch = &heddlev1.ThreadSettings{}
		}
		patch.ApprovalPolicy, patch.GranularApproval, patch.ApprovalsReviewer = lost.GetApprovalPolicy(), lost.GetGranularApproval(), lost.GetApprovalsReviewer()
	}
	return patch
}

// change puts settings in force, here and for the thread's agents, once record
// has made them durable; nil changes nothing but records. lt is acquired.
func (lt *live) change(ctx context.Context, changed *heddlev1.ThreadSettings, record func() error) error {
	before := lt.currentSettings()
	if changed != nil {
		lt.agent.bindAgents(ctx, lt.id, before, changed)
	}
	if err := record(); err != nil {
		return err
	}
	if changed != nil {
		lt.setSettings(changed)
		lt.agent.bindAgents(ctx, lt.id, before, changed)
	}
	return nil
}
