package agent

import (
	"fmt"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// tell is the text for the model: what was printed since it was told last. A
// process whose end was told is forgotten.
func (p *process) tell(wall time.Duration, maxTokens int) string {
	ended := p.ended()
	p.mu.Lock()
	from, to, exit, failure := p.told, p.total, p.exit, p.failure
	p.told = to
	p.mu.Unlock()
	if ended {
		p.lt.dropProcess(p)
	}
	r := tool.ExecResult{ChunkID: tool.NewChunkID(), Wall: wall, Exit: exit, MaxTokens: maxTokens, Output: p.excerpt(from, to, maxTokens), Total: to - from}
	if ended && failure != nil {
		return failureText(p.shown(), failure, r.Output)
	}
	if !ended {
		r.SessionID = p.id
	} else {
		r.Notes = facts(p.item.GetCommandExecution().GetVerdict())
	}
	return tool.FormatExec(r)
}

func (p *process) shown() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.item.GetCommandExecution().GetCommand()
}

// excerpt reads a range of the output, its middle left out where the model
// would not be shown it anyway.
func (p *process) excerpt(from, to int64, maxTokens int) []byte {
	if maxTokens <= 0 {
		maxTokens = tool.DefaultMaxTokens
	}
	limit := int64(min(maxTokens, 1<<18))*4 + 4096
	read := func(from, n int64) []byte {
		data, _, err := p.lt.agent.cfg.Streams.ReadAt(p.lt.id, p.item.GetId(), from, n)
		if err != nil {
			p.lt.agent.cfg.Logger.Error("read output", "thread", p.lt.id, "item", p.item.GetId(), "error", err)
		}
		return data
	}
	if to <= from {
		return nil
	}
	if to-from <= 2*limit {
		return read(from, to-from)
	}
	return append(read(from, limit), read(to-limit, limit)...)
}

// aborted is the text for the model when an interrupt ended the call.
func (p *process) aborted(after time.Duration) string {
	p.mu.Lock()
	from, to := p.told, p.total
	p.told = to
	p.mu.Unlock()
	p.lt.dropProcess(p)
	s := abortedText(after)
	if out := p.excerpt(from, to, 0); len(out) > 0 {
		printed, _ := tool.Truncate(out, tool.DefaultMaxTokens)
		s += "\nOutput:\n" + printed
	}
	return s
}

func failureText(shown string, f *heddlev1.ActionError, output []byte) string {
	s := fmt.Sprintf("exec_command failed for `%s`: %s", shown, f.GetMessage())
	if f.GetFix() != "" {
		s += " (" + f.GetFix() + ")"
	}
	if len(output) > 0 {
		printed, _ := tool.Truncate(output, tool.DefaultMaxTokens)
		s += "\nOutput:\n" + printed
	}
	return s
}

// sandboxLost is the error of a command whose sandbox ended before it did.
func sandboxLost() *heddlev1.ActionError {
	return &heddlev1.ActionError{Code: "sandbox_lost", Message: "sandbox lost: it ended while the command ran, and the command with it; how far it came is not known",
		Fix: "the next command gets a new sandbox"}
}

// actionError is a dispatcher's error as items show it.
func actionError(err error) *heddlev1.ActionError {
	e := &heddlev1.ActionError{Code: "io", Message: err.Error()}
	switch {
	case errdefs.Is(err, errdefs.ExecutorLost):
		e.Code = "executor_lost"
	case errdefs.Is(err, errdefs.UnknownOutcome):
		e.Code = "outcome_unknown"
	case errdefs.Is(err, errdefs.NoExecutor):
		e.Code = "no_executor"
	case errdefs.Is(err, errdefs.NotEnforceable):
		e.Code = "not_enforceable"
	case errdefs.Is(err, errdefs.Overloaded):
		e.Code = "overloaded"
	}
	return e
}
