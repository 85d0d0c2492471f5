package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxDynamicTools bounds the tools that a client may bring.
	maxDynamicTools = 512
	dynamicFailed   = "dynamic tool request failed"
)

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// DynamicTools reads a client's own tools from their settings. It fails with
// InvalidArgument for what no model could call.
func DynamicTools(list *structpb.ListValue) ([]model.Tool, error) {
	var tools []model.Tool
	seen := map[string]bool{}
	add := func(namespace string, v any) error {
		spec, _ := v.(map[string]any)
		name, _ := spec["name"].(string)
		if err := checkToolName(name); err != nil {
			return err
		}
		key := namespace + "/" + name
		if seen[key] {
			return errdefs.New(errdefs.InvalidArgument, "duplicate dynamic tool name: %s", name)
		}
		seen[key] = true
		if len(tools) >= maxDynamicTools {
			return errdefs.New(errdefs.InvalidArgument, "more than %d dynamic tools", maxDynamicTools)
		}
		description, _ := spec["description"].(string)
		schema, ok := spec["inputSchema"].(map[string]any)
		if !ok {
			return errdefs.New(errdefs.InvalidArgument, "dynamic tool input schema is not supported for %s: it is not an object", name)
		}
		tools = append(tools, model.Tool{Kind: model.ToolFunction, Name: name, Namespace: namespace, Description: description, Parameters: schema})
		return nil
	}
	for _, v := range list.AsSlice() {
		spec, _ := v.(map[string]any)
		inner, isNamespace := spec["tools"].([]any)
		if !isNamespace {
			if err := add("", v); err != nil {
				return nil, err
			}
			continue
		}
		namespace, _ := spec["name"].(string)
		if err := checkToolName(namespace); err != nil {
			return nil, err
		}
		for _, t := range inner {
			if err := add(namespace, t); err != nil {
				return nil, err
			}
		}
	}
	return tools, nil
}

func checkToolName(name string) error {
	switch {
	case name == "":
		return errdefs.New(errdefs.InvalidArgument, "dynamic tool name must not be empty")
	case len(name) > 128:
		return errdefs.New(errdefs.InvalidArgument, "dynamic tool name must be at most 128 characters: %s", name[:128])
	case !toolName.MatchString(name):
		return errdefs.New(errdefs.InvalidArgument, "dynamic tool name must match ^[a-zA-Z0-9_-]+$ to match Responses API: %s", name)
	}
	return nil
}

// dynamicTools are the client's tools that no built-in one hides.
func (t *turn) dynamicTools() []model.Tool {
	tools, err := DynamicTools(t.settings().GetDynamicTools())
	if err != nil {
		return nil
	}
	kept := tools[:0]
	for _, d := range tools {
		if d.Namespace != "" || !t.rt.Tools.Offers(d.Name) {
			kept = append(kept, d)
		}
	}
	return kept
}

func (t *turn) isDynamic(c *heddlev1.ToolCall) bool {
	if c.GetFreeform() {
		return false
	}
	for _, d := range t.dynamicTools() {
		if d.Name == c.GetName() && d.Namespace == c.GetNamespace() {
			return true
		}
	}
	return false
}

// toolOptions are the tools that the turn offers.
func (t *turn) toolOptions() tool.Options {
	o := t.rt.Tools
	if t.row.GetKind() == kindReview {
		o.UpdatePlan, o.RequestUserInput, o.Escalation, o.Goals, o.Agents = false, false, false, false, false
		o.RequestPermissions = false
		return o
	}
	if planning(t.settings()) {
		o.UpdatePlan = false
	}
	o.Agents = int(t.lt.depth) < t.rt.Agents.Depth && t.rt.Agents.Max > 0 && t.agent.cfg.CreateThread != nil
	dynamic := t.dynamicTools()
	tools := slices.DeleteFunc(t.mcpTools(), func(m model.Tool) bool {
		return slices.ContainsFunc(dynamic, func(d model.Tool) bool { return d.Namespace == m.Namespace && d.Name == m.Name })
	})
	if tools = append(dynamic, tools...); len(tools) > 0 {
		o.Extra = append(append([]model.Tool(nil), o.Extra...), tools...)
	}
	return o
}

