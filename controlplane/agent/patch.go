package agent

import (
	"bytes"
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/proto/failpoint"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
)

const verificationFailed = "apply_patch verification failed: "

// patching is one apply_patch call: a plan action, perhaps a question, and a
// commit action.
type patching struct {
	t      *turn
	req    *heddlev1.ToolCall
	patch  string
	cwd    string
	policy *heddlev1.SandboxPolicy
	space  string
	// planned is the intent of the plan action.
	planned *heddlev1.ActionIntent
	plan    *executorv1.PatchPlan
	// commit is the intent of the write, epoch the only one it may happen under;
	// 0 for any.
	commit *heddlev1.ActionIntent
	epoch  uint64
	item   *heddlev1.Item
}

// patchCall plans a patch within the step's commit. Patches run alone, in call
// order, since one may depend on the other.
func (t *turn) patchCall(c *heddlev1.ToolCall, patch, workdir string) *call {
	p := t.newPatching(c, patch, workdir)
	p.planned = &heddlev1.ActionIntent{ActionId: newID(), CallId: c.GetCallId(), Kind: "patch_plan", Attempt: 1}
	return &call{
		req: c, alone: true, events: []*heddlev1.Event{actionsIntended(t.id(), p.planned)}, do: p.run,
		skip: func() { t.record(actionsResolved(t.id(), p.planned.GetActionId())) },
	}
}

func (t *turn) newPatching(c *heddlev1.ToolCall, patch, workdir string) *patching {
	s := t.settings()
	return &patching{t: t, req: c, patch: patch, cwd: join(s.GetCwd(), workdir), policy: proto.CloneOf(s.GetSandbox()), space: s.GetCwd()}
}

func (p *patching) commitIntent() *heddlev1.ActionIntent {
	return &heddlev1.ActionIntent{ActionId: newID(), ItemId: p.item.GetId(), CallId: p.req.GetCallId(), Kind: "patch_commit", ActionHash: p.plan.GetPlanHash(), Attempt: 1}
}

func (p *patching) run(ctx context.Context) result {
	began := time.Now()
	refused := p.makePlan(ctx)
	if suspended(ctx) {
		return result{}
	}
	p.t.record(actionsResolved(p.t.id(), p.planned.GetActionId()))
	if refused != nil {
		return *refused
	}
	failpoint.Hit("agent/patch-planned")
	if refused := p.permit(ctx); refused != nil {
		return *refused
	}
	failpoint.Hit("agent/patch-intended")
	return p.write(ctx, began)
}

// makePlan asks the executor what the patch would do. A result is what the model
// is told instead.
func (p *patching) makePlan(ctx context.Context) *result {
	res, err := p.t.lt.act(ctx, &executorv1.Action{
		ActionId: p.planID(), Policy: p.policy, Workspace: p.space,
		Kind: &executorv1.Action_PlanPatch{PlanPatch: &executorv1.PlanPatch{Patch: p.patch, Cwd: p.cwd}},
	})
	if ctx.Err() != nil {
		return &result{}
	}
	if why := failure(res, err); why != nil {
		r := text("apply_patch failed: " + why.GetMessage())
		return &r
	}
	p.plan = res.GetPatchPlan()
	if why := p.plan.GetRejected(); why != "" {
		r := text(verificationFailed + strings.TrimPrefix(why, verificationFailed))
		return &r
	}
	if !bytes.Equal(p.plan.GetPlanHash(), p.hash()) {
		r := text("apply_patch failed: the executor planned another patch than it was given")
		return &r
	}
	return nil
}

// planID is the id of the plan action; one that is made again has no intent, as
// it only reads.
func (p *patching) planID() string {
	if p.planned == nil {
		return newID()
	}
	return p.planned.GetActionId()
}

// hash binds approval and write to exactly this plan.
func (p *patching) hash() []byte {
	return actionhash.Patch(p.patch, p.cwd, p.plan.GetBaseHashes(), p.policy, p.space)
}

// permit decides whether the plan may be written and starts its item. A result
// means that it may not.
func (p *patching) permit(ctx context.Context) *result {
	t := p.t
	settings := t.settings()
	paths := touched(p.plan.GetChanges())
	verdict := approval.DecidePatch(approval.PatchFacts{
		Policy: settings.GetApprovalPolicy(), Granular: settings.GetGranularApproval(), Level: p.policy.GetLevel(),
		Outside: len(p.plan.GetOutsideRoots()) > 0, Remembered: t.lt.remembered().FilesAllowed(paths) || t.lt.remembered().ActionAllowed(p.plan.GetPlanHash()),
	})
	if verdict.Outcome == approval.Refuse {
		r := text(verdict.Refusal)
		return &r
	}
	p.item = t.begunItem(p.req.GetCallId())
	p.item.Content = &heddlev1.Item_FileChange{FileChange: &heddlev1.FileChange{Changes: p.plan.GetChanges()}}
	p.commit = p.commitIntent()
	if verdict.Outcome != approval.Ask {
		if err := t.commit(itemStarted(p.item), actionsIntended(t.id(), p.commit)); err != nil {
			r := text("apply_patch failed: " + err.Error())
			return &r
		}
		return nil
	}
	a, err := t.newApproval(p.item, "", risk(p.plan), p.plan.GetPlanHash())
	if err != nil {
		r := text("apply_patch failed: approval request failed")
		return &r
	}
	a.Subject = &heddlev1.Approval_FileChange{FileChange: &heddlev1.FileChangeApproval{Changes: p.plan.GetChanges(), Cwd: p.cwd}}
	asked := t.open(a, p.commit)
	if err := t.commit(itemStarted(p.item), approvalRequested(a)); err != nil {
		asked.Suspend()
		r := text("apply_patch failed: " + err.Error())
		return &r
	}
	return p.await(ctx, asked, paths)
}

