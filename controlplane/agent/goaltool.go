package agent

import (
	"context"
	"encoding/json"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// goalCall does what the model asks of the thread's goal.
func (t *turn) goalCall(c *heddlev1.ToolCall, args *tool.Goal) *call {
	if !t.toolOptions().Goals {
		return said(c, "unsupported call: "+c.GetName())
	}
	return &call{req: c, alone: true, do: func(ctx context.Context) result {
		g := t.lt.currentGoal()
		var p GoalPatch
		switch args.Name {
		case tool.NameGetGoal:
			return goalText(g)
		case tool.NameCreateGoal:
			if g != nil && g.GetStatus() != goalComplete {
				return text("create_goal failed: this thread has a goal that is not complete")
			}
			p = GoalPatch{Objective: args.Objective, Status: goalActive, Budget: args.Budget}
		case tool.NameUpdateGoal:
			if g == nil {
				return text("update_goal failed: this thread has no goal")
			}
			p = GoalPatch{Status: args.Status}
		}
		g, err := t.agent.SetGoal(ctx, TurnRequest{ThreadID: t.lt.id}, p)
		if err != nil {
			return text(args.Name + " failed: " + err.Error())
		}
		return goalText(g)
	}}
}

func goalText(g *heddlev1.Goal) result {
	if g == nil {
		return text(`{"goal":null}`)
	}
	raw, err := json.Marshal(map[string]any{"goal": map[string]any{
		"objective": g.GetObjective(), "status": g.GetStatus(), "token_budget": g.TokenBudget, "tokens_used": g.GetTokensUsed(),
	}})
	if err != nil {
		return text("the goal cannot be shown: " + err.Error())
	}
	return text(string(raw))
}
