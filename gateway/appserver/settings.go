package appserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"unicode/utf8"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

// maxInputChars is the longest text that one turn takes.
const maxInputChars = 1048576

// profile is a named sandbox policy.
type profile struct {
	id, description string
	mode            protocol.SandboxMode
}

func profiles() []profile {
	return []profile{
		{":read-only", "Commands can read, and write nothing.", protocol.ModeReadOnly},
		{":workspace", "Commands can write in the workspace.", protocol.ModeWorkspaceWrite},
		{":danger-full-access", "Commands run without a sandbox.", protocol.ModeFullAccess},
	}
}

func profileSummaries() []any {
	var out []any
	for _, p := range profiles() {
		out = append(out, list{"id": p.id, "description": p.description, "allowed": true})
	}
	return out
}

// profileList pages the named policies.
func (s *Server) profileList(_ context.Context, _ *call, p *protocol.ProfilesParams) (any, error) {
	page, next, err := pageOf(profileSummaries(), p.Cursor, p.Limit, maxPage)
	if err != nil {
		return nil, err
	}
	return list{"data": page, "nextCursor": next}, nil
}

func modeOfProfile(id string) (protocol.SandboxMode, error) {
	for _, p := range profiles() {
		if p.id == id {
			return p.mode, nil
		}
	}
	return "", invalid(fmt.Sprintf("unknown permission profile `%s`", id))
}

func text[T ~string](p *T) string {
	if p == nil {
		return ""
	}
	return string(*p)
}

// absolute makes a folder that a client names absolute: what is relative starts
// in the client's own folder. Empty stays empty.
func (s *Server) absolute(folder string) string {
	if folder == "" || path.IsAbs(folder) {
		return folder
	}
	return path.Join(s.session.Cwd(), folder)
}

func (s *Server) absolutes(folders []protocol.Path) []string {
	out := make([]string, len(folders))
	for i, f := range folders {
		out[i] = s.absolute(string(f))
	}
	return out
}

// settle completes the settings of a request with what the server knows.
func (s *Server) settle(settings *heddlev1.ThreadSettings, err error) (*heddlev1.ThreadSettings, error) {
	if err != nil {
		return nil, err
	}
	settings.Cwd = s.absolute(settings.GetCwd())
	return settings, nil
}

// sandboxOf reads the sandbox of a request: a mode or a profile. The rest of the
// policy is left to the config.
func sandboxOf(mode *protocol.SandboxMode, permissions *string) (*heddlev1.SandboxPolicy, error) {
	if permissions != nil && mode != nil {
		return nil, invalid("`permissions` cannot be combined with `sandbox`")
	}
	if permissions != nil {
		m, err := modeOfProfile(*permissions)
		if err != nil {
			return nil, err
		}
		mode = &m
	}
	if mode == nil {
		return nil, nil
	}
	return &heddlev1.SandboxPolicy{Level: protocol.LevelOf(*mode)}, nil
}

// setApproval copies an approval policy into settings.
func setApproval(s *heddlev1.ThreadSettings, a *protocol.Approval) {
	if a == nil {
		return
	}
	s.ApprovalPolicy = a.Name
	if a.Granular != nil {
		s.GranularApproval, _ = structpb.NewStruct(a.Granular)
	}
}

// defaultTier is the service tier of a thread whose client took the tier back.
const defaultTier = "default"

// tierOf reads a service tier; null takes back what was set. The tier that
// clients call fast is priority for the model's service.
func tierOf(n protocol.Nullable) string {
	switch {
	case n.Null:
		return defaultTier
	case n.Value == "fast":
		return "priority"
	}
	return n.Value
}

// reviewerOf reads who answers approvals; guardian_subagent is an older name.
func reviewerOf(r *protocol.Reviewer) string {
	if text(r) == "guardian_subagent" {
		return "auto_review"
	}
	return text(r)
}

// configOf reads the config overrides of a request.
func configOf(raw *protocol.Object) (*structpb.Struct, error) {
	if raw == nil {
		return nil, nil
	}
	s := protocol.ToStruct((*json.RawMessage)(raw))
	if s == nil {
		return nil, invalid("Invalid request: invalid type: config must be a map")
	}
	return s, nil
}

func startSettings(p *protocol.ThreadStartParams) (*heddlev1.ThreadSettings, error) {
	place, err := placeOf("thread/start", p.Environments)
	if err != nil {
		return nil, err
	}
	if place != "" {
		p.Cwd = &place
	}
	s := &heddlev1.ThreadSettings{
		Cwd: text(p.Cwd), Model: text(p.Model), ModelProvider: text(p.ModelProvider), ServiceTier: tierOf(p.ServiceTier),
		ApprovalsReviewer: reviewerOf(p.ApprovalsReviewer), BaseInstructions: text(p.BaseInstructions),
		DeveloperInstructions: text(p.DeveloperInstructions), Personality: text(p.Personality),
	}
	if s, err = finishSettings(s, p.ApprovalPolicy, p.Sandbox, p.Permissions, p.Config); err != nil {
		return nil, err
	}
	if s.DynamicTools, err = toolsOf(p.DynamicTools); err != nil {
		return nil, err
	}
	if p.Environments != nil && len(*p.Environments) == 0 {
		s.Config = withoutEnvironment(s.GetConfig())
	}
	return s, nil
}

