package agent

import (
	"cmp"
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// spawn starts a sub-agent: a thread of its own with the parent's settings, in the
// same workspace, whose first turn is the task.
func (r *agentRun) spawn(ctx context.Context) (map[string]any, error) {
	t, id := r.t, r.item.GetAgentCall().GetReceiverThreadIds()[0]
	row, err := t.agent.store.Thread(ctx, id)
	if errdefs.Is(err, errdefs.ThreadNotFound) {
		row, err = r.create(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	t.lt.openAgent(id)
	if row.GetTurnCount() == 0 && t.agent.running(id) == nil {
		// The parent's permissions may have been changed since the thread was created.
		req := r.turnRequest(id)
		req.Settings = permissionsOf(t.lt.currentSettings())
		if _, err := t.agent.StartTurn(ctx, req); err != nil {
			t.lt.closeAgent(id)
			return nil, err
		}
	}
	a := r.item.GetAgentCall()
	a.Model, a.ReasoningEffort = row.GetSettings().GetModel(), row.GetSettings().GetReasoningEffort()
	r.know(id, &heddlev1.AgentState{Status: agentPending})
	return map[string]any{"agent_id": id, "nickname": row.GetAgentNickname()}, nil
}

func (r *agentRun) turnRequest(id string) TurnRequest {
	row := r.t.snapshot()
	return TurnRequest{ThreadID: id, Input: r.args.Input, SessionID: row.GetSessionId(), OnDisconnect: row.GetOnDisconnect(), root: row.GetRootTurnId()}
}

// permissionsOf is the part of the settings that says what may be done. An agent
// works under what holds for its parent now: what the parent may not do any more,
// it cannot have done either.
func permissionsOf(s *heddlev1.ThreadSettings) *heddlev1.ThreadSettings {
	s = proto.CloneOf(s)
	return &heddlev1.ThreadSettings{
		Cwd: s.GetCwd(), Sandbox: s.GetSandbox(), ApprovalPolicy: s.GetApprovalPolicy(), GranularApproval: s.GetGranularApproval(),
		ApprovalsReviewer: cmp.Or(s.GetApprovalsReviewer(), reviewerUser),
	}
}

// givePlaces tells an agent where the parent's folders led when the parent was
// given them.
func (r *agentRun) givePlaces(ctx context.Context, id string) error {
	s := r.t.lt.currentSettings()
	places, err := r.t.lt.placesFor(ctx, s.GetCwd(), s.GetSandbox())
	if err != nil {
		return err
	}
	child, err := r.t.agent.thread(ctx, id)
	if err != nil {
		return err
	}
	return child.notePlaces(ctx, folders(s.GetCwd(), s.GetSandbox()), places)
}

func (r *agentRun) create(ctx context.Context, id string) (*heddlev1.Thread, error) {
	t := r.t
	s := proto.CloneOf(t.lt.currentSettings())
	if m := r.args.Model; m != "" && m != s.GetModel() && reviewedByModel(s) {
		return nil, fmt.Errorf("the model %s would review its own approvals, and that is not the agent's to choose; leave model out", m)
	}
	number, err := t.lt.admitAgent(id, t.rt.Agents.Max)
	if err != nil {
		return nil, err
	}
	// Client tools and modes belong to the conversation with the person.
	s.DynamicTools, s.CollaborationMode = nil, nil
	if r.args.Model != "" {
		s.Model = r.args.Model
	}
	if r.args.Effort != "" {
		s.ReasoningEffort = r.args.Effort
	}
	// Its folders lead where they led for the parent: by now one of the parent's
	// commands may have led them elsewhere.
	places, err := t.lt.placesFor(ctx, s.GetCwd(), s.GetSandbox())
	if err != nil {
		t.lt.closeAgent(id)
		return nil, err
	}
	row, err := t.agent.cfg.CreateThread(ctx, t.snapshot().GetSessionId(), &heddlev1.Thread{
		Id: id, Principal: t.lt.principal, Ephemeral: t.lt.ephemeral, Settings: s, State: heddlev1.ThreadState_THREAD_STATE_IDLE,
		Source: SourceSubAgent, Originator: t.lt.originator, Version: t.agent.cfg.Version,
		ParentThreadId: t.lt.id, AgentDepth: t.lt.depth + 1, AgentNickname: nickname(number), Places: places,
	})
	if err == nil && r.args.Fork {
		t.mu.Lock()
		history := withoutOpenCalls(t.witnessed)
		t.mu.Unlock()
		err = t.agent.Inject(ctx, id, history)
	}
	if err != nil {
		t.lt.closeAgent(id)
		return nil, err
	}
	return row, nil
}

// withoutOpenCalls is a history up to the calls that are being made.
func withoutOpenCalls(history []*heddlev1.HistoryEntry) []*heddlev1.HistoryEntry {
	answered := map[string]bool{}
	for _, e := range history {
		answered[e.GetToolOutput().GetCallId()] = true
	}
	var out []*heddlev1.HistoryEntry
	for _, e := range history {
		if c := e.GetToolCall(); c == nil || answered[c.GetCallId()] {
			out = append(out, e)
		}
	}
	return out
}

// nicknames are what people call agents by, in the order of their start.
var nicknames = [...]string{"Ada", "Blaise", "Curie", "Dirac", "Euler", "Fermat", "Gauss", "Hopper", "Ibn Sina", "Joule", "Kepler", "Lovelace", "Maxwell", "Noether", "Ohm", "Pascal"}

func nickname(n int) string {
	name := nicknames[n%len(nicknames)]
	if round := n / len(nicknames); round > 0 {
		name = fmt.Sprintf("%s %d", name, round+1)
	}
	return name
}
