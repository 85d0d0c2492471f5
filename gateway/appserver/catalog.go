package appserver

import (
	"context"
	"math"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

type wireModel struct {
	ID                        string    `json:"id"`
	Model                     string    `json:"model"`
	DisplayName               string    `json:"displayName"`
	Description               string    `json:"description"`
	Hidden                    bool      `json:"hidden"`
	IsDefault                 bool      `json:"isDefault"`
	SupportedReasoningEfforts []any     `json:"supportedReasoningEfforts"`
	DefaultReasoningEffort    string    `json:"defaultReasoningEffort"`
	InputModalities           []string  `json:"inputModalities"`
	SupportsPersonality       bool      `json:"supportsPersonality"`
	AdditionalSpeedTiers      []string  `json:"additionalSpeedTiers"`
	ServiceTiers              []string  `json:"serviceTiers"`
	DefaultServiceTier        *string   `json:"defaultServiceTier"`
	Upgrade                   *string   `json:"upgrade"`
	UpgradeInfo               *struct{} `json:"upgradeInfo"`
	AvailabilityNux           *struct{} `json:"availabilityNux"`
	AvailableAccessPrograms   *struct{} `json:"availableAccessPrograms"`
	ModelSpecialty            *string   `json:"modelSpecialty"`
}

// effortText says what a reasoning effort means.
func effortText(effort string) string {
	switch effort {
	case "none", "minimal":
		return "Answers at once"
	case "low":
		return "Little reasoning, fast answers"
	case "medium":
		return "Balances speed and depth"
	case "high":
		return "More reasoning for hard problems"
	case "xhigh":
		return "The most reasoning"
	}
	return effort
}

func fromModel(m *heddlev1.Model) wireModel {
	out := wireModel{
		ID: m.GetId(), Model: m.GetId(), DisplayName: m.GetDisplayName(), Description: m.GetDescription(), Hidden: m.GetHidden(), IsDefault: m.GetIsDefault(),
		SupportedReasoningEfforts: []any{}, DefaultReasoningEffort: m.GetDefaultReasoningEffort(),
		// A tone is told in words, which every model takes.
		SupportsPersonality: true,
		InputModalities:     append([]string{}, m.GetInputModalities()...), AdditionalSpeedTiers: []string{}, ServiceTiers: []string{},
	}
	if out.DefaultReasoningEffort == "" {
		out.DefaultReasoningEffort = "medium"
	}
	for _, e := range m.GetReasoningEfforts() {
		out.SupportedReasoningEfforts = append(out.SupportedReasoningEfforts, list{"reasoningEffort": e, "description": effortText(e)})
	}
	return out
}

func (s *Server) modelList(ctx context.Context, _ *call, p *protocol.ModelListParams) (any, error) {
	var resp *heddlev1.ListModelsResponse
	err := s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		resp, err = heddlev1.NewCatalogServiceClient(cc).ListModels(ctx, &heddlev1.ListModelsRequest{IncludeHidden: p.IncludeHidden != nil && *p.IncludeHidden})
		return err
	})
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf(resp.GetModels(), p.Cursor, p.Limit, math.MaxUint32)
	if err != nil {
		return nil, err
	}
	data := []wireModel{}
	for _, m := range page {
		data = append(data, fromModel(m))
	}
	return list{"data": data, "nextCursor": next}, nil
}

func (s *Server) readConfig(ctx context.Context, cwd string) (*heddlev1.ReadConfigResponse, error) {
	var resp *heddlev1.ReadConfigResponse
	err := s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		resp, err = heddlev1.NewCatalogServiceClient(cc).ReadConfig(ctx, &heddlev1.ReadConfigRequest{Cwd: cwd})
		return err
	})
	return resp, err
}

// configKeys are members of the config that clients expect, null when unset.
func configKeys() []string {
	return []string{
		"analytics", "approval_policy", "approvals_reviewer", "apps", "compact_prompt", "desktop", "developer_instructions",
		"forced_chatgpt_workspace_id", "forced_login_method", "instructions", "model", "model_auto_compact_token_limit",
		"model_auto_compact_token_limit_scope", "model_context_window", "model_provider", "model_reasoning_effort",
		"model_reasoning_summary", "model_verbosity", "review_model", "sandbox_mode", "sandbox_workspace_write", "service_tier", "tools", "web_search",
	}
}

// layerName makes the wire form of a config layer's origin.
func layerName(l *heddlev1.ConfigLayer) any {
	switch l.GetKind() {
	case "project":
		return list{"type": "project", "dotCodexFolder": projectFolder(l.GetFile())}
	case "system":
		return list{"type": "system", "file": l.GetFile()}
	case "session":
		return list{"type": "sessionFlags"}
	}
	return list{"type": "user", "file": l.GetFile(), "profile": nil}
}

func (s *Server) configRead(ctx context.Context, _ *call, p *protocol.ConfigReadParams) (any, error) {
	resp, err := s.readConfig(ctx, text(p.Cwd))
	if err != nil {
		return nil, err
	}
	config := resp.GetConfig().AsMap()
	if config == nil {
		config = list{}
	}
	for _, k := range configKeys() {
		if _, ok := config[k]; !ok {
			config[k] = nil
		}
	}
	origins := list{}
	for k, i := range resp.GetOrigins() {
		if int(i) < len(resp.GetLayers()) && i >= 0 {
			l := resp.GetLayers()[i]
			origins[k] = list{"name": layerName(l), "version": l.GetVersion()}
		}
	}
	out := list{"config": config, "origins": origins, "layers": nil}
	if p.IncludeLayers {
		layers := []any{}
		for _, l := range resp.GetLayers() {
			layers = append(layers, list{"name": layerName(l), "version": l.GetVersion(), "config": l.GetConfig().AsMap(), "disabledReason": nil})
		}
		out["layers"] = layers
	}
	return out, nil
}
