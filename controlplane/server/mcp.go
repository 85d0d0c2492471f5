package server

import (
	"context"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxLogin bounds how long a login may wait for the person.
const maxLogin = time.Hour

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

// LoginMcpServer logs in at a server; see the proto.
func (s *mcpService) LoginMcpServer(r *heddlev1.LoginMcpServerRequest, stream heddlev1.McpService_LoginMcpServerServer) error {
	ctx := stream.Context()
	caller, err := s.forThread(ctx, r.GetThreadId())
	if err != nil {
		return err
	}
	if secs := r.GetTimeoutSecs(); secs < 0 || secs > int64(maxLogin/time.Second) {
		return errdefs.New(errdefs.InvalidArgument, "timeout of %d s: want 0 to %d", secs, int64(maxLogin/time.Second))
	}
	opened := false
	err = s.cfg.Agent.LoginServer(ctx, agent.Login{
		ThreadID: r.GetThreadId(), SessionID: caller, Server: r.GetName(), Scopes: r.GetScopes(), Timeout: time.Duration(r.GetTimeoutSecs()) * time.Second,
		Opened: func(url string) error {
			opened = true
			return stream.Send(&heddlev1.LoginMcpServerResponse{Step: &heddlev1.LoginMcpServerResponse_Page{Page: &heddlev1.LoginMcpServerResponse_LoginPage{
				AuthorizationUrl: url, LoginId: uuid.NewString(),
			}}})
		},
	})
	if err != nil && !opened {
		if errdefs.From(err) == nil {
			err = errdefs.New(errdefs.Internal, "%w", err)
		}
		return err
	}
	end := &heddlev1.LoginMcpServerResponse_LoginEnd{}
	if err != nil {
		end.Error = err.Error()
	}
	return stream.Send(&heddlev1.LoginMcpServerResponse{Step: &heddlev1.LoginMcpServerResponse_End{End: end}})
}

// LogoutMcpServer forgets a login; see the proto.
func (s *mcpService) LogoutMcpServer(ctx context.Context, r *heddlev1.LogoutMcpServerRequest) (*heddlev1.LogoutMcpServerResponse, error) {
	caller, err := s.forThread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	had, err := s.cfg.Agent.LogoutServer(ctx, r.GetThreadId(), caller, r.GetName())
	if err != nil {
		return nil, err
	}
	return &heddlev1.LogoutMcpServerResponse{WasLoggedIn: had}, nil
}
