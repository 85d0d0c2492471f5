package agent

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/controlplane/skill"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// skillsWait bounds the search for skills at the start of a thread.
const skillsWait = 3 * time.Second

// skillFiles reads the thread's workspace as its commands can.
func (t *turn) skillFiles() skill.FS {
	return skill.Remote(func(ctx context.Context, op *heddlev1.FileOperation) ([]byte, *heddlev1.FileOutcome, error) {
		var out []byte
		s := t.settings()
		action := &executorv1.Action{
			ActionId: newID(), Attempt: 1, Policy: proto.CloneOf(s.GetSandbox()), Workspace: s.GetCwd(),
			Kind: &executorv1.Action_FileOperation{FileOperation: op},
		}
		if err := t.lt.pin(ctx, action); err != nil {
			return nil, nil, err
		}
		h, err := t.agent.cfg.Dispatcher.Start(ctx, Spec{
			ThreadID: t.lt.id, Principal: t.lt.principal, Action: action,
			Output: func(c *executorv1.OutputChunk) error {
				out = append(out, c.GetData()...)
				return nil
			},
		})
		if err != nil {
			return nil, nil, err
		}
		res, err := h.Result(ctx)
		if err != nil {
			return nil, nil, err
		}
		h.Settle()
		if why := res.GetError(); why != nil {
			return nil, nil, fmt.Errorf("%s", why.GetMessage())
		}
		if res.GetFileOutcome() == nil {
			return nil, nil, fmt.Errorf("the executor answered a file operation with %T", res.GetOutcome())
		}
		return out, res.GetFileOutcome(), nil
	})
}

// knownSkills are the skills that the model is told of. What cannot be read is
// left out: a skill is help, and a turn goes on without.
func (t *turn) knownSkills() []prompt.Skill {
	if t.rt == nil || t.rt.SkillEnabled == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(t.ctx, skillsWait)
	defer cancel()
	t.lt.mu.Lock()
	root := t.lt.inspection.GetRepoRoot()
	t.lt.mu.Unlock()
	files := t.skillFiles()
	found, problems := skill.RepoAt(ctx, files, t.settings().GetCwd(), root)
	extra, extraProblems := skill.Below(ctx, files, t.rt.SkillRoots)
	found, problems = append(found, extra...), append(problems, extraProblems...)
	user, userProblems := skill.In(ctx, skill.Local{}, skill.UserFolder(t.agent.cfg.Home), skill.ScopeUser)
	for _, p := range append(problems, userProblems...) {
		t.agent.cfg.Logger.Info("skill left out", "thread", t.lt.id, "path", p.Path, "why", p.Message)
	}
	var out []prompt.Skill
	for _, s := range append(found, user...) {
		if t.rt.SkillEnabled(s.Name, s.Path) {
			out = append(out, prompt.Skill{Name: s.Name, Description: s.Description, Path: s.Path})
		}
	}
	return out
}

// skillEntries are the texts of the skills that an input names.
func (t *turn) skillEntries(in *heddlev1.UserMessage) []*heddlev1.HistoryEntry {
	var entries []*heddlev1.HistoryEntry
	for _, p := range in.GetParts() {
		r := p.GetReference()
		if r.GetKind() != "skill" {
			continue
		}
		if t.rt == nil || t.rt.SkillEnabled == nil || !t.rt.SkillEnabled(r.GetName(), r.GetPath()) {
			t.record(warningRaised(t.id(), fmt.Sprintf("skill %s was not read: it is switched off", r.GetName())))
			continue
		}
		files := t.skillFiles()
		if skill.IsUser(t.agent.cfg.Home, r.GetPath()) {
			files = skill.Local{}
		}
		data, err := files.Read(t.ctx, r.GetPath(), skill.MaxBytes)
		if err != nil {
			t.record(warningRaised(t.id(), fmt.Sprintf("skill %s was not read: %v", r.GetName(), err)))
			continue
		}
		entries = append(entries, prompt.SkillText(r.GetName(), r.GetPath(), string(data)))
	}
	return entries
}
