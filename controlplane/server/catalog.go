package server

import (
	"context"
	"os"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type catalogService struct {
	heddlev1.UnimplementedCatalogServiceServer
	*Server
}

func (s *catalogService) ListModels(ctx context.Context, r *heddlev1.ListModelsRequest) (*heddlev1.ListModelsResponse, error) {
	resp := &heddlev1.ListModelsResponse{}
	for _, m := range s.cfg.Settings.ListModels(ctx, sessionID(ctx), r.GetIncludeHidden()) {
		out := &heddlev1.Model{
			Id: m.ID, DisplayName: m.DisplayName, Description: m.Description, Hidden: m.Hidden, IsDefault: m.Default,
			DefaultReasoningEffort: m.DefaultEffort, InputModalities: m.Modalities, ContextWindow: m.ContextWindow, FreeformApplyPatch: m.FreeformPatch,
		}
		for _, e := range m.Efforts {
			out.ReasoningEfforts = append(out.ReasoningEfforts, e.Effort)
		}
		resp.Models = append(resp.Models, out)
	}
	return resp, nil
}

func (s *catalogService) ReadConfig(ctx context.Context, r *heddlev1.ReadConfigRequest) (*heddlev1.ReadConfigResponse, error) {
	c, err := s.cfg.Settings.LoadFor(ctx, sessionID(ctx), r.GetCwd(), nil)
	if err != nil {
		return nil, err
	}
	resp := &heddlev1.ReadConfigResponse{Origins: map[string]int32{}}
	if resp.Config, err = tree(c.Full()); err != nil {
		return nil, err
	}
	for _, l := range c.Layers() {
		t, err := tree(l.Tree)
		if err != nil {
			return nil, err
		}
		resp.Layers = append(resp.Layers, &heddlev1.ConfigLayer{Kind: l.Kind, File: l.File, Version: l.Version, Config: t})
	}
	for k, i := range c.Origins() {
		resp.Origins[k] = int32(i)
	}
	return resp, nil
}

// tree is a config tree in the form that travels.
func tree(m map[string]any) (*structpb.Struct, error) {
	st, err := structpb.NewStruct(m)
	if err != nil {
		return nil, errdefs.New(errdefs.InvalidConfig, "config value: %w", err)
	}
	return st, nil
}

func (s *catalogService) GetStatus(context.Context, *heddlev1.GetStatusRequest) (*heddlev1.GetStatusResponse, error) {
	return &heddlev1.GetStatusResponse{
		Version: s.cfg.Version, Pid: int64(os.Getpid()), Sessions: int32(s.cfg.Sessions.Len()), ActiveTurns: int32(s.cfg.Agent.ActiveTurns()),
		Executors: s.cfg.Fleet.Status(), Waiting: s.cfg.Fleet.Waiting(), Counters: s.cfg.Log.Stats(),
	}, nil
}

func (s *catalogService) Shutdown(_ context.Context, r *heddlev1.ShutdownRequest) (*heddlev1.ShutdownResponse, error) {
	if !r.GetForce() {
		if n := s.cfg.Agent.Busy(); n > 0 {
			return &heddlev1.ShutdownResponse{Reason: "turns or commands are open"}, nil
		}
		if s.cfg.Sessions.Len() > 0 {
			return &heddlev1.ShutdownResponse{Reason: "clients are attached"}, nil
		}
	}
	s.cfg.Stop()
	return &heddlev1.ShutdownResponse{Accepted: true}, nil
}
