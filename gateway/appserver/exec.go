package appserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

const (
	// defaultOutputCap bounds each stream of a command without a cap of its own.
	defaultOutputCap = 1 << 20
	// bufferedCap bounds each stream of a command whose output is kept for its
	// answer, whatever the client asked for.
	bufferedCap = 64 << 20
	// maxExecs bounds the commands of one connection that run at a time.
	maxExecs = 256
	// execChunk bounds the bytes of one delta.
	execChunk = 256 << 10
	// stdinQueue bounds the writes that wait for a command to read.
	stdinQueue     = 64
	exitTimeout    = 124
	exitTerminated = 137
	exitNotFound   = 127
)

// execution is one command/exec under way.
type execution struct {
	key    string
	params *protocol.ExecParams
	cancel context.CancelFunc
	// requests go to the command's stream in order.
	requests chan *heddlev1.ExecRequest
	done     chan struct{}
	// capped belongs to the goroutine that receives.
	capped bool

	mu         sync.Mutex
	terminated bool
}

func params(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
}

// checkExec refuses sets of parameters that contradict each other.
func checkExec(p *protocol.ExecParams) error {
	switch {
	case len(p.Command) == 0:
		return invalid("command must not be empty")
	case p.Size != nil && !p.TTY:
		return params("command/exec size requires tty: true")
	case p.Size != nil && (p.Size.Rows == 0 || p.Size.Cols == 0):
		return params("command/exec size rows and cols must be greater than 0")
	case p.TimeoutMs != nil && p.DisableTimeout:
		return params("command/exec cannot set both timeoutMs and disableTimeout")
	case p.TimeoutMs != nil && *p.TimeoutMs < 0:
		return params(fmt.Sprintf("command/exec timeoutMs must be non-negative, got %d", *p.TimeoutMs))
	case p.OutputBytesCap != nil && p.DisableOutputCap:
		return params("command/exec cannot set both outputBytesCap and disableOutputCap")
	case p.ProcessID == nil && (p.TTY || p.StreamStdin || p.StreamOutput):
		return invalid("command/exec tty or streaming requires a client-supplied processId")
	}
	return nil
}

func (s *Server) commandExec(ctx context.Context, r *call, p *protocol.ExecParams) (any, error) {
	if err := checkExec(p); err != nil {
		return nil, err
	}
	start, err := s.execStart(r.client, p)
	if err != nil {
		return nil, err
	}
	x := &execution{params: p, requests: make(chan *heddlev1.ExecRequest, stdinQueue), done: make(chan struct{})}
	x.key = "\x00" + uuid.NewString()
	if p.ProcessID != nil {
		x.key = *p.ProcessID
	}
	ctx, x.cancel = context.WithCancel(ctx)
	if err := r.client.addExec(x); err != nil {
		x.cancel()
		return nil, err
	}
	r.later = true
	go func() {
		result, err := s.runExec(ctx, r.client, x, start)
		r.client.removeExec(x)
		x.cancel()
		r.finish(result, err)
	}()
	return nil, nil
}

func (s *Server) execStart(c *client, p *protocol.ExecParams) (*heddlev1.ExecStart, error) {
	start := &heddlev1.ExecStart{
		ConnectionId: c.id, Argv: p.Command, Cwd: text(p.Cwd), Env: map[string]string{}, Policy: protocol.ToSandbox(p.SandboxPolicy),
		Tty: p.TTY, Stdin: p.StreamStdin || p.TTY, OutputCap: defaultOutputCap,
	}
	if p.PermissionProfile != nil {
		m, err := modeOfProfile(*p.PermissionProfile)
		if err != nil {
			return nil, err
		}
		start.Policy = &heddlev1.SandboxPolicy{Level: protocol.LevelOf(m)}
	}
	for k, v := range p.Env {
		if v == nil {
			start.UnsetEnv = append(start.UnsetEnv, k)
		} else {
			start.Env[k] = *v
		}
	}
	if p.Size != nil {
		start.Rows, start.Cols = int32(p.Size.Rows), int32(p.Size.Cols)
	}
	if p.TimeoutMs != nil {
		start.TimeoutMs = max(*p.TimeoutMs, 1)
	}
	switch {
	case p.DisableOutputCap:
		start.OutputCap = 0
	case p.OutputBytesCap != nil:
		start.OutputCap = int64(min(*p.OutputBytesCap, 1<<40))
	}
	if !p.StreamOutput && !p.TTY && (start.OutputCap == 0 || start.OutputCap > bufferedCap) {
		start.OutputCap = bufferedCap
	}
	return start, nil
}

