package agent

import (
	"context"
	"fmt"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (r *agentRun) send(ctx context.Context) (map[string]any, error) {
	id := r.args.Targets[0]
	if _, err := r.child(ctx, id); err != nil {
		return nil, err
	}
	if !r.t.lt.agentOpen(id) {
		return nil, fmt.Errorf("agent %s is closed; open it again with resume_agent", id)
	}
	if s, err := r.state(ctx, id); err == nil {
		r.know(id, s)
	}
	if r.args.Interrupt {
		r.t.agent.stopAgent(id, causeClient)
	}
	if err := r.givePlaces(ctx, id); err != nil {
		return nil, err
	}
	req := r.turnRequest(id)
	req.Settings = permissionsOf(r.t.lt.currentSettings())
	ans, err := r.t.agent.StartTurn(ctx, req)
	if err != nil {
		return nil, err
	}
	return map[string]any{"submission_id": ans.Turn.GetId()}, nil
}

// wait returns when one of the agents has come to rest, or the time is over.
func (r *agentRun) wait(ctx context.Context) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, r.args.Wait)
	defer cancel()
	rest := make(chan struct{}, len(r.args.Targets))
	for {
		found := map[string]any{}
		for _, id := range r.args.Targets {
			if t := r.t.agent.running(id); t != nil {
				r.t.agent.wg.Go(func() { awaitRest(ctx, t, rest) })
			}
			s, err := r.state(context.WithoutCancel(ctx), id)
			if err != nil {
				return nil, err
			}
			r.know(id, s)
			if final(s) {
				found[id] = stateJSON(s)
			}
		}
		if len(found) > 0 || ctx.Err() != nil {
			return map[string]any{"status": found, "timed_out": len(found) == 0}, nil
		}
		select {
		case <-rest:
		case <-ctx.Done():
		}
	}
}

func awaitRest(ctx context.Context, t *turn, rest chan<- struct{}) {
	select {
	case <-t.done:
	case <-t.stuck:
	case <-ctx.Done():
		return
	}
	select {
	case rest <- struct{}{}:
	default:
	}
}

// end closes an agent and what stands under it.
func (r *agentRun) end(ctx context.Context) (map[string]any, error) {
	id := r.args.Targets[0]
	if _, err := r.child(ctx, id); err != nil {
		return nil, err
	}
	before, err := r.state(ctx, id)
	if err != nil {
		return nil, err
	}
	if !r.t.lt.agentOpen(id) {
		before = &heddlev1.AgentState{Status: agentShutdown}
	}
	r.t.lt.closeAgent(id)
	r.t.agent.endAgent(ctx, id)
	r.know(id, before)
	return map[string]any{"previous_status": stateJSON(before)}, nil
}

func (r *agentRun) reopen(ctx context.Context) (map[string]any, error) {
	id := r.args.Targets[0]
	if _, err := r.child(ctx, id); err != nil {
		return nil, err
	}
	if !r.t.lt.agentOpen(id) {
		if _, err := r.t.lt.admitAgent(id, r.t.rt.Agents.Max); err != nil {
			return nil, err
		}
		r.t.lt.openAgent(id)
	}
	s, err := r.state(ctx, id)
	if err != nil {
		return nil, err
	}
	r.know(id, s)
	return map[string]any{"status": stateJSON(s)}, nil
}
