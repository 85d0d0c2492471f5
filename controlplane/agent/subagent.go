package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// SourceSubAgent is the source of a thread that an agent started.
const SourceSubAgent = "subAgentThreadSpawn"

// States of a sub-agent, as in AgentState.status.
const (
	agentPending     = "pendingInit"
	agentRunning     = "running"
	agentInterrupted = "interrupted"
	agentCompleted   = "completed"
	agentErrored     = "errored"
	agentShutdown    = "shutdown"
	agentNotFound    = "notFound"
)

// Agents are the limits of a thread's sub-agents; the zero value allows none.
type Agents struct {
	// Max is how many may be open at a time in one thread, Depth how many may stand
	// above one another.
	Max   int
	Depth int
}

// agentRun is one call of a tool for sub-agents.
type agentRun struct {
	t    *turn
	args *tool.Agents
	item *heddlev1.Item
}

var agentTools = map[string]string{
	tool.NameSpawnAgent: "spawnAgent", tool.NameSendInput: "sendInput", tool.NameWaitAgent: "wait", tool.NameCloseAgent: "closeAgent", tool.NameResumeAgent: "resumeAgent",
}

// agentCall does what the model asks of its sub-agents. A new one has its id in
// the step's commit, so that it is started once whatever dies meanwhile.
func (t *turn) agentCall(c *heddlev1.ToolCall, args *tool.Agents) *call {
	if !t.toolOptions().Agents {
		return said(c, "unsupported call: "+c.GetName())
	}
	a := &heddlev1.AgentCall{Tool: agentTools[args.Name], SenderThreadId: t.lt.id, ReceiverThreadIds: args.Targets, Prompt: saidIn(args.Input), Model: args.Model, ReasoningEffort: args.Effort}
	if args.Name == tool.NameSpawnAgent {
		a.ReceiverThreadIds = []string{newID()}
	}
	r := &agentRun{t: t, args: args, item: t.begunItem(c.GetCallId())}
	r.item.Content = &heddlev1.Item_AgentCall{AgentCall: a}
	return &call{req: c, events: []*heddlev1.Event{itemStarted(r.item)}, do: r.run, skip: func() { r.close(false) }}
}

// resumeAgents goes on with a call from before a restart. All of them can be made
// again but send_input, of which nobody knows whether it was heard.
func (t *turn) resumeAgents(c *pastCall) *call {
	k := &call{req: c.req}
	r := &agentRun{t: t, item: c.item}
	parsed, err := tool.Parse(c.req)
	args, ok := parsed.(*tool.Agents)
	switch {
	case c.ended:
		k.do = func(context.Context) result { return text(r.recorded()) }
	case err != nil || !ok || args.Name == tool.NameSendInput:
		k.do = func(context.Context) result { return r.fail(unknownText) }
	default:
		r.args = args
		k.do = r.run
	}
	return k
}

// recorded is what the model is told of a call whose end is in the log.
func (r *agentRun) recorded() string {
	if r.item.GetStatus() != heddlev1.ItemStatus_ITEM_STATUS_COMPLETED {
		return r.item.GetAgentCall().GetTool() + " failed before the restart"
	}
	return answerJSON(map[string]any{"agents": r.item.GetAgentCall().GetReceiverThreadIds(), "status": r.states()})
}

func (r *agentRun) run(ctx context.Context) result {
	if ctx.Err() != nil {
		if !suspended(ctx) {
			r.close(false)
		}
		return result{}
	}
	var answer map[string]any
	var err error
	switch r.args.Name {
	case tool.NameSpawnAgent:
		answer, err = r.spawn(ctx)
	case tool.NameSendInput:
		answer, err = r.send(ctx)
	case tool.NameWaitAgent:
		answer, err = r.wait(ctx)
	case tool.NameCloseAgent:
		answer, err = r.end(ctx)
	case tool.NameResumeAgent:
		answer, err = r.reopen(ctx)
	}
	switch {
	case suspended(ctx):
		return result{}
	case ctx.Err() != nil:
		r.close(false)
		return result{}
	case err != nil:
		return r.fail(err.Error())
	}
	r.close(true)
	return text(answerJSON(answer))
}

func answerJSON(v map[string]any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "the result cannot be shown: " + err.Error()
	}
	return string(b)
}