// dynamicRun is one call of a client's tool.
type dynamicRun struct {
	t     *turn
	item  *heddlev1.Item
	asked *approval.Pending
}

// dynamicCall asks the client to run one of its tools.
func (t *turn) dynamicCall(c *heddlev1.ToolCall) *call {
	var args any
	if err := json.Unmarshal([]byte(cmp.Or(c.GetArguments(), "{}")), &args); err != nil {
		return said(c, "failed to parse function arguments: "+err.Error())
	}
	value, err := structpb.NewValue(args)
	if err != nil {
		return said(c, "failed to parse function arguments: "+err.Error())
	}
	r := &dynamicRun{t: t, item: t.begunItem(c.GetCallId())}
	r.item.Content = &heddlev1.Item_DynamicToolCall{DynamicToolCall: &heddlev1.DynamicToolCall{Namespace: c.GetNamespace(), Tool: c.GetName(), Arguments: value}}
	a, err := t.newApproval(r.item, "", heddlev1.Risk_RISK_UNSPECIFIED, nil)
	if err != nil {
		return said(c, dynamicFailed+": "+err.Error())
	}
	a.Subject = &heddlev1.Approval_DynamicTool{DynamicTool: &heddlev1.DynamicToolRequest{CallId: c.GetCallId(), Namespace: c.GetNamespace(), Tool: c.GetName(), Arguments: value}}
	r.asked = t.open(a)
	return &call{req: c, events: []*heddlev1.Event{itemStarted(r.item), approvalRequested(a)}, do: r.run, undo: r.asked.Suspend, skip: func() {
		t.cancelQuestion(r.asked)
		r.finish(nil)
	}}
}

// run waits for the client's answer.
func (r *dynamicRun) run(ctx context.Context) result {
	a, _, ok := r.t.awaitDecision(ctx, r.asked)
	if suspended(ctx) {
		return result{}
	}
	if !ok {
		r.finish(nil)
		return result{}
	}
	return r.finish(a)
}

// finish completes the item with an answer; nil means that there is none.
func (r *dynamicRun) finish(a *heddlev1.Approval) result {
	d := r.item.GetDynamicToolCall()
	answer := a.GetAnswer().GetStructValue().GetFields()
	items, success := answer["contentItems"].GetListValue(), answer["success"].GetBoolValue()
	if a.GetDecision() != heddlev1.Decision_DECISION_ACCEPT || items == nil {
		success = false
		items = textItems(dynamicFailed)
		if a.GetDecidedBy() == approval.ByDeadline {
			items = textItems("the client did not answer in time")
		}
	}
	d.ContentItems, d.Success = items, &success
	r.item.CompletedAtMs = r.t.agent.now()
	d.DurationMs = max(0, r.item.CompletedAtMs-r.item.GetStartedAtMs())
	r.item.Status = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
	if !success {
		r.item.Status = heddlev1.ItemStatus_ITEM_STATUS_FAILED
	}
	r.t.record(itemCompleted(r.item))
	return contentResult(items)
}

func textItems(text string) *structpb.ListValue {
	return &structpb.ListValue{Values: []*structpb.Value{structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"type": structpb.NewStringValue("inputText"), "text": structpb.NewStringValue(text),
	}})}}
}

// contentResult is what the model is shown of a client's content items.
func contentResult(items *structpb.ListValue) result {
	r := result{parts: []*heddlev1.HistoryPart{}}
	for _, v := range items.GetValues() {
		f := v.GetStructValue().GetFields()
		switch f["type"].GetStringValue() {
		case "inputText":
			r.parts = append(r.parts, text(f["text"].GetStringValue()).parts...)
		case "inputImage":
			r.parts = append(r.parts, &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_ImageUrl{ImageUrl: f["imageUrl"].GetStringValue()}})
		default:
			r.parts = append(r.parts, text(fmt.Sprintf("(content of type %s cannot be shown)", f["type"].GetStringValue())).parts...)
		}
	}
	if len(r.parts) == 0 {
		return text("")
	}
	return r
}
