package httpstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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

// refusal reads an answer that is no stream, bounded and as it is.
func refusal(res *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	_ = res.Body.Close()
	return &statusError{status: res.StatusCode, body: strings.ToValidUTF8(string(body), "\uFFFD"), after: retryAfter(res.Header)}
}

// retryAfter is the wait that an answer asks for, up to an hour.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(min(ms, 3600_000) * float64(time.Millisecond))
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return time.Duration(min(s, 3600) * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(time.Until(at), 0), time.Hour)
	}
	return 0
}

// openError maps a request that got no stream. again says that a retry may help.
func (s *Stream) openError(err error) (merr *model.Error, again bool) {
	var se *statusError
	if errors.As(err, &se) {
		merr = s.cfg.Refused(se.status, se.body, s.shown, se.after).Wrap(err)
		// Who says how long to wait means that it goes on then.
		limited := se.status == http.StatusTooManyRequests && se.after > 0 && se.after <= maxAsked
		return s.advise(merr, se.status), se.status >= 500 || limited
	}
	if errors.Is(err, errIdle) {
		return disconnected(errIdle), false
	}
	cause := rootCause(err)
	merr = &model.Error{
		Kind:    model.KindConnectionFailed,
		Message: fmt.Sprintf("connection to model provider %q failed: %s (url: %s)", s.cfg.ProviderName, cause, s.shown),
		Details: cause,
		Retry:   model.RetryConnect,
	}
	return merr.Wrap(err), true
}

// advise adds what the user can do, where the status tells.
func (s *Stream) advise(e *model.Error, status int) *model.Error {
	if e.Details != "" {
		return e
	}
	switch status {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		e.Details = fmt.Sprintf("check model, base_url and wire_api of model provider %q: the service may not have this model or this API", s.cfg.ProviderName)
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		e.Details = fmt.Sprintf("the service points to another host, to which no key is sent; correct base_url of model provider %q", s.cfg.ProviderName)
	}
	return e
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

// refusedField finds an optional field, not dropped yet, that a refusal names.
func refusedField(err error, optional []string, drop map[string]bool) string {
	var se *statusError
	if !errors.As(err, &se) || (se.status != http.StatusBadRequest && se.status != http.StatusUnprocessableEntity) {
		return ""
	}
	for _, f := range optional {
		if !drop[f] && regexp.MustCompile(`\b`+regexp.QuoteMeta(f)+`\b`).MatchString(se.body) {
			return f
		}
	}
	return ""
}

// maxDropped bounds the models for which refused fields are remembered.
const maxDropped = 256

// dropped remembers, for each model, the fields that the service refused.
type dropped struct {
	mu     sync.Mutex
	models map[string][]string
}

func (d *dropped) of(name string) map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]bool{}
	for _, f := range d.models[name] {
		out[f] = true
	}
	return out
}

func (d *dropped) add(name, field string) map[string]bool {
	d.mu.Lock()
	if d.models == nil || len(d.models) >= maxDropped {
		d.models = map[string][]string{}
	}
	if !slices.Contains(d.models[name], field) {
		d.models[name] = append(slices.Clone(d.models[name]), field)
	}
	d.mu.Unlock()
	return d.of(name)
}
