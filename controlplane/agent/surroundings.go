package agent

import (
	"context"
	"path/filepath"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// tellSurroundings tells the model about the workspace and the settings, at the
// start of a thread and when they changed.
func (t *turn) tellSurroundings() []*heddlev1.Event {
	entries := t.changedSurroundings()
	if len(entries) == 0 {
		return nil
	}
	return []*heddlev1.Event{t.remember(entries...)}
}

// changedSurroundings are the entries that tell it; the model counts as told.
func (t *turn) changedSurroundings() []*heddlev1.HistoryEntry {
	now := t.surroundings()
	t.lt.mu.Lock()
	before, loaded := t.lt.told, t.lt.loaded
	t.lt.told = &now
	t.lt.mu.Unlock()
	if before == nil && loaded != nil {
		before = toldWith(now, loaded)
	}
	switch {
	case !introduced(t.history, now.BaseInstructions):
		now.Skills = t.knownSkills()
		return prompt.First(now)
	case before != nil:
		return prompt.Update(*before, now)
	}
	return nil
}

// toldWith is what the model was told under earlier settings, all else equal.
func toldWith(now prompt.Context, s *heddlev1.ThreadSettings) *prompt.Context {
	before := now
	before.Policy, before.ApprovalPolicy, before.GranularApproval = s.GetSandbox(), s.GetApprovalPolicy(), s.GetGranularApproval().AsMap()
	before.DeveloperInstructions = s.GetDeveloperInstructions()
	before.PlanMode, before.ModeInstructions, before.Personality = planning(s), modeInstructions(s), s.GetPersonality()
	if s.GetCwd() != now.Cwd {
		before.Cwd, before.Instructions = s.GetCwd(), nil
	}
	return &before
}

// surroundings is what the model should know about the thread now.
func (t *turn) surroundings() prompt.Context {
	ctx, cancel := context.WithTimeout(t.ctx, inspectWait)
	defer cancel()
	found, err := t.lt.inspect(ctx, t.row.GetSessionId())
	if err != nil && t.ctx.Err() == nil && t.lt.warnOnce(err.Error()) {
		t.record(warningRaised(t.id(), err.Error()))
	}
	for _, w := range found.GetWarnings() {
		if t.lt.warnOnce(w) {
			t.record(warningRaised(t.id(), w))
		}
	}
	s := t.settings()
	c := prompt.Context{
		BaseInstructions: s.GetBaseInstructions(), DeveloperInstructions: s.GetDeveloperInstructions(),
		Cwd: s.GetCwd(), Shell: filepath.Base(t.lt.shell()), Timezone: found.GetTimezone(), Now: t.agent.cfg.Clock(),
		Policy: s.GetSandbox(), ApprovalPolicy: s.GetApprovalPolicy(), GranularApproval: s.GetGranularApproval().AsMap(),
		PlanMode: planning(s), ModeInstructions: modeInstructions(s), Personality: s.GetPersonality(),
	}
	// A turn that could not begin, for want of a key, has no runtime.
	if t.rt == nil || !t.rt.IgnoreRules {
		c.AllowedPrefixes = t.agent.cfg.Rules.Allowed()
	}
	for _, f := range found.GetInstructions() {
		c.Instructions = append(c.Instructions, prompt.Instructions{Dir: filepath.Dir(f.GetPath()), Text: f.GetContent()})
	}
	return c
}
