package openai

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/option"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
)

// maxErrorBody bounds what is kept of the body of a refusal.
const maxErrorBody = 16 << 10

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
	se := &statusError{status: res.StatusCode, body: strings.ToValidUTF8(string(body), "\uFFFD")}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		se.after = time.Duration(min(s, 3600)) * time.Second
	}
	return nil, se
}

// openError maps a request that got no stream. again says that a retry may help.
func (c *Client) openError(err error) (merr *model.Error, again bool) {
	var se *statusError
	if errors.As(err, &se) {
		return model.Refused(se.status, se.body, c.url, se.after).Wrap(err), se.status >= 500
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

// disconnected is a stream that broke off.
func disconnected(cause error) *model.Error {
	return model.Disconnected(rootCause(cause)).Wrap(cause)
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
