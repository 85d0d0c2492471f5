package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openai/openai-go/v3/option"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
)

// maxErrorBody bounds what is kept of the body of a refusal.
const maxErrorBody = 16 << 10

const (
	msgHighDemand    = "We're currently experiencing high demand, which may cause temporary errors."
	msgContextWindow = "The conversation no longer fits into the model's context window. Start a new thread or clear earlier history before trying again."
	msgQuota         = "Quota exceeded. Check your plan and billing details."
	disconnectPrefix = "stream disconnected before completion: "
)

// statusError is an answer other than 2xx.
type statusError struct {
	status int
	body   string
	after  time.Duration
}

func (e *statusError) Error() string {
	return fmt.Sprintf("status %d %s", e.status, http.StatusText(e.status))
}

// refuseStatus turns a refusal into an error before the library reads it, so that
// the body is bounded and kept as it is.
func refuseStatus(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	res, err := next(req)
	if err != nil || res.StatusCode < 300 {
		return res, err
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	_ = res.Body.Close()
	text := strings.ToValidUTF8(string(body), "\uFFFD")
	se := &statusError{status: res.StatusCode, body: text}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		se.after = time.Duration(min(s, 3600)) * time.Second
	}
	return nil, se
}

// openError maps a request that got no stream. again says that a retry may help.
func (c *Client) openError(err error) (merr *model.Error, again bool) {
	var se *statusError
	if errors.As(err, &se) {
		return c.refusal(se), se.status >= 500
	}
	if errors.Is(err, errIdle) {
		return disconnected(errIdle), false
	}
	cause := rootCause(err)
	merr = &model.Error{
		Kind:    model.KindConnectionFailed,
		Message: fmt.Sprintf("connection to model provider %q failed: %s (url: %s)", c.cfg.ProviderName, cause, c.url),
		Details: cause,
		Retry:   model.RetryConnect,
	}
	return merr.Wrap(err), true
}

func (c *Client) refusal(se *statusError) *model.Error {
	e := &model.Error{Kind: model.KindConnectionFailed, HTTPStatus: se.status, RetryAfter: se.after}
	switch se.status {
	case http.StatusBadRequest:
		e.Kind, e.HTTPStatus, e.Message = model.KindOther, 0, se.body
	case http.StatusTooManyRequests:
		e.Kind = model.KindTooManyFailed
		e.Message = "exceeded retry limit, last status: " + statusText(se.status)
		e.Details = serviceMessage(se.body)
	case http.StatusInternalServerError:
		e.Kind, e.HTTPStatus, e.Message = model.KindInternalServerError, 0, msgHighDemand
		e.Details = serviceMessage(se.body)
	default:
		e.Message = fmt.Sprintf("unexpected status %s: %s, url: %s", statusText(se.status), serviceMessage(se.body), c.url)
	}
	if strings.TrimSpace(e.Message) == "" {
		e.Message = fmt.Sprintf("unexpected status %s without a body, url: %s", statusText(se.status), c.url)
	}
	if se.status >= 500 {
		e.Retry = model.RetryStream
	}
	return e.Wrap(se)
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

// disconnected is a stream that broke off.
func disconnected(cause error) *model.Error {
	text := rootCause(cause)
	e := &model.Error{Kind: model.KindOther, Message: disconnectPrefix + text, Details: text, Retry: model.RetryStream}
	return e.Wrap(cause)
}

// rootCause is the innermost text of an error: the outer ones repeat the URL.
func rootCause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

var tryAgain = regexp.MustCompile(`(?i)try again in\s*(\d+(?:\.\d+)?)\s*(ms|s|seconds?)`)

// failed maps the code and message of response.failed and of error events.
func failed(code, message string) *model.Error {
	e := &model.Error{Kind: model.KindOther, Message: message, Details: code}
	switch code {
	case "context_length_exceeded":
		e.Kind, e.Message = model.KindContextWindow, msgContextWindow
	case "insufficient_quota":
		e.Kind, e.Message = model.KindUsageLimit, msgQuota
	case "rate_limit_exceeded":
		e.Kind, e.Message, e.Retry = model.KindRateLimit, "rate limit exceeded: "+message, model.RetryStream
		e.RetryAfter = askedDelay(message)
	case "server_error":
		e.Message, e.Retry = disconnectPrefix+message, model.RetryStream
	}
	if e.Message == "" {
		e.Message = "the model service reported a failure without a message"
		if code != "" {
			e.Message += " (code " + code + ")"
		}
	}
	return e
}

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
