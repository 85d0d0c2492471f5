package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Status of a run, as clients know it.
const (
	Running   = "running"
	Completed = "completed"
	Failed    = "failed"
	Blocked   = "blocked"
	Stopped   = "stopped"
)

// blockExit is the exit status that says no; the reason stands on stderr.
const blockExit = 2

// output is what a hook may answer; which members count depends on the point.
type output struct {
	Continue       *bool   `json:"continue"`
	Decision       *string `json:"decision"`
	Reason         *string `json:"reason"`
	StopReason     *string `json:"stopReason"`
	SuppressOutput *bool   `json:"suppressOutput"`
	SystemMessage  *string `json:"systemMessage"`
	Specific       *struct {
		EventName            string          `json:"hookEventName"`
		AdditionalContext    *string         `json:"additionalContext"`
		PermissionDecision   *string         `json:"permissionDecision"`
		PermissionReason     *string         `json:"permissionDecisionReason"`
		UpdatedInput         json.RawMessage `json:"updatedInput"`
		UpdatedMCPToolOutput json.RawMessage `json:"updatedMCPToolOutput"`
	} `json:"hookSpecificOutput"`
}

// Fail ends a run that gave no usable answer.
func Fail(run *heddlev1.HookRun, why string) {
	run.Status, run.Entries, run.UpdatedInput = Failed, []*heddlev1.HookEntry{{Kind: "error", Text: why}}, ""
}

// Answer ends a run with what its command printed and how it exited.
func Answer(run *heddlev1.HookRun, exit int32, stdout, stderr []byte) {
	run.Status = Completed
	switch {
	case exit == blockExit && run.GetEventName() != SessionStart:
		why := text(stderr)
		if why == "" {
			Fail(run, Title(run.GetEventName())+" hook exited with code 2 but did not write "+wanted(run.GetEventName())+" to stderr")
			return
		}
		say(run, Blocked, "feedback", why)
	case exit != 0:
		Fail(run, fmt.Sprintf("hook exited with code %d", exit))
	default:
		if why := read(run, text(stdout)); why != "" {
			Fail(run, why)
		}
	}
}

// wanted names what a hook that blocks has to give.
func wanted(event string) string {
	switch event {
	case PostToolUse:
		return "feedback"
	case Stop:
		return "a continuation prompt"
	}
	return "a blocking reason"
}

func text(b []byte) string { return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD")) }

func say(run *heddlev1.HookRun, status, kind, what string) {
	if status != "" {
		run.Status = status
	}
	run.Entries = append(run.Entries, &heddlev1.HookEntry{Kind: kind, Text: what})
}

// read takes the standard output of a hook that succeeded; it returns what is
// wrong with it.
func read(run *heddlev1.HookRun, out string) string {
	event := run.GetEventName()
	if out == "" {
		return ""
	}
	if !strings.HasPrefix(out, "{") && !strings.HasPrefix(out, "[") {
		switch event {
		case SessionStart, UserPromptSubmit:
			say(run, "", "context", out)
		case Stop:
			return invalid(event)
		}
		return ""
	}
	var o output
	dec := json.NewDecoder(bytes.NewReader([]byte(out)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil || dec.More() || o.Specific != nil && o.Specific.EventName != Title(event) {
		return invalid(event)
	}
	if m := value(o.SystemMessage); m != "" {
		say(run, "", "warning", m)
	}
	if event == PreToolUse {
		return o.beforeTool(run)
	}
	return o.apply(run)
}

func invalid(event string) string {
	name := strings.ReplaceAll(pointOf(event).kebab, "-", " ")
	switch event {
	case PreToolUse, PostToolUse:
		name = pointOf(event).kebab
	case Stop:
		name = "stop hook"
	}
	return "hook returned invalid " + name + " JSON output"
}

// apply is for every point but PreToolUse.
func (o *output) apply(run *heddlev1.HookRun) string {
	event := run.GetEventName()
	title := Title(event) + " hook returned "
	if event == PostToolUse && on(o.SuppressOutput) {
		return title + "unsupported suppressOutput"
	}
	if event == PostToolUse && o.Specific != nil && given(o.Specific.UpdatedMCPToolOutput) {
		return title + "unsupported updatedMCPToolOutput"
	}
	if o.Specific != nil && (o.Specific.PermissionDecision != nil || given(o.Specific.UpdatedInput)) {
		return invalid(event)
	}
	o.context(run)
	if o.Continue != nil && !*o.Continue {
		reason := value(o.StopReason)
		if reason == "" {
			reason = Title(event) + " hook stopped execution"
		}
		say(run, Stopped, "stop", reason)
		return ""
	}
	switch {
	case o.Decision == nil:
		if event == PostToolUse && value(o.Reason) != "" {
			return title + "reason without decision"
		}
	case *o.Decision != "block" || event == SessionStart:
		return invalid(event)
	case value(o.Reason) == "":
		return title + "decision:block without a non-empty reason"
	default:
		say(run, Blocked, "feedback", value(o.Reason))
	}
	return ""
}

// beforeTool is for PreToolUse.
func (o *output) beforeTool(run *heddlev1.HookRun) string {
	const title = "PreToolUse hook returned "
	switch {
	case o.Continue != nil && !*o.Continue:
		return title + "unsupported continue:false"
	case on(o.SuppressOutput):
		return title + "unsupported suppressOutput"
	case value(o.StopReason) != "":
		return title + "unsupported stopReason"
	}
	o.context(run)
	if o.Decision != nil {
		switch {
		case *o.Decision == "approve":
			return title + "unsupported decision:approve"
		case *o.Decision != "block":
			return invalid(PreToolUse)
		case value(o.Reason) == "":
			return title + "decision:block without a non-empty reason"
		}
		say(run, Blocked, "feedback", value(o.Reason))
		return ""
	}
	if value(o.Reason) != "" {
		return title + "reason without decision"
	}
	if o.Specific == nil {
		return ""
	}
	s := o.Specific
	switch decision, reason := value(s.PermissionDecision), value(s.PermissionReason); {
	case decision == "" && reason != "":
		return title + "permissionDecisionReason without permissionDecision"
	case decision == "deny" && reason == "":
		return title + "permissionDecision:deny without a non-empty permissionDecisionReason"
	case decision == "deny":
		say(run, Blocked, "feedback", reason)
	case decision == "ask":
		return title + "unsupported permissionDecision:ask"
	case decision != "allow" && given(s.UpdatedInput):
		return title + "updatedInput without permissionDecision:allow"
	case decision == "allow" && !given(s.UpdatedInput):
		return title + "unsupported permissionDecision:allow"
	case decision == "allow":
		run.UpdatedInput = string(s.UpdatedInput)
	case decision != "":
		return invalid(PreToolUse)
	}
	return ""
}

func (o *output) context(run *heddlev1.HookRun) {
	if o.Specific != nil && value(o.Specific.AdditionalContext) != "" {
		say(run, "", "context", value(o.Specific.AdditionalContext))
	}
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return strings.TrimSpace(*s)
}

func on(b *bool) bool { return b != nil && *b }

func given(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }

// Said are the texts of one kind that a run has.
func Said(run *heddlev1.HookRun, kind string) []string {
	var out []string
	for _, e := range run.GetEntries() {
		if e.GetKind() == kind {
			out = append(out, e.GetText())
		}
	}
	return out
}
