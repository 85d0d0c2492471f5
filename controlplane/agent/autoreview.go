package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/controlplane/approval"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// reviewerAuto is the reviewer of approvals that is a model, as in
// Approval.reviewer.
const reviewerAuto = "auto_review"

// reviewerUser is the reviewer that is a person.
const reviewerUser = "user"

// Bounds of a review.
const (
	reviewWait = 90 * time.Second
	// reviewTries is how often a review that broke off is asked for.
	reviewTries = 3
	// A turn whose actions are denied this often in a row, or in all, is stopped:
	// the model looks for a way around.
	maxDeniedInRow = 3
	maxDenied      = 10
	// What a reviewer is shown, in bytes.
	maxUserSaid   = 12 << 10
	maxAgentDid   = 12 << 10
	maxOneText    = 4 << 10
	maxActionText = 48 << 10
	maxRationale  = 2000
)

// States of a verdict.
const (
	reviewApproved = "approved"
	reviewDenied   = "denied"
	reviewTimedOut = "timedOut"
	reviewAborted  = "aborted"
)

// causeReviewer ends a turn that the reviewer stopped.
const causeReviewer = "approval_reviewer"

// denials counts what the reviewer denied in a turn; guarded by turn.mu.
type denials struct{ row, all int }

// reviewable reports whether an approval is about an action that a reviewer can
// judge, rather than a question that needs a person's answer.
func reviewable(a *heddlev1.Approval) bool {
	return a.GetCommand() != nil || a.GetFileChange() != nil || a.GetElicitation().GetTool() != ""
}

// reviewedBy names who decides about an approval of the thread.
func reviewedBy(s *heddlev1.ThreadSettings, a *heddlev1.Approval) string {
	if reviewedByModel(s) && reviewable(a) {
		return reviewerAuto
	}
	return ""
}

func reviewedByModel(s *heddlev1.ThreadSettings) bool {
	return s.GetApprovalsReviewer() == reviewerAuto || s.GetApprovalsReviewer() == "guardian_subagent"
}

// judge has the reviewer decide about a question. Whatever keeps it from a
// verdict declines, and says so.
func (t *turn) judge(asking context.Context, p *approval.Pending) {
	ctx, cancel := context.WithTimeout(asking, reviewWait)
	defer cancel()
	v, err := t.askReviewer(ctx, p.Approval())
	if asking.Err() != nil {
		return // interrupted, decided meanwhile, or asked again after a restart
	}
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		v = &heddlev1.ReviewVerdict{Status: reviewTimedOut, Rationale: "The automatic review did not end in time; the action was not judged."}
	default:
		v = &heddlev1.ReviewVerdict{Status: reviewAborted, Rationale: "The automatic review could not be completed, so the action was not judged: " + clipText(err.Error(), maxRationale)}
	}
	d := heddlev1.Decision_DECISION_DECLINE
	if v.GetStatus() == reviewApproved {
		d = heddlev1.Decision_DECISION_ACCEPT
	}
	a, won, err := p.Judge(context.WithoutCancel(ctx), d, v)
	if err != nil || !won {
		return
	}
	t.agent.cfg.Logger.Info("approval reviewed", "thread", t.lt.id, "turn", a.GetTurnId(), "approval", a.GetId(), "status", v.GetStatus(),
		"risk", v.GetRiskLevel(), "authorization", v.GetUserAuthorization(), "rationale", v.GetRationale())
	t.countDenial(v.GetStatus() == reviewDenied)
}

// countDenial stops a turn whose actions are denied over and over. What a
// sub-agent is denied counts for those above it too: a new agent is no new start.
func (t *turn) countDenial(denied bool) {
	if denied && t.lt.parent != "" {
		if above := t.agent.running(t.lt.parent); above != nil {
			above.countDenial(true)
		}
	}
	t.mu.Lock()
	if denied {
		t.denied.row++
		t.denied.all++
	} else {
		t.denied.row = 0
	}
	n := t.denied
	t.mu.Unlock()
	if !denied || n.row < maxDeniedInRow && n.all < maxDenied {
		return
	}
	w := warningRaised(t.id(), fmt.Sprintf("Automatic approval review denied too many actions of this turn (%d in a row, %d in all); the turn is interrupted.", n.row, n.all))
	w.GetWarningRaised().Reviewer = true
	t.record(w)
	t.interrupt(causeReviewer)
}

