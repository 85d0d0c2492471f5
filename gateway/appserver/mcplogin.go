package appserver

import (
	"context"
	"errors"
	"io"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

func authStatus(m *heddlev1.McpServer) string {
	if s := m.GetAuthStatus(); s != "" {
		return s
	}
	return "unknown"
}

// mcpLogin answers with the page that the person is to open. The end of the
// login is told to the same connection; a connection that ends, ends it.
func (s *Server) mcpLogin(_ context.Context, r *call, p *protocol.McpLoginParams) (any, error) {
	thread, err := someThread(p.Thread)
	if err != nil {
		return nil, err
	}
	req := &heddlev1.LoginMcpServerRequest{ThreadId: thread, Name: p.Name}
	if p.Registration != nil && *p.Registration != "auto" && *p.Registration != "dcr" {
		return nil, invalid("clientRegistration " + string(*p.Registration) + " is not supported by this server: want auto or dcr")
	}
	if p.Scopes != nil {
		req.Scopes = *p.Scopes
	}
	if p.Timeout != nil {
		req.TimeoutSecs = *p.Timeout
	}
	ctx, cancel := context.WithCancel(r.client.ctx)
	var stream grpc.ServerStreamingClient[heddlev1.LoginMcpServerResponse]
	err = s.session.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = heddlev1.NewMcpServiceClient(cc).LoginMcpServer(ctx, req)
		return err
	})
	if err != nil {
		cancel()
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil || first.GetPage() == nil {
		cancel()
		if err == nil || errors.Is(err, io.EOF) {
			err = errors.New("the login ended before it began")
		}
		return nil, err
	}
	page := first.GetPage()
	r.then(func() {
		// Not among the client's tasks: a client that leaves does not wait for it.
		go func() {
			defer cancel()
			var problem *string
			last, err := stream.Recv()
			switch {
			case err != nil:
				text := "the login was cut off: " + err.Error()
				problem = &text
			case last.GetEnd().GetError() != "":
				text := protocol.Clip(last.GetEnd().GetError())
				problem = &text
			}
			r.client.tell("mcpServer/oauthLogin/completed", list{
				"name": p.Name, "loginId": page.GetLoginId(), "threadId": p.Thread, "success": problem == nil, "error": problem,
			})
		}()
	})
	return list{"authorizationUrl": page.GetAuthorizationUrl(), "loginId": page.GetLoginId()}, nil
}
