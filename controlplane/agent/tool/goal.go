package tool

import (
	"fmt"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
)

// Names of the goal tools.
const (
	NameGetGoal    = "get_goal"
	NameCreateGoal = "create_goal"
	NameUpdateGoal = "update_goal"
)

// Goal is a call of one of the goal tools; Name tells which.
type Goal struct {
	Name string
	// Objective and Budget are set for create_goal, Status for update_goal.
	Objective string
	Budget    *int64
	Status    string
}

func (*Goal) call() {}

func isGoal(name string) bool {
	return name == NameGetGoal || name == NameCreateGoal || name == NameUpdateGoal
}

func goalSpecs() []model.Tool {
	return []model.Tool{
		function(NameGetGoal, "Returns the goal of this thread with its status and budget, or null.", object(props{})),
		function(NameCreateGoal, "Sets a goal that this thread works towards by itself until it is complete. Use it only when the user asks for it; it fails while there is an unfinished one.", object(props{
			"objective":    text("What is to be true in the end, so that it can be checked."),
			"token_budget": typed("number", "Largest number of tokens to use; leave out for no limit."),
		}, "objective")),
		function(NameUpdateGoal, "Says that the goal is reached, or that you cannot go on without the user.", object(props{
			"status": map[string]any{"type": "string", "enum": []string{"complete", "blocked"}},
		}, "status")),
	}
}

func parseGoal(name, args string) (Call, error) {
	var a struct {
		Objective *string `json:"objective"`
		Budget    *number `json:"token_budget"`
		Status    *string `json:"status"`
	}
	if args == "" {
		args = "{}"
	}
	if err := decodeArgs(args, &a); err != nil {
		return nil, err
	}
	g := &Goal{Name: name}
	switch name {
	case NameCreateGoal:
		if a.Objective == nil || *a.Objective == "" {
			return nil, missing("objective")
		}
		g.Objective = *a.Objective
		if a.Budget != nil {
			if *a.Budget < 1 || *a.Budget > 1<<53 {
				return nil, fmt.Errorf("invalid token_budget %v", float64(*a.Budget))
			}
			n := int64(*a.Budget)
			g.Budget = &n
		}
	case NameUpdateGoal:
		if a.Status == nil {
			return nil, missing("status")
		}
		if g.Status = *a.Status; g.Status != "complete" && g.Status != "blocked" {
			return nil, fmt.Errorf("unknown variant `%s`, expected `complete` or `blocked`", g.Status)
		}
	}
	return g, nil
}
