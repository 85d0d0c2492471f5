package model

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	msgHighDemand    = "We’re currently experiencing high demand, which may cause temporary errors."
	msgContextWindow = "The conversation no longer fits into the model's context window. Start a new thread or clear earlier history before trying again."
	msgQuota         = "Quota exceeded. Check your plan and billing details."
	disconnectPrefix = "stream disconnected before completion: "
)

// Refused maps an HTTP answer that is no stream. url is shown as it is and must
// hold no secret.
func Refused(status int, body, url string, retryAfter time.Duration) *Error {
	e := &Error{Kind: KindConnectionFailed, HTTPStatus: status, RetryAfter: retryAfter}
	switch status {
	case http.StatusBadRequest:
		e.Kind, e.HTTPStatus, e.Message = KindOther, 0, body
	case http.StatusTooManyRequests:
		e.Kind = KindTooManyFailed
		e.Message = "exceeded retry limit, last status: " + statusText(status)
		e.Details = serviceMessage(body)
	case http.StatusInternalServerError:
		e.Kind, e.HTTPStatus, e.Message = KindInternalServerError, 0, msgHighDemand
		e.Details = serviceMessage(body)
	default:
		e.Message = fmt.Sprintf("unexpected status %s: %s, url: %s", statusText(status), serviceMessage(body), url)
	}
	if strings.TrimSpace(e.Message) == "" {
		e.Message = fmt.Sprintf("unexpected status %s without a body, url: %s", statusText(status), url)
	}
	if status >= 500 {
		e.Retry = RetryStream
	}
	return e
}

func statusText(status int) string {
	if t := http.StatusText(status); t != "" {
		return strconv.Itoa(status) + " " + t
	}
	return strconv.Itoa(status)
}

// serviceMessage is what a JSON body says: error.message, error, message or
// detail; else the start of the body.
func serviceMessage(body string) string {
	var b struct {
		Error   json.RawMessage `json:"error"`
		Message any             `json:"message"`
		Detail  any             `json:"detail"`
	}
	if json.Unmarshal([]byte(body), &b) != nil {
		return clip(strings.TrimSpace(body), 1000)
	}
	var inner struct {
		Message string `json:"message"`
	}
	var text string
	if json.Unmarshal(b.Error, &inner) == nil && inner.Message != "" {
		return inner.Message
	}
	if json.Unmarshal(b.Error, &text) == nil && text != "" {
		return text
	}
	for _, v := range []any{b.Message, b.Detail} {
		if s, ok := v.(string); ok && s != "" {
			return s
		}
	}
	return clip(strings.TrimSpace(body), 1000)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

// Disconnected is a stream that broke off for a cause.
func Disconnected(cause string) *Error {
	return &Error{Kind: KindOther, Message: disconnectPrefix + cause, Details: cause, Retry: RetryStream}
}

// Failed maps the code and message with which a service ends a response.
func Failed(code, message string) *Error {
	e := &Error{Kind: KindOther, Message: message, Details: code}
	switch code {
	case "context_length_exceeded":
		e.Kind, e.Message = KindContextWindow, msgContextWindow
	case "insufficient_quota":
		e.Kind, e.Message = KindUsageLimit, msgQuota
	case "rate_limit_exceeded":
		e.Kind, e.Message, e.Retry = KindRateLimit, "rate limit exceeded: "+message, RetryStream
		e.RetryAfter = askedDelay(message)
	case "server_error":
		e.Message, e.Retry = disconnectPrefix+message, RetryStream
	}
	if e.Message == "" {
		e.Message = "the model service reported a failure without a message"
		if code != "" {
			e.Message += " (code " + code + ")"
		}
	}
	return e
}

// Incomplete is a response that the service cut for a reason.
func Incomplete(reason string) *Error {
	if reason == "" {
		reason = "unknown"
	}
	return &Error{Kind: KindOther, Message: "Incomplete response returned, reason: " + reason}
}

var tryAgain = regexp.MustCompile(`(?i)try again in\s*(\d+(?:\.\d+)?)\s*(ms|s|seconds?)`)

func askedDelay(message string) time.Duration {
	m := tryAgain.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil || n > 3600*1000 {
		return 0
	}
	unit := float64(time.Second)
	if strings.EqualFold(m[2], "ms") {
		unit = float64(time.Millisecond)
	}
	return time.Duration(n * unit)
}

// overflow is how services without a code for it say that a request is too long.
var overflow = regexp.MustCompile(`(?i)context_length_exceeded|exceed_context_size|maximum context length|prompt is too long|exceeds? (?:the )?(?:available )?context (?:size|limit|window|length)|greater than the context length`)

// RefusedBy is Refused for the services of other wire formats, which say in words
// that a request does not fit, and have a status of their own for overload.
func RefusedBy(status int, body, url string, retryAfter time.Duration) *Error {
	e := Refused(status, body, url, retryAfter)
	switch {
	case (status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge || status == http.StatusInternalServerError) && overflow.MatchString(body):
		e.Kind, e.HTTPStatus, e.Message, e.Details, e.Retry = KindContextWindow, 0, msgContextWindow, serviceMessage(body), RetryNone
	case status == statusOverloaded:
		e.Kind, e.Message = KindOverloaded, "the model service is overloaded: "+serviceMessage(body)
	}
	return e
}

// statusOverloaded is not registered, but used.
const statusOverloaded = 529

// FailedBy maps an error that came within a stream, in the types of the Chat
// Completions and Messages APIs. status is 0 when the error names none.
func FailedBy(kind string, status int, message string) *Error {
	switch {
	case overflow.MatchString(kind) || overflow.MatchString(message):
		e := Failed("context_length_exceeded", message)
		e.Details = message
		return e
	case kind == "insufficient_quota" || kind == "billing_error":
		return Failed("insufficient_quota", message)
	case kind == "rate_limit_error" || kind == "rate_limit_exceeded" || status == http.StatusTooManyRequests:
		return Failed("rate_limit_exceeded", message)
	case kind == "overloaded_error" || status == statusOverloaded || status == http.StatusServiceUnavailable:
		return &Error{Kind: KindOverloaded, Message: "the model service is overloaded: " + message, Details: kind, Retry: RetryStream}
	case kind == "api_error" || kind == "server_error" || kind == "internal_server_error" || kind == "timeout_error" || status >= 500:
		return Failed("server_error", message)
	}
	return Failed(kind, message)
}

// Refusal is an answer that the service or the model refused to give.
func Refusal(why string) *Error {
	e := Incomplete("content_filter")
	e.Details = why
	return e
}
