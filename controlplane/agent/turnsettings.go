package agent

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// UpdateTurnSettings lays overrides over the settings of a running turn, durably.
// They hold from its next model step on. It returns false when that turn takes no
// more changes. A cwd that is set must be the one that the turn works in.
func (a *Agent) UpdateTurnSettings(ctx context.Context, threadID, turnID, cwd string, o *heddlev1.TurnOverrides) (bool, error) {
	t := a.running(threadID)
	if t == nil || t.id() != turnID {
		return false, nil
	}
	settings := t.lt.currentSettings()
	if cwd != "" && cwd != settings.GetCwd() {
		return false, errdefs.New(errdefs.InvalidArgument, "a running turn stays in its folder, %s", settings.GetCwd())
	}
	// What cannot be had is said now, and does not end the turn at its next step.
	row := t.snapshot()
	wanted := overridden(settings, mergeOverrides(row.GetOverrides(), o))
	if _, err := a.cfg.Resolver.Resolve(ctx, wanted, row.GetSessionId()); err != nil {
		return false, err
	}
	return t.override(ctx, o)
}

// override records a change; false means that the turn is ending.
func (t *turn) override(ctx context.Context, o *heddlev1.TurnOverrides) (bool, error) {
	t.mu.Lock()
	if t.closed || t.ctx.Err() != nil {
		t.mu.Unlock()
		return false, nil
	}
	row := proto.CloneOf(t.row)
	row.Overrides = mergeOverrides(row.GetOverrides(), o)
	t.row = row
	p := t.lt.append(turnSettingsChanged(row.GetId(), proto.CloneOf(row.GetOverrides())))
	t.mu.Unlock()
	return true, p.Wait(ctx)
}

// takeOverrides puts what was changed for the turn in force and reports whether
// anything is new.
func (t *turn) takeOverrides() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.inForce
	t.inForce = t.row.GetOverrides()
	return !proto.Equal(before, t.inForce)
}

// overrides are those in force; they must not be changed.
func (t *turn) overrides() *heddlev1.TurnOverrides {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inForce
}

// resolve finds the model and what else the settings name.
func (t *turn) resolve() error {
	rt, err := t.agent.cfg.Resolver.Resolve(t.ctx, t.settings(), t.row.GetSessionId())
	if err != nil {
		return err
	}
	if t.private && rt.ReviewModel != t.reviewModel {
		t.reviewModel = rt.ReviewModel
		if rt, err = t.agent.cfg.Resolver.Resolve(t.ctx, t.settings(), t.row.GetSessionId()); err != nil {
			return err
		}
	}
	t.rt = rt
	if rt.Warning != "" && t.lt.warnOnce(rt.Warning) {
		t.record(warningRaised(t.id(), rt.Warning))
	}
	return context.Cause(t.ctx)
}

// mergeOverrides lays a change over earlier ones.
func mergeOverrides(before, change *heddlev1.TurnOverrides) *heddlev1.TurnOverrides {
	merged := &heddlev1.TurnOverrides{}
	proto.Merge(merged, before)
	proto.Merge(merged, change)
	return merged
}

// overridden lays overrides over settings, which are not changed.
func overridden(s *heddlev1.ThreadSettings, o *heddlev1.TurnOverrides) *heddlev1.ThreadSettings {
	if o == nil {
		return s
	}
	out := MergeSettings(s, &heddlev1.ThreadSettings{
		Model: o.GetModel(), ReasoningEffort: o.GetReasoningEffort(), ReasoningSummary: o.GetReasoningSummary(), ApprovalsReviewer: o.GetApprovalsReviewer(),
	})
	if o.ServiceTier != nil {
		out.ServiceTier = o.GetServiceTier()
	}
	return out
}
