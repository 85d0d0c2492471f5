package appserver

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/google/uuid"
	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

// maxElicited bounds what a client may answer to a question of an MCP server.
const maxElicited = 1 << 20

// mcpService runs a call of the MCP service that may be repeated.
func mcpService[T any](ctx context.Context, s *Server, call func(context.Context, heddlev1.McpServiceClient) (T, error)) (out T, err error) {
	err = s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		out, err = call(ctx, heddlev1.NewMcpServiceClient(cc))
		return err
	})
	return out, err
}

// someThread checks an optional thread id.
func someThread(id *string) (string, error) {
	if id == nil {
		return "", nil
	}
	if _, err := uuid.Parse(*id); err != nil {
		return "", invalid("invalid thread id: " + err.Error())
	}
	return *id, nil
}

// someLoaded checks an optional id of a loaded thread.
func (s *Server) someLoaded(id *string) error {
	thread, err := someThread(id)
	if err != nil {
		return err
	}
	if thread != "" && s.thread(thread) == nil {
		return invalid(textNotFound + thread)
	}
	return nil
}

func mcpStatusParams(thread string, p *heddlev1.McpServerStatus) any {
	var problem *string
	if p.GetError() != "" {
		clipped := protocol.Clip(p.GetError())
		problem = &clipped
	}
	return list{"threadId": thread, "name": p.GetName(), "status": p.GetStatus(), "error": problem, "failureReason": nil}
}

func (s *Server) mcpStatusList(ctx context.Context, _ *call, p *protocol.McpStatusParams) (any, error) {
	thread, err := someThread(p.Thread)
	if err != nil {
		return nil, err
	}
	if p.Environment != nil && (p.Thread == nil || p.ServerName == nil) {
		return nil, invalid("environmentId requires serverName and threadId")
	}
	toolsOnly := p.Detail != nil && *p.Detail == "toolsAndAuthOnly"
	resp, err := mcpService(ctx, s, func(ctx context.Context, c heddlev1.McpServiceClient) (*heddlev1.ListMcpServersResponse, error) {
		return c.ListMcpServers(ctx, &heddlev1.ListMcpServersRequest{ThreadId: thread, Name: text(p.ServerName), ToolsOnly: toolsOnly})
	})
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf(resp.GetServers(), p.Cursor, p.Limit, maxPage)
	if err != nil {
		return nil, err
	}
	data := []any{}
	for _, m := range page {
		data = append(data, fromServer(m))
	}
	return list{"data": data, "nextCursor": next}, nil
}

func fromServer(m *heddlev1.McpServer) any {
	tools := list{}
	for _, t := range m.GetTools() {
		tools[t.GetFields()["name"].GetStringValue()] = t.AsMap()
	}
	optional := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	out := list{
		"name": m.GetName(), "tools": tools, "toolsError": optional(m.GetError()), "resources": objects(m.GetResources()), "resourceTemplates": objects(m.GetResourceTemplates()),
		"serverInfo": nil, "serverCapabilities": nil, "authStatus": authStatus(m), "runtimeStatus": optional(m.GetRuntimeStatus()), "httpOrigin": optional(m.GetHttpOrigin()),
	}
	if i := m.GetServerInfo(); i != nil {
		out["serverInfo"] = i.AsMap()
	}
	if c := m.GetCapabilities(); c != nil {
		out["serverCapabilities"] = c.AsMap()
	}
	return out
}

func objects(in []*structpb.Struct) []any {
	out := []any{}
	for _, o := range in {
		out = append(out, o.AsMap())
	}
	return out
}

func (s *Server) mcpToolCall(ctx context.Context, _ *call, p *protocol.McpToolCallParams) (any, error) {
	req := &heddlev1.CallMcpToolRequest{ThreadId: p.ThreadID, Server: p.Server, Tool: p.Tool}
	if p.Arguments != nil {
		req.Arguments = &structpb.Value{}
		if err := req.Arguments.UnmarshalJSON(*p.Arguments); err != nil {
			return nil, invalid("arguments: " + err.Error())
		}
	}
	var resp *heddlev1.CallMcpToolResponse
	err := s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		resp, err = heddlev1.NewMcpServiceClient(cc).CallMcpTool(ctx, req)
		return err
	})
	if err != nil {
		return nil, serversOwn(err)
	}
	m := resp.GetResult().AsMap()
	if m["content"] == nil {
		m["content"] = []any{}
	}
	return list{"content": m["content"], "structuredContent": m["structuredContent"], "isError": m["isError"] == true, "_meta": m["_meta"]}, nil
}

