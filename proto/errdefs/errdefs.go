// Package errdefs holds the typed errors that cross process boundaries.
//
// Packages return *Error values (or wrap them with %w); an interceptor turns
// them into gRPC statuses with an ErrorInfo detail on the way out and back into
// *Error on the way in, so that both sides branch on a Reason and never on text.
package errdefs

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Domain is the ErrorInfo domain of heddle's reasons.
const Domain = "heddle.dev"

// Reason is a stable, machine-readable cause.
type Reason string

// Reasons; code says under which gRPC code each one travels.
const (
	ThreadNotFound     Reason = "THREAD_NOT_FOUND"
	ThreadArchived     Reason = "THREAD_ARCHIVED"
	ThreadNotArchived  Reason = "THREAD_NOT_ARCHIVED"
	ThreadHasForks     Reason = "THREAD_HAS_FORKS"
	TurnNotFound       Reason = "TURN_NOT_FOUND"
	NoActiveTurn       Reason = "NO_ACTIVE_TURN"
	TurnMismatch       Reason = "TURN_MISMATCH"
	TurnNotSteerable   Reason = "TURN_NOT_STEERABLE"
	ItemNotFound       Reason = "ITEM_NOT_FOUND"
	ApprovalNotFound   Reason = "APPROVAL_NOT_FOUND"
	ArtifactNotFound   Reason = "ARTIFACT_NOT_FOUND"
	InvalidArgument    Reason = "INVALID_ARGUMENT"
	InvalidCursor      Reason = "INVALID_CURSOR"
	InvalidConfig      Reason = "INVALID_CONFIG"
	SessionUnknown     Reason = "SESSION_UNKNOWN"
	NoExecutor         Reason = "NO_EXECUTOR"
	ExecutorLost       Reason = "EXECUTOR_LOST"
	NotEnforceable     Reason = "SANDBOX_NOT_ENFORCEABLE"
	StaleEpoch         Reason = "STALE_EPOCH"
	StoreUnavailable   Reason = "STORE_UNAVAILABLE"
	UnknownOutcome     Reason = "UNKNOWN_OUTCOME"
	Overloaded         Reason = "OVERLOADED"
	VersionUnsupported Reason = "VERSION_UNSUPPORTED"
	Busy               Reason = "BUSY"
	PermissionDenied   Reason = "PERMISSION_DENIED"
	NotSupported       Reason = "NOT_SUPPORTED"
	Internal           Reason = "INTERNAL"
)

func (r Reason) code() codes.Code {
	switch r {
	case ThreadNotFound, TurnNotFound, ItemNotFound, ApprovalNotFound, ArtifactNotFound:
		return codes.NotFound
	case PermissionDenied:
		return codes.PermissionDenied
	case UnknownOutcome:
		return codes.Unknown
	case Overloaded:
		return codes.ResourceExhausted
	case InvalidArgument, InvalidCursor:
		return codes.InvalidArgument
	case Internal:
		return codes.Internal
	case NoExecutor, StoreUnavailable:
		return codes.Unavailable
	case ExecutorLost, StaleEpoch:
		return codes.Aborted
	case ThreadArchived, ThreadNotArchived, ThreadHasForks, NoActiveTurn, TurnMismatch, TurnNotSteerable, InvalidConfig, SessionUnknown, NotEnforceable, VersionUnsupported, Busy:
		return codes.FailedPrecondition
	case NotSupported:
		return codes.Unimplemented
	}
	return codes.Unknown
}

// Error is a typed failure. Message is for people; Meta carries the facts that
// a caller needs to build its own text (ids, expected and found values).
type Error struct {
	Reason  Reason
	Message string
	Meta    map[string]string
	cause   error
}

// New returns an Error. With %w among its verbs the wrapped error is its cause.
func New(reason Reason, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Reason: reason, Message: err.Error(), cause: errors.Unwrap(err)}
}

// With returns a copy with one more fact in Meta.
func (e *Error) With(key, value string) *Error {
	c := *e
	c.Meta = maps.Clone(e.Meta)
	if c.Meta == nil {
		c.Meta = map[string]string{}
	}
	c.Meta[key] = value
	return &c
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, if any.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus makes a *Error returned by a handler travel with its reason.
func (e *Error) GRPCStatus() *status.Status {
	st := status.New(e.Reason.code(), e.Message)
	with, err := st.WithDetails(&errdetails.ErrorInfo{Reason: string(e.Reason), Domain: Domain, Metadata: e.Meta})
	if err != nil {
		return st
	}
	return with
}

// From finds the typed error in err: a wrapped *Error, or the ErrorInfo detail
// of a gRPC status. It returns nil for every other error.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	st, ok := status.FromError(err)
	if !ok || st.Code() == codes.OK {
		return nil
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return &Error{Reason: Reason(info.GetReason()), Message: st.Message(), Meta: info.GetMetadata(), cause: err}
		}
	}
	return nil
}

// Is reports whether err carries the reason.
func Is(err error, reason Reason) bool {
	e := From(err)
	return e != nil && e.Reason == reason
}

// ToStatus gives a handler's error the form in which it crosses the wire. A
// context error keeps its meaning; anything untyped becomes Internal.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.GRPCStatus().Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return status.Error(codes.Canceled, err.Error())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return New(Internal, "%w", err).GRPCStatus().Err()
}