func (p *patching) await(ctx context.Context, asked *approval.Pending, paths []string) *result {
	a, _, ok := p.t.awaitDecision(ctx, asked)
	if !ok {
		if !suspended(ctx) {
			p.close(heddlev1.ItemStatus_ITEM_STATUS_FAILED, &heddlev1.ActionError{Code: "cancelled", Message: "the turn was interrupted before an answer"})
		}
		return &result{}
	}
	return p.apply(a, paths)
}

// apply does what was decided; nil means that the patch may be written.
func (p *patching) apply(a *heddlev1.Approval, paths []string) *result {
	switch a.GetDecision() {
	case heddlev1.Decision_DECISION_ACCEPT, heddlev1.Decision_DECISION_ACCEPT_WITH_AMENDMENT:
		return nil
	case heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION:
		p.t.lt.remember(func(m *approval.Memory) { m.AllowFiles(paths) })
		return nil
	case heddlev1.Decision_DECISION_DECLINE, heddlev1.Decision_DECISION_CANCEL:
		p.close(heddlev1.ItemStatus_ITEM_STATUS_DECLINED, nil)
		r := text("patch " + refusedBy(a))
		r.cancel = a.GetDecision() == heddlev1.Decision_DECISION_CANCEL
		return &r
	}
	p.close(heddlev1.ItemStatus_ITEM_STATUS_FAILED, &heddlev1.ActionError{Code: "refused", Message: "approval request failed"})
	r := text("apply_patch failed: approval request failed")
	return &r
}

// write commits the planned patch; a base that changed since is refused by the
// executor.
func (p *patching) write(ctx context.Context, began time.Time) result {
	t := p.t
	if p.tightened() {
		p.close(heddlev1.ItemStatus_ITEM_STATUS_FAILED, &heddlev1.ActionError{Code: "refused", Message: tightenedText})
		return text("apply_patch failed: " + tightenedText)
	}
	t.noteBase(ctx)
	t.beginPatch(p.commit.GetActionId(), p.plan.GetBefore())
	res, err := t.lt.actUnder(ctx, p.commitAction(), p.epoch)
	failpoint.Hit("agent/patch-written")
	if suspended(ctx) && err != nil {
		return result{}
	}
	if why := failure(res, err); why != nil {
		t.diff.doubt(p.commit.GetActionId(), why.GetCode())
		p.close(heddlev1.ItemStatus_ITEM_STATUS_FAILED, why)
		return text("apply_patch failed: " + why.GetMessage())
	}
	done := res.GetPatchCommitted()
	if len(done.GetChanges()) > 0 {
		p.item.GetFileChange().Changes = done.GetChanges()
	}
	t.endPatch(p.commit.GetActionId(), done)
	p.close(heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, nil)
	t.showDiff()
	summary := done.GetSummary()
	if summary == "" {
		summary = p.plan.GetSummary()
	}
	return text(patchText(summary, time.Since(began)))
}

func (p *patching) commitAction() *executorv1.Action {
	return &executorv1.Action{
		ActionId: p.commit.GetActionId(), ActionHash: p.plan.GetPlanHash(), Policy: p.policy, Workspace: p.space,
		Kind: &executorv1.Action_CommitPatch{CommitPatch: &executorv1.CommitPatch{
			Patch: p.patch, Cwd: p.cwd, PlanHash: p.plan.GetPlanHash(), BaseHashes: p.plan.GetBaseHashes(), GrantedPaths: p.plan.GetOutsideRoots()}},
	}
}

func (p *patching) close(status heddlev1.ItemStatus, why *heddlev1.ActionError) {
	p.item.Status = status
	p.item.CompletedAtMs = p.t.agent.now()
	p.item.GetFileChange().Error = why
	p.t.record(itemCompleted(p.item), actionsResolved(p.t.id(), p.commit.GetActionId()))
}

const patchDone = "Success. Updated the following files:\n"

// patchText is what the model is told of a written patch.
func patchText(summary string, wall time.Duration) string {
	return tool.FormatPatch(patchDone+strings.TrimPrefix(summary, patchDone), wall)
}

// touched are the absolute paths a plan writes.
func touched(changes []*heddlev1.FileUpdate) []string {
	var paths []string
	for _, c := range changes {
		paths = append(paths, c.GetPath())
		if c.GetMovePath() != "" {
			paths = append(paths, c.GetMovePath())
		}
	}
	return paths
}

func risk(plan *executorv1.PatchPlan) heddlev1.Risk {
	if len(plan.GetOutsideRoots()) > 0 {
		return heddlev1.Risk_RISK_MEDIUM
	}
	return heddlev1.Risk_RISK_LOW
}
