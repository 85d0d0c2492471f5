package appserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// defaultOutputCap bounds each stream of a command without a cap of its own.
	defaultOutputCap = 1 << 20
	// bufferedCap bounds each stream of a command whose output is kept for its
	// answer, whatever the client asked for.
	bufferedCap = 64 << 20
	// defaultTimeoutMs ends a process whose request says nothing about time.
	defaultTimeoutMs = 10_000
)

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
	id := "\x00" + uuid.NewString()
	if p.ProcessID != nil {
		id = *p.ProcessID
	}
	x := newExecution(commandFamily, id)
	x.tty, x.stdin, x.stream = p.TTY, p.StreamStdin || p.TTY, p.StreamOutput || p.TTY
	ctx, x.cancel = context.WithCancel(ctx)
	if err := r.client.addExec(x); err != nil {
		x.cancel()
		return nil, err
	}
	r.later = true
	// The default cap counts bytes of output, which are more when they are escaped.
	r.whole = p.DisableOutputCap || p.OutputBytesCap == nil || *p.OutputBytesCap > maxLine
	go func() {
		out, err := s.runExec(ctx, r.client, x, start, nil)
		r.client.removeExec(x)
		x.cancel()
		if err != nil {
			r.finish(nil, err)
			return
		}
		r.finish(execResult(p, x, out))
	}()
	return nil, nil
}

func (s *Server) execStart(c *client, p *protocol.ExecParams) (*heddlev1.ExecStart, error) {
	start := &heddlev1.ExecStart{
		ConnectionId: c.id, Argv: p.Command, Cwd: s.absolute(text(p.Cwd)), Policy: protocol.ToSandbox(p.SandboxPolicy),
		Tty: p.TTY, Stdin: p.StreamStdin || p.TTY, OutputCap: defaultOutputCap,
	}
	if p.PermissionProfile != nil {
		m, err := modeOfProfile(*p.PermissionProfile)
		if err != nil {
			return nil, err
		}
		start.Policy = &heddlev1.SandboxPolicy{Level: protocol.LevelOf(m)}
	}
	start.Env, start.UnsetEnv = envOf(p.Env)
	if p.Size != nil {
		start.Rows, start.Cols = int32(p.Size.Rows), int32(p.Size.Cols)
	}
	switch {
	case p.TimeoutMs != nil:
		start.TimeoutMs = max(*p.TimeoutMs, 1)
	case !p.DisableTimeout:
		start.TimeoutMs = defaultTimeoutMs
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

func execResult(p *protocol.ExecParams, x *execution, out *execOutcome) (any, error) {
	switch {
	case out.exited.GetError().GetCode() == "cancelled" && x.wasTerminated():
		// Its end came before its start, which is an end all the same.
	case out.exited.GetError() != nil:
		return nil, execFailure(out.exited.GetError())
	case out.capped() && p.DisableOutputCap && !x.stream:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: fmt.Sprintf("command/exec output exceeds %d bytes; use streamStdoutStderr", bufferedCap)}
	case out.unstarted && p.SandboxPolicy != nil && p.SandboxPolicy.Type == "dangerFullAccess":
		// Without a sandbox that is an error of the request and not a result.
		return nil, execFailure(&heddlev1.ActionError{Code: "spawn_failed", Message: out.whyUnstarted()})
	}
	return list{"exitCode": x.exitCode(out.exited), "stdout": validText(out.stdout), "stderr": validText(out.stderr)}, nil
}

// envOf splits changes of the environment into what is set and what is removed.
func envOf(changes map[string]*string) (set map[string]string, unset []string) {
	set = map[string]string{}
	for k, v := range changes {
		if v == nil {
			unset = append(unset, k)
		} else {
			set[k] = *v
		}
	}
	return set, unset
}

func validText(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// execFailure is the error of a command that could not be started.
func execFailure(e *heddlev1.ActionError) *jsonrpc.Error {
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

func (s *Server) execWrite(_ context.Context, r *call, p *protocol.ExecWriteParams) (any, error) {
	return list{}, r.client.write(commandFamily, p.ProcessID, p.DeltaBase64, p.CloseStdin)
}

func (s *Server) execResize(_ context.Context, r *call, p *protocol.ExecResizeParams) (any, error) {
	return list{}, r.client.resize(commandFamily, p.ProcessID, p.Size)
}

func (s *Server) execTerminate(_ context.Context, r *call, p *protocol.ExecTerminateParams) (any, error) {
	return list{}, r.client.terminate(commandFamily, p.ProcessID)
}
