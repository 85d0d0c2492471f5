package agent

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// current settings; the result must not be changed.
func (lt *live) currentSettings() *heddlev1.ThreadSettings {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.settings
}

func (lt *live) setSettings(s *heddlev1.ThreadSettings) {
	lt.mu.Lock()
	lt.grants = thread.AfterSettings(lt.grants, lt.settings, s)
	lt.settings = s
	lt.mu.Unlock()
}

// overlay lays a patch over the settings. It returns nil when nothing changes,
// else the new settings and the event that records them.
func (lt *live) overlay(patch *heddlev1.ThreadSettings) (*heddlev1.ThreadSettings, []*heddlev1.Event) {
	before := lt.currentSettings()
	after := MergeSettings(before, patch)
	if proto.Equal(before, after) {
		return nil, nil
	}
	return after, []*heddlev1.Event{settingsChanged(after)}
}

// UpdateSettings lays a patch over a thread's settings, durably.
func (a *Agent) UpdateSettings(ctx context.Context, threadID string, patch *heddlev1.ThreadSettings) (*heddlev1.ThreadSettings, error) {
	lt, err := a.acquired(ctx, threadID)
	if err != nil {
		return nil, err
	}
	defer lt.release()
	changed, events := lt.overlay(patch)
	if changed == nil {
		return proto.CloneOf(lt.currentSettings()), nil
	}
	if err := lt.change(ctx, changed, func() error { return lt.persist(ctx, events...) }); err != nil {
		return nil, err
	}
	a.wg.Go(func() { // now, and not when somebody had the time to lead them elsewhere
		if err := lt.learnPlaces(a.ctx, folders(changed.GetCwd(), changed.GetSandbox())); err != nil {
			a.cfg.Logger.Debug("look where folders lead", "thread", threadID, "error", err)
		}
	})
	return proto.CloneOf(changed), nil
}

// MergeSettings returns base with the non-empty fields of patch laid over it.
func MergeSettings(base, patch *heddlev1.ThreadSettings) *heddlev1.ThreadSettings {
	merged := &heddlev1.ThreadSettings{}
	if base != nil {
		merged = proto.CloneOf(base)
	}
	if patch == nil {
		return merged
	}
	// Message fields are replaced, not merged: a policy is one value.
	if patch.GetSandbox() != nil {
		merged.Sandbox = nil
	}
	if patch.GetGranularApproval() != nil {
		merged.GranularApproval = nil
	}
	if patch.GetConfig() != nil {
		merged.Config = nil
	}
	if mode := patch.GetCollaborationMode(); mode != nil {
		merged.CollaborationMode = nil
		// A mode brings its effort along, and none is the model's default.
		effort, named := mode.GetFields()["settings"].GetStructValue().GetFields()["reasoning_effort"]
		if named && effort.GetStringValue() == "" {
			merged.ReasoningEffort = ""
		}
	}
	if patch.GetDynamicTools() != nil {
		merged.DynamicTools = nil
	}
	proto.Merge(merged, patch)
	return merged
}
