package runner

import (
	"context"
	"errors"
	"fmt"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
)

// Codes of heddlev1.ActionError that this package gives.
const (
	codeBadCwd         = "bad_cwd"
	codeCancelled      = "cancelled"
	codeDiskFull       = "disk_full"
	codeExecutorLost   = "executor_lost"
	codeIO             = "io"
	codeNotEnforceable = "not_enforceable"
	codeRefused        = "refused"
	codeSandboxLost    = "sandbox_lost"
	codeSpawnFailed    = "spawn_failed"
	codeWorkspaceMoved = "workspace_moved"
)

// endedError is why actions were ended from outside. It is the cause of their
// context.
type endedError struct{ code, message string }

func (e *endedError) Error() string { return e.message }

func endedf(code, format string, args ...any) *endedError {
	return &endedError{code: code, message: fmt.Sprintf(format, args...)}
}

// failure makes the typed error of an action. What ended the action from
// outside comes first; otherwise is the code of an error nobody knows.
func failure(ctx context.Context, err error, otherwise string) *heddlev1.ActionError {
	if ended, ok := errors.AsType[*endedError](context.Cause(ctx)); ok {
		return &heddlev1.ActionError{Code: ended.code, Message: ended.message}
	}
	if ended, ok := errors.AsType[*endedError](err); ok {
		return &heddlev1.ActionError{Code: ended.code, Message: ended.message}
	}
	e := &heddlev1.ActionError{Code: otherwise, Message: valid(err.Error())}
	if un, ok := errors.AsType[*sandbox.UnenforceableError](err); ok {
		e.Code, e.Message, e.Fix = codeNotEnforceable, valid(un.Reason()), valid(un.Fix)
		return e
	}
	if moved, ok := errors.AsType[*sandbox.MovedError](err); ok {
		e.Code, e.Message, e.Fix = codeWorkspaceMoved, valid(moved.Reason()), valid(moved.Fix())
		return e
	}
	switch {
	case errors.Is(err, sandbox.ErrDiskFull):
		e.Code, e.Fix = codeDiskFull, "free space on the executor's disk"
	case errors.Is(err, sandbox.ErrBadDir):
		e.Code = codeBadCwd
	case errors.Is(err, sandbox.ErrLost), errors.Is(err, sandbox.ErrClosed):
		e.Code = codeSandboxLost
	case errors.Is(err, errLeaseEnded), errors.Is(err, context.Canceled):
		e.Code = codeCancelled
	}
	return e
}

func refusedf(format string, args ...any) error { return endedf(codeRefused, format, args...) }
