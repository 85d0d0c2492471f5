package agent

import (
	"context"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// States of a goal.
const (
	goalActive        = "active"
	goalPaused        = "paused"
	goalBlocked       = "blocked"
	goalUsageLimited  = "usageLimited"
	goalBudgetLimited = "budgetLimited"
	goalComplete      = "complete"
)

var goalStates = []string{goalActive, goalPaused, goalBlocked, goalUsageLimited, goalBudgetLimited, goalComplete}

const maxObjective = 4000

// GoalPatch changes a goal; empty fields keep what there is.
type GoalPatch struct {
	Objective string
	Status    string
	Budget    *int64
}

func goalChanged(turnID string, g *heddlev1.Goal) *heddlev1.Event {
	return &heddlev1.Event{TurnId: turnID, Payload: &heddlev1.Event_GoalChanged{GoalChanged: &heddlev1.GoalChanged{Goal: proto.CloneOf(g)}}}
}

// SetGoal sets or changes a thread's goal, durably. An active goal of an idle
// thread starts a turn as r says.
func (a *Agent) SetGoal(ctx context.Context, r TurnRequest, p GoalPatch) (*heddlev1.Goal, error) {
	lt, err := a.acquired(ctx, r.ThreadID)
	if err != nil {
		return nil, err
	}
	defer lt.release()
	g, err := lt.patchedGoal(p, a.now())
	if err != nil {
		return nil, err
	}
	if err := lt.persist(ctx, goalChanged("", g)); err != nil {
		return nil, err
	}
	lt.setGoal(g)
	if g.GetStatus() == goalActive && lt.current() == nil {
		r.kind = kindGoal
		if _, err := a.begin(ctx, lt, r); err != nil {
			return nil, err
		}
	}
	return proto.CloneOf(g), nil
}

func (lt *live) patchedGoal(p GoalPatch, now int64) (*heddlev1.Goal, error) {
	old := lt.currentGoal()
	g := proto.CloneOf(old)
	if g == nil || p.Objective != "" && p.Objective != g.GetObjective() {
		g = &heddlev1.Goal{Objective: p.Objective, Status: goalActive, CreatedAtMs: now}
		if old != nil && p.Budget == nil {
			g.TokenBudget = old.TokenBudget
		}
	}
	switch {
	case g.GetObjective() == "":
		return nil, errdefs.New(errdefs.InvalidArgument, "cannot update goal for thread %s: no goal exists", lt.id)
	case utf8.RuneCountInString(g.GetObjective()) > maxObjective:
		return nil, errdefs.New(errdefs.InvalidArgument, "goal objective must be at most %d characters", maxObjective)
	case p.Status != "" && !slices.Contains(goalStates, p.Status):
		return nil, errdefs.New(errdefs.InvalidArgument, "goal status %q is not known", p.Status)
	case p.Budget != nil && *p.Budget <= 0:
		return nil, errdefs.New(errdefs.InvalidArgument, "goal budgets must be positive when provided")
	}
	if p.Status != "" {
		g.Status = p.Status
	}
	if p.Budget != nil {
		g.TokenBudget = p.Budget
	}
	g.UpdatedAtMs = now
	return g, nil
}

// ClearGoal removes the goal and reports whether there was one.
func (a *Agent) ClearGoal(ctx context.Context, threadID string) (bool, error) {
	lt, err := a.acquired(ctx, threadID)
	if err != nil {
		return false, err
	}
	defer lt.release()
	if lt.currentGoal() == nil {
		return false, nil
	}
	if err := lt.persist(ctx, goalChanged("", nil)); err != nil {
		return false, err
	}
	lt.setGoal(nil)
	return true, nil
}

func (lt *live) currentGoal() *heddlev1.Goal {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.goal
}

func (lt *live) setGoal(g *heddlev1.Goal) {
	lt.mu.Lock()
	lt.goal = g
	lt.mu.Unlock()
}

// takeGoal tells the model of a turn that no person asked for what to do.
func (t *turn) takeGoal() error {
	if t.resume != nil {
		return nil
	}
	if err := t.compactIfNeeded(); err != nil {
		return err
	}
	g := t.lt.currentGoal()
	if g == nil {
		return nil
	}
	events := t.tellSurroundings()
	t.record(append(events, t.remember(prompt.Goal(g)))...)
	return nil
}

// spent is what counts against a budget: what was neither cached nor free.
func (lt *live) spent() int64 {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	u := lt.usage.GetTotal()
	return u.GetTotalTokens() - u.GetCachedInputTokens()
}

// accountGoal counts the turn that ends towards the goal and returns the event
// that says so, if anything changed.
func (t *turn) accountGoal(row *heddlev1.Turn, failure error) []*heddlev1.Event {
	t.lt.mu.Lock()
	g := proto.CloneOf(t.lt.goal)
	t.lt.mu.Unlock()
	if g.GetStatus() != goalActive && (g == nil || row.GetKind() != kindGoal) {
		return nil
	}
	g.TokensUsed += max(0, t.lt.spent()-t.spentBefore)
	g.TimeUsedMs += row.GetDurationMs()
	g.UpdatedAtMs = t.agent.now()
	if g.GetStatus() == goalActive {
		switch {
		case row.GetStatus() == heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED:
			g.Status = goalPaused
		case row.GetError().GetKind() == model.KindUsageLimit:
			g.Status = goalUsageLimited
		case failure != nil:
			g.Status = goalBlocked
		case g.TokenBudget != nil && g.GetTokensUsed() >= g.GetTokenBudget():
			g.Status = goalBudgetLimited
		}
	}
	t.lt.setGoal(g)
	return []*heddlev1.Event{goalChanged(row.GetId(), g)}
}

// pursue starts the next turn of an active goal. A turn in which the model did
// nothing is the last: it has nothing more to do, whatever it says.
func (a *Agent) pursue(lt *live, last *turn) {
	row := last.snapshot()
	if lt.currentGoal().GetStatus() != goalActive || row.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED || row.GetKind() == kindGoal && len(last.seen) == 0 {
		return
	}
	if err := lt.acquire(a.ctx); err != nil {
		return
	}
	defer lt.release()
	if a.peek(lt.id) != lt || lt.current() != nil || lt.currentGoal().GetStatus() != goalActive {
		return
	}
	if a.cfg.Held != nil && !a.cfg.Held(lt.id) {
		return
	}
	r := TurnRequest{ThreadID: lt.id, SessionID: row.GetSessionId(), OnDisconnect: row.GetOnDisconnect(), kind: kindGoal}
	if _, err := a.begin(a.ctx, lt, r); err != nil {
		a.cfg.Logger.Warn("go on with a goal", "thread", lt.id, "error", err)
	}
}
