package protocol

import (
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// agentCallItem is a call of a tool for sub-agents.
type agentCallItem struct {
	itemBase
	Tool              string                `json:"tool"`
	Status            string                `json:"status"`
	SenderThreadID    string                `json:"senderThreadId"`
	ReceiverThreadIDs []string              `json:"receiverThreadIds"`
	Prompt            *string               `json:"prompt"`
	Model             *string               `json:"model"`
	ReasoningEffort   *string               `json:"reasoningEffort"`
	AgentsStates      map[string]agentState `json:"agentsStates"`
}

type agentState struct {
	Status  string  `json:"status"`
	Message *string `json:"message"`
}

func fromAgentCall(it *heddlev1.Item, c *heddlev1.AgentCall, base itemBase) any {
	out := agentCallItem{
		itemBase: base, Tool: c.GetTool(), Status: callStatus(it.GetStatus()), SenderThreadID: c.GetSenderThreadId(), ReceiverThreadIDs: []string{},
		Model: opt(c.GetModel()), ReasoningEffort: opt(c.GetReasoningEffort()), AgentsStates: map[string]agentState{},
	}
	if p := c.GetPrompt(); p != "" {
		p = Clip(p)
		out.Prompt = &p
	}
	// One that is being started is not there yet.
	if c.GetTool() != "spawnAgent" || it.GetStatus() == heddlev1.ItemStatus_ITEM_STATUS_COMPLETED {
		out.ReceiverThreadIDs = append(out.ReceiverThreadIDs, c.GetReceiverThreadIds()...)
	}
	for id, s := range c.GetStates() {
		out.AgentsStates[id] = agentState{s.GetStatus(), opt(Clip(s.GetMessage()))}
	}
	return out
}

// fromSource is the source of a thread; that of a sub-agent says under whom it
// stands.
func fromSource(t *heddlev1.Thread) any {
	if t.GetAgentDepth() == 0 {
		return sourceOf(t.GetSource())
	}
	return map[string]any{"subAgent": map[string]any{"thread_spawn": map[string]any{
		"parent_thread_id": t.GetParentThreadId(), "depth": t.GetAgentDepth(), "agent_path": nil,
		"agent_nickname": opt(t.GetAgentNickname()), "agent_role": opt(t.GetAgentRole()),
	}}}
}
