package server

import (
	"context"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type mcpService struct {
	heddlev1.UnimplementedMcpServiceServer
	*Server
}

// forThread returns the caller after a check that it may see the thread; an empty
// id stands for none.
func (s *mcpService) forThread(ctx context.Context, threadID string) (caller string, err error) {
	if caller, err = s.caller(ctx); err != nil || threadID == "" {
		return caller, err
	}
	_, err = s.thread(ctx, threadID)
	return caller, err
}

// ListMcpServers tells of servers; see the proto.
func (s *mcpService) ListMcpServers(ctx context.Context, r *heddlev1.ListMcpServersRequest) (*heddlev1.ListMcpServersResponse, error) {
	caller, err := s.forThread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	list, err := s.cfg.Agent.DescribeServers(ctx, r.GetThreadId(), caller, r.GetName(), r.GetToolsOnly())
	if err != nil {
		return nil, err
	}
	if r.GetThreadId() == "" {
		for _, m := range list {
			m.RuntimeStatus = ""
		}
	}
	return &heddlev1.ListMcpServersResponse{Servers: list}, nil
}

// CallMcpTool calls a tool for a client; see the proto.
func (s *mcpService) CallMcpTool(ctx context.Context, r *heddlev1.CallMcpToolRequest) (*heddlev1.CallMcpToolResponse, error) {
	if r.GetThreadId() == "" {
		return nil, errdefs.New(errdefs.InvalidArgument, "thread_id is missing")
	}
	caller, err := s.forThread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	var args map[string]any
	switch v := r.GetArguments().GetKind().(type) {
	case nil, *structpb.Value_NullValue:
	case *structpb.Value_StructValue:
		args = v.StructValue.AsMap()
	default:
		return nil, errdefs.New(errdefs.InvalidArgument, "arguments of an MCP tool are an object")
	}
	res, err := s.cfg.Agent.CallServerTool(ctx, r.GetThreadId(), caller, r.GetServer(), r.GetTool(), args)
	if err != nil {
		return nil, err
	}
	return &heddlev1.CallMcpToolResponse{Result: res}, nil
}

// ReadMcpResource reads a resource; see the proto.
func (s *mcpService) ReadMcpResource(ctx context.Context, r *heddlev1.ReadMcpResourceRequest) (*heddlev1.ReadMcpResourceResponse, error) {
	caller, err := s.forThread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	contents, err := s.cfg.Agent.ReadServerResource(ctx, r.GetThreadId(), caller, r.GetServer(), r.GetUri())
	if err != nil {
		return nil, err
	}
	return &heddlev1.ReadMcpResourceResponse{Contents: contents}, nil
}

// ReloadMcpServers starts the servers of all threads anew; see the proto.
func (s *mcpService) ReloadMcpServers(ctx context.Context, _ *heddlev1.ReloadMcpServersRequest) (*heddlev1.ReloadMcpServersResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	if err := s.cfg.Agent.ReloadServers(ctx); err != nil {
		return nil, err
	}
	return &heddlev1.ReloadMcpServersResponse{}, nil
}