func (r *agentRun) fail(why string) result {
	r.close(false)
	return text(r.item.GetAgentCall().GetTool() + " failed: " + why)
}

// close completes the item, with the last known states of the agents.
func (r *agentRun) close(success bool) {
	r.item.Status = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
	if !success {
		r.item.Status = heddlev1.ItemStatus_ITEM_STATUS_FAILED
	}
	r.item.CompletedAtMs = r.t.agent.now()
	r.t.record(itemCompleted(r.item))
}

// know notes the state of an agent in the item.
func (r *agentRun) know(id string, s *heddlev1.AgentState) {
	a := r.item.GetAgentCall()
	if a.States == nil {
		a.States = map[string]*heddlev1.AgentState{}
	}
	a.States[id] = s
}

func (r *agentRun) states() map[string]any {
	out := map[string]any{}
	for id, s := range r.item.GetAgentCall().GetStates() {
		out[id] = stateJSON(s)
	}
	return out
}

// stateJSON is a state as models know it.
func stateJSON(s *heddlev1.AgentState) any {
	switch s.GetStatus() {
	case agentCompleted:
		return map[string]any{"completed": s.GetMessage()}
	case agentErrored:
		return map[string]any{"errored": s.GetMessage()}
	case agentPending:
		return "pending_init"
	case agentNotFound:
		return "not_found"
	}
	return s.GetStatus()
}

// final reports whether an agent in this state waits for its parent.
func final(s *heddlev1.AgentState) bool {
	return s.GetStatus() != agentRunning && s.GetStatus() != agentPending
}

// child is the row of one of the thread's own sub-agents.
func (r *agentRun) child(ctx context.Context, id string) (*heddlev1.Thread, error) {
	row, err := r.t.agent.store.Thread(ctx, id)
	if errdefs.Is(err, errdefs.ThreadNotFound) || err == nil && row.GetParentThreadId() != r.t.lt.id {
		return nil, errdefs.New(errdefs.ThreadNotFound, "there is no agent %s of this thread", id)
	}
	return row, err
}

// state is what an agent is at.
func (r *agentRun) state(ctx context.Context, id string) (*heddlev1.AgentState, error) {
	row, err := r.child(ctx, id)
	switch {
	case errdefs.Is(err, errdefs.ThreadNotFound):
		return &heddlev1.AgentState{Status: agentNotFound}, nil
	case err != nil:
		return nil, err
	case r.t.agent.running(id) != nil:
		return &heddlev1.AgentState{Status: agentRunning}, nil
	}
	last, err := r.t.agent.store.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: row.GetId(), PageSize: 1, View: heddlev1.ItemsView_ITEMS_VIEW_NONE})
	if err != nil {
		return nil, err
	}
	if len(last.GetTurns()) == 0 {
		return &heddlev1.AgentState{Status: agentPending}, nil
	}
	return stateOf(last.GetTurns()[0].GetTurn()), nil
}

func stateOf(turn *heddlev1.Turn) *heddlev1.AgentState {
	switch turn.GetStatus() {
	case heddlev1.TurnStatus_TURN_STATUS_COMPLETED:
		return &heddlev1.AgentState{Status: agentCompleted, Message: turn.GetLastAgentMessage().GetAgentMessage().GetText()}
	case heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED:
		return &heddlev1.AgentState{Status: agentInterrupted}
	case heddlev1.TurnStatus_TURN_STATUS_FAILED:
		return &heddlev1.AgentState{Status: agentErrored, Message: turn.GetError().GetMessage()}
	}
	return &heddlev1.AgentState{Status: agentRunning}
}

// reportWait bounds how long the report of a sub-agent waits for its parent.
const reportWait = 30 * time.Second

// reportAgent tells the parent's model that a sub-agent has come to rest.
func (a *Agent) reportAgent(lt *live, turn *heddlev1.Turn) {
	if lt.parent == "" {
		return
	}
	a.wg.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, reportWait)
		defer cancel()
		note := answerJSON(map[string]any{"agent_path": lt.id, "status": stateJSON(stateOf(turn))})
		if err := a.Inject(ctx, lt.parent, []*heddlev1.HistoryEntry{prompt.SubAgent(note)}); err != nil && !errdefs.Is(err, errdefs.ThreadNotFound) {
			a.cfg.Logger.Warn("report a sub-agent's end", "thread", lt.parent, "agent", lt.id, "error", err)
		}
	})
}
