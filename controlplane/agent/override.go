package agent

import (
	"context"
	"encoding/json"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// OverrideDenial lets a person allow what the reviewer denied: exactly that
// action is not asked about again in the thread, and its model is told.
func (a *Agent) OverrideDenial(ctx context.Context, threadID, approvalID string) error {
	asked, err := a.store.Approval(ctx, threadID, approvalID)
	if err != nil {
		return err
	}
	if asked.GetDecidedBy() != approval.ByReviewer || asked.GetDecision() != heddlev1.Decision_DECISION_DECLINE {
		return errdefs.New(errdefs.InvalidArgument, "approval %s was not denied by the reviewer", approvalID)
	}
	if asked.GetCommand().GetStdin() != nil {
		return errdefs.New(errdefs.InvalidArgument, "input to a process cannot be allowed later: it may wait for something else by now")
	}
	lt, err := a.acquired(ctx, threadID)
	if err != nil {
		return err
	}
	defer lt.release()
	lt.allow(asked)
	shown, err := json.Marshal(actionFacts(asked))
	if err != nil {
		return errdefs.New(errdefs.Internal, "write what was allowed: %w", err)
	}
	return a.tell(ctx, lt, prompt.DenialOverridden(clipText(string(shown), maxOneText)))
}

// allow remembers what was asked for as accepted.
func (lt *live) allow(a *heddlev1.Approval) {
	c := a.GetCommand()
	switch {
	case c.GetNetwork() != nil:
		lt.remember(func(m *approval.Memory) {
			m.AllowAction(hostHash(a.GetActionHash(), c.GetNetwork().GetHost(), c.GetNetwork().GetPort()))
		})
	case c != nil:
		lt.remember(func(m *approval.Memory) { m.AllowCommand(c.GetArgv(), c.GetCwd(), c.GetEscalated()) })
	case a.GetFileChange() != nil, a.GetElicitation().GetTool() != "":
		// This patch on these contents, this call with these arguments: others of the
		// same files or the same tool were not shown.
		lt.remember(func(m *approval.Memory) { m.AllowAction(a.GetActionHash()) })
	}
}
