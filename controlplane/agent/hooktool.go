package agent

import (
	"context"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/hook"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Names of tools as hooks know them.
const (
	hookBash  = "Bash"
	hookPatch = "apply_patch"
)

// hookTool is a call as hooks see it.
type hookTool struct {
	// names are what a matcher may match, the first what the hook is told.
	names []string
	input json.RawMessage
}

// hookView makes what hooks see of a call.
func (t *turn) hookView(c *heddlev1.ToolCall) hookTool {
	given := json.RawMessage(c.GetArguments())
	if !json.Valid(given) {
		given = inputOf(map[string]string{"input": c.GetArguments()})
	}
	if c.GetNamespace() != "" {
		return hookTool{names: []string{strings.TrimSuffix(c.GetNamespace(), "__") + "__" + strings.TrimPrefix(c.GetName(), "__")}, input: given}
	}
	switch parsed, err := tool.Parse(c); p := parsed.(type) {
	case *tool.ExecCommand:
		if err == nil {
			return hookTool{names: []string{hookBash}, input: inputOf(map[string]string{"command": p.Cmd})}
		}
	case *tool.ApplyPatch:
		if err == nil {
			return hookTool{names: []string{hookPatch, "Edit", "Write"}, input: inputOf(map[string]string{"command": p.Patch})}
		}
	}
	return hookTool{names: []string{c.GetName()}, input: given}
}

func inputOf(m map[string]string) json.RawMessage {
	b, err := json.Marshal(m)
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}

// hookedCall is newCall with the hooks around it. A call that hooks may refuse
// begins nothing before they answered, and does not run beside others.
func (t *turn) hookedCall(c *heddlev1.ToolCall) *call {
	if t.rt == nil || len(t.rt.Hooks) == 0 {
		return t.newCall(c)
	}
	v := t.hookView(c)
	hooks := t.hooksFor(hook.PreToolUse, v.names...)
	if len(hooks) == 0 {
		k := t.newCall(c)
		t.withPostHooks(k, v)
		return k
	}
	return &call{req: c, alone: true, do: func(ctx context.Context) result { return t.callAfterHooks(ctx, c, v, hooks) }}
}

func (t *turn) callAfterHooks(ctx context.Context, c *heddlev1.ToolCall, v hookTool, hooks []hook.Hook) result {
	in := t.hookInput(hook.PreToolUse)
	in.ToolName, in.ToolInput, in.ToolUseID, in.Subject = v.names[0], v.input, c.GetCallId(), c.GetCallId()
	runs, err := t.runHooks(ctx, hooks, in)
	if err != nil {
		if ctx.Err() != nil {
			return result{}
		}
		return errHooks(err)
	}
	contexts := hookContexts(runs)
	if why, refused := hookRefusal(runs); refused {
		r := text(blockedText(v, why))
		r.after = contexts
		return r
	}
	for _, run := range runs {
		if run.GetStatus() == hook.Failed && strings.Contains(strings.Join(hook.Said(run, "error"), ""), hookUnknown) {
			r := text("the call was not made: " + hookUnknown)
			r.after = contexts
			return r
		}
		if run.GetUpdatedInput() != "" {
			changed, err := withInput(c, run.GetUpdatedInput())
			if err != "" {
				return text("the call was not made: a PreToolUse hook gave an input that cannot be used: " + err)
			}
			c = changed
		}
	}
	k := t.newCall(c)
	if len(k.events) > 0 {
		if err := t.commit(k.events...); err != nil {
			k.discard()
			return text("the call could not be made: " + err.Error())
		}
	}
	t.withPostHooks(k, t.hookView(c))
	r := k.do(ctx)
	r.after = append(contexts, r.after...)
	return r
}

// blockedText is what the model is told of a call that hooks refused.
func blockedText(v hookTool, why string) string {
	if v.names[0] != hookBash && v.names[0] != hookPatch {
		return "Tool call blocked by PreToolUse hook: " + why + ". Tool: " + v.names[0]
	}
	var in struct{ Command string }
	_ = json.Unmarshal(v.input, &in) // made by us
	return "Command blocked by PreToolUse hook: " + why + ". Command: " + in.Command
}

// withInput is the call with the input that a hook gave in place of the model's;
// why says what is wrong with that.
func withInput(c *heddlev1.ToolCall, input string) (changed *heddlev1.ToolCall, why string) {
	out := proto.CloneOf(c)
	parsed, err := tool.Parse(c)
	if err != nil || c.GetNamespace() != "" {
		out.Arguments = input
		return out, ""
	}
	member := ""
	switch parsed.(type) {
	case *tool.ExecCommand:
		member = "cmd"
	case *tool.ApplyPatch:
		member = "input"
	default:
		out.Arguments = input
		return out, ""
	}
	var in struct {
		Command *string `json:"command"`
	}
	if err := json.Unmarshal([]byte(input), &in); err != nil || in.Command == nil {
		return nil, `it has no text "command"`
	}
	if c.GetFreeform() {
		out.Arguments = *in.Command
		return out, ""
	}
	args := map[string]any{}
	if err := json.Unmarshal([]byte(c.GetArguments()), &args); err != nil {
		return nil, err.Error()
	}
	args[member] = *in.Command
	b, err := json.Marshal(args)
	if err != nil {
		return nil, err.Error()
	}
	out.Arguments = string(b)
	return out, ""
}

// withPostHooks lets the hooks see what a call came to. Their feedback stands in
// place of its output.
func (t *turn) withPostHooks(k *call, v hookTool) {
	hooks := t.hooksFor(hook.PostToolUse, v.names...)
	if len(hooks) == 0 {
		return
	}
	do := k.do
	k.do = func(ctx context.Context) result {
		r := do(ctx)
		if ctx.Err() != nil || r.cancel || r.parts == nil {
			return r
		}
		in := t.hookInput(hook.PostToolUse)
		in.ToolName, in.ToolInput, in.ToolUseID, in.Subject = v.names[0], v.input, k.req.GetCallId(), k.req.GetCallId()
		said := clipHookInput(outputText(v, r))
		in.ToolResponse = &said
		runs, err := t.runHooks(ctx, hooks, in)
		if err != nil {
			if suspended(ctx) {
				return result{}
			}
			return r
		}
		if why, refused := hookRefusal(runs); refused {
			r.parts = text(why).parts
		}
		r.after = append(r.after, hookContexts(runs)...)
		return r
	}
}

// outputText is the text of a result; of a command, what it printed.
func outputText(v hookTool, r result) string {
	var b strings.Builder
	for _, p := range r.parts {
		b.WriteString(p.GetText())
	}
	if v.names[0] == hookBash {
		if _, printed, ok := strings.Cut(b.String(), "\nOutput:\n"); ok {
			return printed
		}
	}
	return b.String()
}
