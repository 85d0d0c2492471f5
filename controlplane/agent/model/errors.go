package model

import (
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Retry says what a caller may do about an Error.
type Retry int

const (
	// RetryNone: asking again cannot help or is not allowed.
	RetryNone Retry = iota
	// RetryStream: the stream broke off; asking again may help.
	RetryStream
	// RetryConnect: the service could not be reached; the client has already used
	// up its request retries.
	RetryConnect
)

// Kinds of Error, in the spelling that clients of the v2 protocol know.
const (
	KindInternalServerError = "internalServerError"
	KindConnectionFailed    = "httpConnectionFailed"
	KindTooManyFailed       = "responseTooManyFailedAttempts"
	KindStreamDisconnected  = "responseStreamDisconnected"
	KindContextWindow       = "contextWindowExceeded"
	KindUsageLimit          = "usageLimitExceeded"
	KindRateLimit           = "rateLimitExceeded"
	KindOverloaded          = "serverOverloaded"
	KindOther               = "other"
)

// Error is a failure of the model side.
type Error struct {
	// Kind is one of the Kind constants.
	Kind string
	// HTTPStatus is 0 when no HTTP answer was seen or it plays no part.
	HTTPStatus int
	// Message is for people; clients match on it.
	Message string
	// Details is the cause behind a general message; may be empty.
	Details string
	Retry   Retry
	// RetryAfter is the wait that the service asked for; 0 when it did not.
	RetryAfter time.Duration
	cause      error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, if any.
func (e *Error) Unwrap() error { return e.cause }

// Wrap returns a copy of the error with a cause.
func (e *Error) Wrap(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// TurnError is the failure as it ends a turn.
func (e *Error) TurnError() *heddlev1.TurnError {
	t := &heddlev1.TurnError{Message: e.Message, Kind: e.Kind, AdditionalDetails: e.Details}
	if e.HTTPStatus != 0 {
		status := int32(e.HTTPStatus)
		t.HttpStatus = &status
	}
	return t
}
