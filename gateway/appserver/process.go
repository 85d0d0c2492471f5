package appserver

import (
	"context"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// processTable returns what is done for a method about processes that outlive
// their request.
func processTable(method string) (entry, bool) {
	switch method {
	case "process/spawn":
		return inline((*Server).processSpawn), true
	case "process/writeStdin":
		return inline((*Server).processWrite), true
	case "process/resizePty":
		return inline((*Server).processResize), true
	case "process/kill":
		return inline((*Server).processKill), true
	}
	return entry{}, false
}

// checkSpawn refuses parameters that contradict each other.
func checkSpawn(p *protocol.SpawnParams) error {
	switch {
	case p.Handle == "":
		return invalid("processHandle must not be empty")
	case len(p.Command) == 0:
		return invalid("command must not be empty")
	case p.Size != nil && !p.TTY:
		return params("process/spawn size requires tty: true")
	case p.Size != nil && (p.Size.Rows == 0 || p.Size.Cols == 0):
		return params("process size rows and cols must be greater than 0")
	case p.TimeoutMs.Value < 0:
		return params("process/spawn timeoutMs must be non-negative, got " + p.TimeoutMs.String())
	}
	return nil
}

// processSpawn starts a process with the client's authority, outside of a
// sandbox, and answers when it runs. Its end is told by process/exited; it ends
// with its connection.
func (s *Server) processSpawn(ctx context.Context, r *call, p *protocol.SpawnParams) (any, error) {
	if err := checkSpawn(p); err != nil {
		return nil, err
	}
	x := newExecution(processFamily, p.Handle)
	x.tty, x.stdin, x.stream = p.TTY, p.StreamStdin || p.TTY, p.StreamOutput || p.TTY
	ctx, x.cancel = context.WithCancel(ctx)
	if err := r.client.addExec(x); err != nil {
		x.cancel()
		return nil, err
	}
	r.later = true
	// The notifications wait for the answer to leave.
	r.then(func() {})
	go s.runSpawned(ctx, r, x, spawnStart(r.client, p, x))
	return nil, nil
}

func spawnStart(c *client, p *protocol.SpawnParams, x *execution) *heddlev1.ExecStart {
	start := &heddlev1.ExecStart{
		ConnectionId: c.id, Argv: p.Command, Cwd: string(p.Cwd), Tty: p.TTY, Stdin: x.stdin, OutputCap: defaultOutputCap,
		Policy: &heddlev1.SandboxPolicy{Level: protocol.LevelOf(protocol.ModeFullAccess)},
	}
	start.Env, start.UnsetEnv = envOf(p.Env)
	if p.Size != nil {
		start.Rows, start.Cols = int32(p.Size.Rows), int32(p.Size.Cols)
	}
	switch {
	case p.TimeoutMs.Set:
		start.TimeoutMs = max(p.TimeoutMs.Value, 1)
	case !p.TimeoutMs.Null:
		start.TimeoutMs = defaultTimeoutMs
	}
	switch {
	case p.OutputBytesCap.Null:
		start.OutputCap = 0
	case p.OutputBytesCap.Set:
		start.OutputCap = min(p.OutputBytesCap.Value, 1<<40)
	}
	if !x.stream && (start.OutputCap == 0 || start.OutputCap > bufferedCap) {
		start.OutputCap = bufferedCap
	}
	return start
}

// runSpawned follows a process from its start to the notification of its end.
func (s *Server) runSpawned(ctx context.Context, r *call, x *execution, start *heddlev1.ExecStart) {
	answered := false
	out, err := s.runExec(ctx, r.client, x, start, func() {
		answered = true
		r.finish(list{}, nil)
	})
	r.client.removeExec(x)
	x.cancel()
	switch {
	case answered && err != nil:
		// The executor or the control plane is gone, and the process with it.
		s.log.Warn("a process was lost", "handle", x.key.id, "error", err)
		r.client.tell("process/exited", exitedNote(x, &execOutcome{exited: &heddlev1.ExecExited{ExitCode: -1}}))
	case answered:
		r.client.tellNote(note{method: "process/exited", params: exitedNote(x, out), whole: start.GetOutputCap() > maxLine})
	case err != nil:
		r.finish(nil, err)
	default:
		r.finish(nil, spawnFailure(out))
	}
}

func exitedNote(x *execution, out *execOutcome) list {
	return list{
		"processHandle": x.key.id, "exitCode": x.exitCode(out.exited), "outputDrainTimedOut": false,
		"stdout": validText(out.stdout), "stdoutCapReached": out.stdoutCapped, "stderr": validText(out.stderr), "stderrCapReached": out.stderrCapped,
	}
}

// spawnFailure is the error of a process that did not come to run.
func spawnFailure(out *execOutcome) error {
	e := out.exited.GetError()
	if e == nil {
		e = &heddlev1.ActionError{Code: "spawn_failed", Message: out.whyUnstarted()}
	}
	failed := execFailure(e)
	failed.Message = "failed to spawn process: " + failed.Message
	return failed
}

func (s *Server) processWrite(_ context.Context, r *call, p *protocol.ProcessWriteParams) (any, error) {
	return list{}, r.client.write(processFamily, p.Handle, p.DeltaBase64, p.CloseStdin)
}

func (s *Server) processResize(_ context.Context, r *call, p *protocol.ProcessResizeParams) (any, error) {
	return list{}, r.client.resize(processFamily, p.Handle, p.Size)
}

func (s *Server) processKill(_ context.Context, r *call, p *protocol.ProcessKillParams) (any, error) {
	return list{}, r.client.terminate(processFamily, p.Handle)
}