// reviewSchema is the form of a verdict; only the outcome has to be there.
func reviewSchema() map[string]any {
	oneOf := func(values ...string) map[string]any { return map[string]any{"type": "string", "enum": values} }
	return map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"outcome"},
		"properties": map[string]any{
			"risk_level":         oneOf("low", "medium", "high", "critical"),
			"user_authorization": oneOf("unknown", "low", "medium", "high"),
			"outcome":            oneOf("allow", "deny"),
			"rationale":          map[string]any{"type": "string"},
		},
	}
}

// askReviewer asks the thread's model, which has no tools here and sees nothing
// of the conversation but the evidence.
func (t *turn) askReviewer(ctx context.Context, a *heddlev1.Approval) (*heddlev1.ReviewVerdict, error) {
	evidence, err := t.evidence(a)
	if err != nil {
		return nil, err
	}
	r := t.request()
	r.Input = prompt.ApprovalReviewer(evidence)
	r.Tools, r.ParallelToolCalls = nil, false
	r.OutputSchema, r.LooseSchema = reviewSchema(), true
	r.Summary, r.Verbosity = "", ""
	r.ThreadID = t.lt.id + "-review"
	if r.Effort != "" {
		r.Effort = "low"
	}
	for try := 1; ; try++ {
		text, usage, err := t.collect(ctx, r)
		if usage != nil {
			t.record(usageUpdated(t.id(), t.lt.addSideUsage(usage)))
		}
		if err == nil {
			return readVerdict(text)
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		var me *model.Error
		if !errors.As(err, &me) || me.Retry == model.RetryNone || try == reviewTries {
			return nil, err
		}
		select {
		case <-time.After(backoffBase << try):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// collect asks once and returns the last message.
func (t *turn) collect(ctx context.Context, r model.Request) (text string, usage *heddlev1.TokenUsage, err error) {
	err = t.rt.Client.Stream(ctx, r, func(ev model.Event) error {
		switch e := ev.(type) {
		case model.ItemDone:
			if m := e.Entry.GetMessage(); m != nil {
				text = messageText(m)
			}
		case model.Completed:
			usage = e.Usage
		}
		return nil
	})
	return text, usage, err
}

// readVerdict reads the reviewer's answer. What does not say "allow" in the asked
// form never allows.
func readVerdict(answer string) (*heddlev1.ReviewVerdict, error) {
	var v struct {
		Risk          string `json:"risk_level"`
		Authorization string `json:"user_authorization"`
		Outcome       string `json:"outcome"`
		Rationale     string `json:"rationale"`
	}
	answer = strings.TrimSpace(answer)
	if fenced, ok := strings.CutPrefix(answer, "```json"); ok {
		answer = strings.TrimSpace(strings.TrimSuffix(fenced, "```"))
	}
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		return nil, fmt.Errorf("the reviewer's answer is not in the asked form: %q", clipText(answer, 200))
	}
	out := &heddlev1.ReviewVerdict{Rationale: clipText(strings.TrimSpace(v.Rationale), maxRationale)}
	switch v.Risk {
	case "low", "medium", "high", "critical":
		out.RiskLevel = v.Risk
	}
	switch v.Authorization {
	case "unknown", "low", "medium", "high":
		out.UserAuthorization = v.Authorization
	}
	switch v.Outcome {
	case "allow":
		out.Status = reviewApproved
	case "deny":
		out.Status = reviewDenied
	default:
		return nil, fmt.Errorf("the reviewer's answer has the outcome %q instead of allow or deny", clipText(v.Outcome, 50))
	}
	return out, nil
}

// refusedBy is who or what refused an action, in words for the model.
func refusedBy(a *heddlev1.Approval) string {
	v := a.GetReview()
	if a.GetDecidedBy() != approval.ByReviewer || v == nil {
		return "rejected by user"
	}
	why := cmp.Or(v.GetRationale(), "no reason given")
	if v.GetStatus() != reviewDenied {
		return "not run: " + why + " This is no judgement of the action; do not go around the review, but ask the user."
	}
	return "rejected by the approval reviewer: " + why + " Do not reach for the same result by another way; go on with what is safe, or stop and ask the user."
}

// evidence is what the reviewer judges, as one JSON object: in its strings no text
// can leave its place. Outputs of tools and files of the workspace are not in it.
func (t *turn) evidence(a *heddlev1.Approval) (string, error) {
	t.mu.Lock()
	history := t.witnessed
	t.mu.Unlock()
	said, did := witnesses(history)
	action := actionFacts(a)
	b, err := json.Marshal(struct {
		UserSaid []string       `json:"user_said"`
		AgentDid []activity     `json:"agent_did"`
		Action   map[string]any `json:"action"`
	}{said, did, action})
	if err != nil {
		return "", fmt.Errorf("write the evidence of a review: %w", err)
	}
	if len(b) > maxUserSaid+maxAgentDid+2*maxActionText {
		return "", errors.New("the action is too large for an automatic review")
	}
	return string(b), nil
}

// activity is one thing that the agent said or called.
type activity struct {
	Said string `json:"said,omitempty"`
	Tool string `json:"tool,omitempty"`
	Args string `json:"arguments,omitempty"`
}

// witnesses picks from the history what the person said, and what the agent said
// and called since it began; the latest where there is too much.
func witnesses(history []*heddlev1.HistoryEntry) (said []string, did []activity) {
	userRoom, agentRoom := maxUserSaid, maxAgentDid
	said, did = []string{}, []activity{}
	for i := len(history) - 1; i >= 0 && (userRoom > 0 || agentRoom > 0); i-- {
		e := history[i]
		switch m := e.GetMessage(); {
		case m.GetPerson() && userRoom > 0:
			s := clipText(messageText(m), maxOneText)
			userRoom -= len(s)
			said = append([]string{s}, said...)
		case m.GetRole() == "assistant" && agentRoom > 0:
			s := clipText(messageText(m), maxOneText)
			agentRoom -= len(s)
			did = append([]activity{{Said: s}}, did...)
		case e.GetToolCall() != nil && agentRoom > 0:
			c := activity{Tool: e.GetToolCall().GetName(), Args: clipText(e.GetToolCall().GetArguments(), maxOneText)}
			agentRoom -= len(c.Args)
			did = append([]activity{c}, did...)
		}
	}
	return said, did
}

// actionFacts are the facts of what is to be carried out. Nothing of it is cut:
// what cannot be shown whole is not reviewed.
func actionFacts(a *heddlev1.Approval) map[string]any {
	f := map[string]any{}
	if r := a.GetReason(); r != "" {
		f["reason"] = clipText(r, maxOneText)
	}
	switch {
	case a.GetCommand().GetNetwork() != nil:
		n := a.GetCommand().GetNetwork()
		f["kind"], f["host"], f["port"], f["protocol"], f["command"] = "network_access", n.GetHost(), n.GetPort(), n.GetProtocol(), a.GetCommand().GetCommand()
	case a.GetCommand().GetStdin() != nil:
		s := a.GetCommand().GetStdin()
		f["kind"], f["text"], f["process"], f["cwd"] = "write_to_process_outside_the_sandbox", s.GetText(), a.GetCommand().GetArgv(), a.GetCommand().GetCwd()
	case a.GetCommand() != nil:
		c := a.GetCommand()
		f["kind"], f["argv"], f["cwd"], f["outside_the_sandbox"] = "command", c.GetArgv(), c.GetCwd(), c.GetEscalated()
	case a.GetFileChange() != nil:
		var changes []map[string]any
		for _, c := range a.GetFileChange().GetChanges() {
			changes = append(changes, map[string]any{"path": c.GetPath(), "kind": c.GetKind(), "move_to": c.GetMovePath(), "diff": c.GetDiff()})
		}
		f["kind"], f["changes"] = "file_change", changes
	case a.GetElicitation() != nil:
		e := a.GetElicitation()
		f["kind"], f["server"], f["tool"], f["arguments"] = "mcp_tool_call", e.GetServer(), e.GetTool(), e.GetMeta().GetFields()["tool_params"].AsInterface()
	}
	return f
}

// clipText cuts a text at a rune, with a mark.
func clipText(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + " [cut]"
}
