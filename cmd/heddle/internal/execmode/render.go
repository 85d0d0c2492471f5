package execmode

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// outputLines is how much of a command's output a person is shown.
const outputLines = 20

// renderer shows a run to a person on standard error and writes the final
// answer to standard output.
type renderer struct {
	out, err io.Writer
	color    bool
	logFile  string
	input    string
	// held is the latest message of the model. It is shown among the steps only
	// when another step follows; otherwise it is the final answer.
	held *string
	diff string
	// failure is the last error that was shown.
	failure string
	// shown is the item whose start is the last thing on the screen.
	shown string
}

func newRenderer(opts Options) *renderer {
	return &renderer{out: opts.Stdout, err: opts.Stderr, color: opts.Color, logFile: opts.LogFile, input: requestText(opts)}
}

type style string

const (
	bold  style = "\x1b[1m"
	dim   style = "\x1b[2m"
	red   style = "\x1b[31m"
	green style = "\x1b[32m"
	reset       = "\x1b[0m"
)

func (r *renderer) paint(s style, text string) string {
	if !r.color {
		return text
	}
	return string(s) + text + reset
}

// line writes to the person's terminal; nothing else in this file does.
func (r *renderer) line(format string, args ...any) {
	fmt.Fprint(r.err, visible(fmt.Sprintf(format+"\n", args...), r.color))
}

func (r *renderer) fact(name, value string) {
	if value != "" {
		r.line("%s %s", r.paint(dim, fmt.Sprintf("%-10s", name+":")), value)
	}
}

func (r *renderer) threadStarted(t *heddlev1.Thread) {
	s := t.GetSettings()
	r.fact("thread", t.GetId())
	r.fact("folder", s.GetCwd())
	model := s.GetModel()
	if s.GetModelProvider() != "" {
		model += " (" + s.GetModelProvider() + ")"
	}
	r.fact("model", model)
	r.fact("sandbox", policyText(s.GetSandbox()))
	r.fact("approvals", s.GetApprovalPolicy())
	r.fact("log", r.logFile)
	if t.GetSandboxReport() != nil {
		r.report(t.GetSandboxReport())
	}
	if r.input != "" {
		r.line("\n%s\n%s", r.paint(bold, "user"), r.input)
	}
}

func (r *renderer) report(rep *heddlev1.SandboxReport) {
	r.fact("enforced", "by "+rep.GetBackend())
	for _, g := range rep.GetGaps() {
		r.line("%s %s: %s (fix: %s)", r.paint(dim, "gap:      "), g.GetGuarantee(), g.GetWhy(), g.GetFix())
	}
}

func (r *renderer) warning(text string) { r.line("%s %s", r.paint(red, "warning:"), text) }

func (r *renderer) event(ev *heddlev1.Event) {
	switch p := ev.GetPayload().(type) {
	case *heddlev1.Event_SandboxReported:
		r.report(p.SandboxReported.GetReport())
	case *heddlev1.Event_ItemStarted:
		r.started(p.ItemStarted.GetItem())
	case *heddlev1.Event_ItemCompleted:
		r.completed(p.ItemCompleted.GetItem())
	case *heddlev1.Event_PlanUpdated:
		r.plan(p.PlanUpdated)
	case *heddlev1.Event_DiffUpdated:
		r.diff = p.DiffUpdated.GetDiff()
	case *heddlev1.Event_ErrorRaised:
		r.failure = p.ErrorRaised.GetError().GetMessage()
		r.line("%s %s", r.paint(red, "error:"), r.failure)
	}
}

func (r *renderer) started(item *heddlev1.Item) {
	switch c := item.GetContent().(type) {
	case *heddlev1.Item_CommandExecution:
		r.release()
		r.line("\n%s %s\n%s", r.paint(bold, "exec"), c.CommandExecution.GetCommand(), r.paint(dim, "in "+c.CommandExecution.GetCwd()))
		r.shown = item.GetId()
	case *heddlev1.Item_McpToolCall:
		r.release()
		r.line("\n%s %s.%s", r.paint(bold, "tool"), c.McpToolCall.GetServer(), c.McpToolCall.GetTool())
	}
}

func (r *renderer) completed(item *heddlev1.Item) {
	switch c := item.GetContent().(type) {
	case *heddlev1.Item_AgentMessage:
		r.release()
		text := c.AgentMessage.GetText()
		r.held = &text
	case *heddlev1.Item_Reasoning:
		if text := strings.Join(c.Reasoning.GetSummary(), "\n\n"); text != "" {
			r.release()
			r.line("\n%s", r.paint(dim, text))
		}
	case *heddlev1.Item_CommandExecution:
		r.command(item, c.CommandExecution)
	case *heddlev1.Item_FileChange:
		r.release()
		r.line("\n%s %s", r.paint(bold, "patch"), r.state(item, ""))
		for _, f := range c.FileChange.GetChanges() {
			r.line("  %s %s", f.GetKind(), f.GetPath())
		}
		r.problem(item)
	case *heddlev1.Item_McpToolCall:
		r.line("%s", r.state(item, c.McpToolCall.GetError()))
	case *heddlev1.Item_WebSearch:
		r.release()
		r.line("\n%s %s", r.paint(bold, "search"), c.WebSearch.GetQuery())
	}
}

