package appserver

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// localEnvironment is the id of the executors without a label of their own.
const localEnvironment = protocol.LocalEnvironment

// environmentLabel is the label that gives executors another environment's id.
const environmentLabel = "environment"

// environmentTable returns what is done for a method about environments: the
// places where commands run, which are the executors.
func environmentTable(method string) (entry, bool) {
	switch method {
	case "environment/add":
		return handle((*Server).environmentAdd), true
	case "environment/info":
		return handle((*Server).environmentInfo), true
	case "environment/status":
		return handle((*Server).environmentStatus), true
	}
	return entry{}, false
}

func notSupported(what string) error {
	e := invalid(what + " is not supported by this server")
	e.Data = list{"reason": "NOT_SUPPORTED"}
	return e
}

// environmentAdd refuses what is wrong, and then says what is done in its place:
// executors come by themselves.
func (s *Server) environmentAdd(_ context.Context, _ *call, p *protocol.EnvironmentAddParams) (any, error) {
	switch p.ID {
	case "":
		return nil, invalid("environment id cannot be empty")
	case localEnvironment:
		return nil, invalid("environment id `local` is that of this server's own executors")
	}
	if (p.Token != nil || p.RequestID != nil) && !private(p.URL) {
		return nil, invalid("a token goes to a wss address or to this machine only")
	}
	return nil, notSupported("environment/add of an exec-server (executors register themselves: heddle executor --label " + environmentLabel + "=ID)")
}

// private says that what is sent to an address cannot be read on the way.
func private(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "wss" || u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// environment says how the executors of an environment are. known is false when
// there are none of the name.
func (s *Server) environment(ctx context.Context, id string) (status, why string, known bool, err error) {
	resp, err := catalog(ctx, s, func(ctx context.Context, c heddlev1.CatalogServiceClient) (*heddlev1.GetStatusResponse, error) {
		return c.GetStatus(ctx, &heddlev1.GetStatusRequest{})
	})
	if err != nil {
		return "", "", false, err
	}
	lost := false
	for _, x := range resp.GetExecutors() {
		name := x.GetLabels()[environmentLabel]
		if name == "" {
			name = localEnvironment
		}
		if name != id {
			continue
		}
		if x.GetConnected() {
			return "ready", "", true, nil
		}
		lost = true
	}
	switch {
	case lost:
		return "disconnected", "its executors are not connected", true, nil
	case id == localEnvironment:
		return "pending", "", true, nil
	}
	return "unknown", fmt.Sprintf("unknown environment id `%s`", protocol.ClipTo(id, 200)), false, nil
}

func (s *Server) environmentStatus(ctx context.Context, _ *call, p *protocol.EnvironmentParams) (any, error) {
	status, why, _, err := s.environment(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	out := list{"status": status}
	if why != "" {
		out["error"] = why
	}
	return out, nil
}

// environmentInfo asks an executor for its shell.
func (s *Server) environmentInfo(ctx context.Context, r *call, p *protocol.EnvironmentParams) (any, error) {
	_, why, known, err := s.environment(ctx, p.ID)
	switch {
	case err != nil:
		return nil, err
	case !known:
		return nil, invalid(why)
	case p.ID != localEnvironment:
		return nil, notSupported("environment/info of an environment other than local")
	}
	x := newExecution(commandFamily, "")
	ctx, x.cancel = context.WithCancel(ctx)
	defer x.cancel()
	defer close(x.done)
	out, err := s.runExec(ctx, r.client, x, &heddlev1.ExecStart{
		ConnectionId: r.client.id, Argv: []string{"sh", "-c", "command -v bash || command -v sh"}, Cwd: "/", OutputCap: 4096, TimeoutMs: defaultTimeoutMs,
		Policy: &heddlev1.SandboxPolicy{Level: protocol.LevelOf(protocol.ModeReadOnly), Network: heddlev1.NetworkMode_NETWORK_MODE_OFF},
	}, nil)
	if err != nil {
		return nil, err
	}
	if e := out.exited.GetError(); e != nil {
		return nil, execFailure(e)
	}
	shell := strings.TrimSpace(string(out.stdout))
	if shell == "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "the environment has no shell: neither bash nor sh was found"}
	}
	cwd := (&url.URL{Scheme: "file", Path: s.session.Cwd()}).String()
	return list{"shell": list{"name": path.Base(shell), "path": shell}, "cwd": cwd}, nil
}

// placeOf is the folder that a selection of environments asks for; empty when
// there is no selection. A thread has one environment here.
func placeOf(method string, selected *[]protocol.TurnEnvironment) (string, error) {
	if selected == nil {
		return "", nil
	}
	seen := map[string]bool{}
	for _, e := range *selected {
		if seen[e.ID] {
			return "", invalid(fmt.Sprintf("duplicate turn environment id `%s`", e.ID))
		}
		seen[e.ID] = true
		if e.ID != localEnvironment {
			return "", invalid(fmt.Sprintf("unknown turn environment id `%s`", protocol.ClipTo(e.ID, 200)))
		}
		if !path.IsAbs(e.Cwd) || strings.Contains(e.Cwd, "\x00") {
			return "", invalid(fmt.Sprintf("invalid cwd for environment `%s`: `%s` is not an absolute path", e.ID, protocol.ClipTo(e.Cwd, 200)))
		}
		for _, root := range e.Roots {
			if path.Clean(root) != path.Clean(e.Cwd) {
				return "", notSupported(method + ".environments with roots other than its cwd")
			}
		}
	}
	if len(*selected) == 0 {
		if method != "thread/start" { // what a thread can do is said when it starts
			return "", notSupported(method + " without an environment")
		}
		return "", nil
	}
	return (*selected)[0].Cwd, nil
}