// serversOwn passes on the error that an MCP server answered with, under its code.
func serversOwn(err error) error {
	e := errdefs.From(err)
	if e == nil || e.Meta["mcp_code"] == "" {
		return err
	}
	code, convErr := strconv.Atoi(e.Meta["mcp_code"])
	if convErr != nil {
		return err
	}
	return &jsonrpc.Error{Code: code, Message: e.Message}
}

func (s *Server) mcpResourceRead(ctx context.Context, _ *call, p *protocol.McpResourceParams) (any, error) {
	thread, err := someThread(p.Thread)
	if err != nil {
		return nil, err
	}
	switch {
	case p.OriginCall != nil && p.Thread == nil:
		return nil, invalid("originCallId requires threadId")
	case p.Target != nil:
		return nil, invalid("target is for hosted apps, which this server does not have")
	}
	resp, err := mcpService(ctx, s, func(ctx context.Context, c heddlev1.McpServiceClient) (*heddlev1.ReadMcpResourceResponse, error) {
		return c.ReadMcpResource(ctx, &heddlev1.ReadMcpResourceRequest{ThreadId: thread, Server: p.Server, Uri: p.URI})
	})
	if err != nil {
		return nil, serversOwn(err)
	}
	return list{"contents": objects(resp.GetContents())}, nil
}

func (s *Server) mcpReload(ctx context.Context, _ *call) (any, error) {
	_, err := mcpService(ctx, s, func(ctx context.Context, c heddlev1.McpServiceClient) (*heddlev1.ReloadMcpServersResponse, error) {
		return c.ReloadMcpServers(ctx, &heddlev1.ReloadMcpServersRequest{})
	})
	if err != nil {
		return nil, err
	}
	return list{}, nil
}

// elicitation makes the question of an MCP server.
func elicitation(a *heddlev1.Approval, e *heddlev1.ElicitationRequest) any {
	out := list{
		"threadId": a.GetThreadId(), "turnId": a.GetTurnId(), "serverName": e.GetServer(), "mode": e.GetMode(), "message": protocol.Clip(e.GetMessage()), "_meta": nil,
	}
	if e.GetMeta() != nil {
		out["_meta"] = e.GetMeta().AsMap()
	}
	if e.GetMode() == "url" {
		out["url"], out["elicitationId"] = e.GetUrl(), e.GetElicitationId()
		return out
	}
	out["requestedSchema"] = e.GetRequestedSchema().AsInterface()
	return out
}

// elicited reads the answer to a question of an MCP server.
func elicited(result json.RawMessage) (heddlev1.Decision, *structpb.Value) {
	const unusable = heddlev1.Decision_DECISION_UNUSABLE
	var body struct {
		Content json.RawMessage `json:"content"`
		Meta    struct {
			Persist string `json:"persist"`
		} `json:"_meta"`
	}
	if len(result) > maxElicited || json.Unmarshal(result, &body) != nil {
		return unusable, nil
	}
	answer := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	if len(body.Content) > 0 {
		v := &structpb.Value{}
		if v.UnmarshalJSON(body.Content) != nil {
			return unusable, nil
		}
		answer.Fields["content"] = v
	}
	action := ""
	if json.Unmarshal(member(result, "action"), &action) != nil {
		return unusable, nil
	}
	switch action {
	case "accept":
		if body.Meta.Persist == "session" || body.Meta.Persist == "always" {
			return heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION, structpb.NewStructValue(answer)
		}
		return heddlev1.Decision_DECISION_ACCEPT, structpb.NewStructValue(answer)
	case "decline":
		return heddlev1.Decision_DECISION_DECLINE, nil
	case "cancel":
		return heddlev1.Decision_DECISION_CANCEL, nil
	}
	return unusable, nil
}