func (c *client) addExec(x *execution) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.execs[x.key]; taken {
		return invalid(fmt.Sprintf("duplicate active command/exec process id: %q", x.key))
	}
	if len(c.execs) >= maxExecs {
		return &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "Server overloaded; retry later."}
	}
	c.execs[x.key] = x
	return nil
}

func (c *client) removeExec(x *execution) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.execs, x.key)
	close(x.done)
}

// endExecs ends the connection's commands.
func (c *client) endExecs() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.execs {
		x.cancel()
	}
}

func (c *client) exec(id string) (*execution, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.execs[id]; x != nil {
		return x, nil
	}
	return nil, invalid(fmt.Sprintf("no active command/exec for process id %q", id))
}

// runExec runs the command to its end.
func (s *Server) runExec(ctx context.Context, c *client, x *execution, start *heddlev1.ExecStart) (any, error) {
	var stream grpc.BidiStreamingClient[heddlev1.ExecRequest, heddlev1.ExecResponse]
	err := s.session.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = heddlev1.NewWorkspaceServiceClient(cc).Exec(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&heddlev1.ExecRequest{Message: &heddlev1.ExecRequest_Start{Start: start}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	go func() {
		for {
			select {
			case m := <-x.requests:
				if stream.Send(m) != nil {
					return
				}
			case <-x.done:
				return
			}
		}
	}()
	return x.receive(ctx, c, stream)
}

// receive collects the output until the command has ended.
func (x *execution) receive(ctx context.Context, c *client, stream grpc.BidiStreamingClient[heddlev1.ExecRequest, heddlev1.ExecResponse]) (any, error) {
	var stdout, stderr []byte
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		switch m := m.GetMessage().(type) {
		case *heddlev1.ExecResponse_Output:
			o := m.Output
			x.capped = x.capped || o.GetCapReached()
			switch {
			case x.params.StreamOutput || x.params.TTY:
				if err := x.delta(ctx, c, o); err != nil {
					return nil, err
				}
			case o.GetStream() == 2:
				stderr = append(stderr, o.GetData()...)
			default:
				stdout = append(stdout, o.GetData()...)
			}
		case *heddlev1.ExecResponse_Exited:
			return x.result(m.Exited, stdout, stderr)
		}
	}
}

func (x *execution) delta(ctx context.Context, c *client, o *heddlev1.ExecOutput) error {
	name := "stdout"
	if o.GetStream() == 2 {
		name = "stderr"
	}
	data := o.GetData()
	for {
		part := data[:min(len(data), execChunk)]
		data = data[len(part):]
		n := note{method: "command/exec/outputDelta", params: list{
			"processId": x.key, "stream": name, "deltaBase64": base64.StdEncoding.EncodeToString(part), "capReached": o.GetCapReached() && len(data) == 0,
		}}
		if c.wants(n) {
			msg, err := n.encode(time.Now().UnixMilli(), false, 0)
			if err != nil {
				return err
			}
			if err := c.conn.Notify(ctx, msg); err != nil {
				return err
			}
		}
		if len(data) == 0 {
			return nil
		}
	}
}

func (x *execution) result(e *heddlev1.ExecExited, stdout, stderr []byte) (any, error) {
	if e.GetError() != nil {
		return nil, execFailure(e.GetError())
	}
	code := e.GetExitCode()
	x.mu.Lock()
	terminated := x.terminated
	x.mu.Unlock()
	switch {
	case e.GetVerdict().GetTimedOut():
		code = exitTimeout
	case terminated && x.params.TTY:
		code = 1
	case terminated:
		code = exitTerminated
	case x.capped && x.params.DisableOutputCap && !x.params.StreamOutput && !x.params.TTY:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: fmt.Sprintf("command/exec output exceeds %d bytes; use streamStdoutStderr", bufferedCap)}
	case x.missingProgram(code, stderr):
		return nil, execFailure(&heddlev1.ActionError{Code: "spawn_failed", Message: x.params.Command[0] + ": no such file or directory"})
	}
	return list{"exitCode": code, "stdout": validText(stdout), "stderr": validText(stderr)}, nil
}

