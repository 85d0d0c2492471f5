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
	msgHighDemand    = "We're currently experiencing high demand, which may cause temporary errors."
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

// serviceMessage is error.message of a JSON body, else the start of the body.
func serviceMessage(body string) string {
	var b struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(body), &b) == nil && b.Error.Message != "" {
		return b.Error.Message
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