func (r *renderer) command(item *heddlev1.Item, c *heddlev1.CommandExecution) {
	how := "no exit status"
	if c.ExitCode != nil {
		how = fmt.Sprintf("exit %d", c.GetExitCode())
	}
	if c.GetVerdict().GetSandboxLost() {
		how += ", sandbox lost"
	}
	if c.GetVerdict().GetTimedOut() {
		how += ", timed out"
	}
	if c.GetVerdict().GetOomKilled() {
		how += ", out of memory"
	}
	if c.GetVerdict().GetPidsHit() {
		how += ", limit of processes hit"
	}
	if c.GetVerdict().GetDiskLow() {
		how += ", disk nearly full"
	}
	if r.shown != item.GetId() { // others ran beside it
		r.line("\n%s %s", r.paint(bold, "done"), c.GetCommand())
	}
	r.shown = ""
	r.line("%s", r.state(item, fmt.Sprintf("%s in %s", how, time.Duration(c.GetDurationMs())*time.Millisecond)))
	if out := tail(c.GetAggregatedOutput(), outputLines); out != "" {
		r.line("%s", r.paint(dim, out))
	}
	for _, v := range c.GetVerdict().GetViolations() {
		r.warning(v.GetPath() + ": " + v.GetWhat())
	}
	r.problem(item)
}

func (r *renderer) problem(item *heddlev1.Item) {
	if e := actionError(item); e != nil {
		r.line("%s", r.paint(red, errorText(e)))
	}
}

func (r *renderer) state(item *heddlev1.Item, detail string) string {
	word, s := "failed", red
	switch item.GetStatus() {
	case heddlev1.ItemStatus_ITEM_STATUS_COMPLETED:
		word, s = "ok", green
	case heddlev1.ItemStatus_ITEM_STATUS_DECLINED:
		word = "declined"
	}
	if detail != "" {
		word += ": " + detail
	}
	return r.paint(s, word)
}

func (r *renderer) plan(p *heddlev1.PlanUpdated) {
	r.release()
	r.shown = ""
	r.line("\n%s %s", r.paint(bold, "plan"), p.GetExplanation())
	for _, s := range p.GetSteps() {
		mark := map[string]string{"completed": "x", "inProgress": ">"}[s.GetStatus()]
		r.line("  [%1s] %s", mark, s.GetStep())
	}
}

// release shows a held message as one of the steps.
func (r *renderer) release() {
	if r.held != nil {
		r.line("\n%s\n%s", r.paint(bold, "heddle"), *r.held)
		r.held = nil
	}
}

func (r *renderer) ended(o Outcome) {
	if r.diff != "" {
		r.line("\n%s\n%s", r.paint(bold, "diff of the turn"), strings.TrimRight(r.diff, "\n"))
	}
	if u := o.Usage; u != nil {
		r.line("\n%s", r.paint(dim, fmt.Sprintf("tokens: %d in (%d cached), %d out", u.GetInputTokens(), u.GetCachedInputTokens(), u.GetOutputTokens())))
	}
	if o.Failure != "" && o.Failure != r.failure {
		r.line("%s %s", r.paint(red, "error:"), o.Failure)
	}
	if o.Answer != "" && o.Turn != nil {
		fmt.Fprintln(r.out, strings.TrimRight(o.Answer, "\n"))
	}
}

// tail returns the last lines of data with a mark for what is left out.
func tail(data []byte, lines int) string {
	data = bytes.TrimRight(data, "\n")
	all := bytes.Split(data, []byte("\n"))
	if len(all) <= lines {
		return string(data)
	}
	return fmt.Sprintf("... %d lines above\n%s", len(all)-lines, bytes.Join(all[len(all)-lines:], []byte("\n")))
}

func policyText(p *heddlev1.SandboxPolicy) string {
	var level string
	switch p.GetLevel() {
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY:
		level = "read-only"
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE:
		level = "workspace-write"
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS:
		return "danger-full-access (no containment)"
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL:
		return "external (no containment by heddle)"
	default:
		return ""
	}
	network := "network off"
	if p.GetNetwork() == heddlev1.NetworkMode_NETWORK_MODE_FULL {
		network = "network full"
	}
	text := level + ", " + network
	if roots := p.GetWritableRoots(); len(roots) > 0 {
		text += ", also writable: " + strings.Join(roots, ", ")
	}
	return text
}

// requestText is what was asked for.
func requestText(opts Options) string {
	switch t := opts.Review.GetTarget().(type) {
	case *heddlev1.StartReviewRequest_Uncommitted:
		return "Review the uncommitted changes"
	case *heddlev1.StartReviewRequest_BaseBranch_:
		return "Review the changes since " + t.BaseBranch.GetBranch()
	case *heddlev1.StartReviewRequest_Commit_:
		return strings.TrimSpace("Review the commit " + t.Commit.GetSha() + " " + t.Commit.GetTitle())
	case *heddlev1.StartReviewRequest_Custom:
		return "Review: " + t.Custom
	}
	return inputText(opts.Input)
}

func inputText(m *heddlev1.UserMessage) string {
	var parts []string
	for _, p := range m.GetParts() {
		switch {
		case p.GetLocalImage() != "":
			parts = append(parts, "[image "+p.GetLocalImage()+"]")
		case p.GetImageUrl() != "":
			parts = append(parts, "[image]")
		default:
			parts = append(parts, p.GetText())
		}
	}
	return strings.Join(parts, "\n")
}