func validText(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// execFailure is the error of a command that could not be started.
func execFailure(e *heddlev1.ActionError) error {
	message := e.GetMessage()
	if e.GetFix() != "" {
		message += " (" + e.GetFix() + ")"
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: osText(message), Data: list{"code": e.GetCode()}}
}

// osText gives the commonest failure of the operating system the words that
// clients match on.
func osText(message string) string {
	return strings.Replace(message, "no such file or directory", "No such file or directory (os error 2)", 1)
}

// missingProgram reports whether the program itself was not found. Without a
// sandbox that is an error of the request and not a result.
func (x *execution) missingProgram(code int32, stderr []byte) bool {
	p := x.params
	if p.SandboxPolicy == nil || p.SandboxPolicy.Type != "dangerFullAccess" || code != exitNotFound {
		return false
	}
	return string(stderr) == "heddle: "+p.Command[0]+": command not found\n"
}

// push queues a request to the command. A command that does not read its input
// lets only so much wait.
func (x *execution) push(m *heddlev1.ExecRequest) error {
	select {
	case x.requests <- m:
		return nil
	default:
		return &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "Server overloaded; retry later."}
	}
}

func (s *Server) execWrite(_ context.Context, r *call, p *protocol.ExecWriteParams) (any, error) {
	x, err := r.client.exec(p.ProcessID)
	if err != nil {
		return nil, err
	}
	if p.DeltaBase64 == nil && !p.CloseStdin {
		return nil, params("command/exec/write requires deltaBase64 or closeStdin")
	}
	if !x.params.StreamStdin && !x.params.TTY {
		return nil, invalid("stdin streaming is not enabled for this command/exec")
	}
	data, err := base64.StdEncoding.DecodeString(text(p.DeltaBase64))
	if err != nil {
		return nil, params("invalid deltaBase64: " + err.Error())
	}
	return list{}, x.push(&heddlev1.ExecRequest{Message: &heddlev1.ExecRequest_Stdin{Stdin: &heddlev1.ExecStdin{Data: data, Close: p.CloseStdin}}})
}

func (s *Server) execResize(_ context.Context, r *call, p *protocol.ExecResizeParams) (any, error) {
	if p.Size.Rows == 0 || p.Size.Cols == 0 {
		return nil, params("command/exec size rows and cols must be greater than 0")
	}
	x, err := r.client.exec(p.ProcessID)
	if err != nil {
		return nil, err
	}
	if !x.params.TTY {
		return nil, invalid("failed to resize PTY: process is not attached to a PTY")
	}
	return list{}, x.push(&heddlev1.ExecRequest{Message: &heddlev1.ExecRequest_Resize{Resize: &heddlev1.ExecResize{Rows: int32(p.Size.Rows), Cols: int32(p.Size.Cols)}}})
}

func (s *Server) execTerminate(_ context.Context, r *call, p *protocol.ExecTerminateParams) (any, error) {
	x, err := r.client.exec(p.ProcessID)
	if err != nil {
		return nil, err
	}
	if err := x.push(&heddlev1.ExecRequest{Message: &heddlev1.ExecRequest_Terminate{Terminate: &heddlev1.ExecTerminate{}}}); err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.terminated = true
	x.mu.Unlock()
	return list{}, nil
}