// withoutEnvironment is a thread's config with no tool that acts in its folder.
func withoutEnvironment(config *structpb.Struct) *structpb.Struct {
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	maps.Copy(out.Fields, config.GetFields())
	delete(out.Fields, shellTool)
	features := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	maps.Copy(features.Fields, out.Fields["features"].GetStructValue().GetFields())
	features.Fields["shell_tool"] = structpb.NewBoolValue(false)
	out.Fields["features"] = structpb.NewStructValue(features)
	return out
}

// shellTool is the feature's name where a config has it as one key.
const shellTool = "features.shell_tool"

// finishSettings adds what start, resume, fork and turn say in one way.
func finishSettings(s *heddlev1.ThreadSettings, a *protocol.Approval, mode *protocol.SandboxMode, permissions *string, config *protocol.Object) (*heddlev1.ThreadSettings, error) {
	setApproval(s, a)
	var err error
	if s.Sandbox, err = sandboxOf(mode, permissions); err != nil {
		return nil, err
	}
	if s.Config, err = configOf(config); err != nil {
		return nil, err
	}
	return s, nil
}

// toolsOf reads the tools of a client.
func toolsOf(tools *[]protocol.DynamicTool) (*structpb.ListValue, error) {
	if tools == nil {
		return nil, nil
	}
	raws := make([]json.RawMessage, len(*tools))
	for i, t := range *tools {
		raws[i] = t.Raw
	}
	raw, err := json.Marshal(raws)
	if err != nil {
		return nil, err
	}
	return protocol.ToList(raw), nil
}

func resumeSettings(p *protocol.ThreadResumeParams) (*heddlev1.ThreadSettings, error) {
	s := &heddlev1.ThreadSettings{
		Cwd: text(p.Cwd), Model: text(p.Model), ModelProvider: text(p.ModelProvider), ServiceTier: tierOf(p.ServiceTier),
		ApprovalsReviewer: reviewerOf(p.ApprovalsReviewer), BaseInstructions: text(p.BaseInstructions),
		DeveloperInstructions: text(p.DeveloperInstructions), Personality: text(p.Personality),
	}
	return finishSettings(s, p.ApprovalPolicy, p.Sandbox, p.Permissions, p.Config)
}

func forkSettings(p *protocol.ThreadForkParams) (*heddlev1.ThreadSettings, error) {
	s := &heddlev1.ThreadSettings{
		Cwd: text(p.Cwd), Model: text(p.Model), ModelProvider: text(p.ModelProvider), ServiceTier: tierOf(p.ServiceTier),
		ApprovalsReviewer: reviewerOf(p.ApprovalsReviewer), BaseInstructions: text(p.BaseInstructions), DeveloperInstructions: text(p.DeveloperInstructions),
	}
	return finishSettings(s, p.ApprovalPolicy, p.Sandbox, p.Permissions, p.Config)
}

func turnSettings(p *protocol.TurnStartParams) (*heddlev1.ThreadSettings, error) {
	place, err := placeOf("turn/start", p.Environments)
	if err != nil {
		return nil, err
	}
	if place != "" {
		p.Cwd = (*protocol.Path)(&place)
	}
	s := &heddlev1.ThreadSettings{
		Cwd: text(p.Cwd), Model: text(p.Model), ServiceTier: tierOf(p.ServiceTier), ApprovalsReviewer: reviewerOf(p.ApprovalsReviewer),
		ReasoningEffort: text(p.Effort), ReasoningSummary: text(p.Summary), Personality: text(p.Personality),
	}
	s, err = finishSettings(s, p.ApprovalPolicy, nil, p.Permissions, nil)
	if err != nil {
		return nil, err
	}
	if p.SandboxPolicy != nil && p.Permissions != nil {
		return nil, invalid("`permissions` cannot be combined with `sandboxPolicy`")
	}
	if p.SandboxPolicy != nil {
		s.Sandbox = protocol.ToSandbox(p.SandboxPolicy)
	}
	if m := p.CollaborationMode; m != nil {
		s.CollaborationMode = protocol.ToStruct(&m.Raw)
		// The mode's model and effort are those of the thread.
		of := s.GetCollaborationMode().GetFields()["settings"].GetStructValue().GetFields()
		if model := of["model"].GetStringValue(); model != "" {
			s.Model = model
		}
		if effort := of["reasoning_effort"].GetStringValue(); effort != "" {
			s.ReasoningEffort = effort
		}
	}
	return s, nil
}

func updateSettings(p *protocol.SettingsUpdateParams) (*heddlev1.ThreadSettings, error) {
	return turnSettings(&protocol.TurnStartParams{
		Cwd: p.Cwd, ApprovalPolicy: p.ApprovalPolicy, ApprovalsReviewer: p.ApprovalsReviewer, SandboxPolicy: p.SandboxPolicy,
		Permissions: p.Permissions, Model: p.Model, ServiceTier: p.ServiceTier, Effort: p.Effort, Summary: p.Summary,
		CollaborationMode: p.CollaborationMode, Personality: p.Personality, Environments: p.Environments,
	})
}

// inputOf reads and bounds a turn's input.
func inputOf(in []protocol.UserInput, clientID *string) (*heddlev1.UserMessage, error) {
	chars := 0
	for _, u := range in {
		if u.Type == "text" {
			chars += utf8.RuneCountInString(u.Text)
		}
	}
	if chars > maxInputChars {
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("Input exceeds the maximum length of %d characters.", maxInputChars),
			Data:    list{"input_error_code": "input_too_large", "max_chars": maxInputChars, "actual_chars": chars},
		}
	}
	msg, err := protocol.ToInput(in, clientID)
	if err != nil {
		return nil, invalid(err.Error())
	}
	return msg, nil
}
