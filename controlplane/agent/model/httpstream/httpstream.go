// Package httpstream asks a model service over HTTP and reads its answer, a
// stream of server-sent events. It is what the clients of all wire formats share.
//
// It owns retries of a request that got no stream, the watch over silence, the
// bounds of an answer, and the mapping of refusals to model.Error. A key is sent
// to the host of the provider's base URL only: a redirect to another host is not
// followed. Requests are sent with net/http: of the vendors' libraries only the
// reader of events is used, since the rest would add megabytes to the program for
// a POST whose body and answer are handled here field by field anyway. A Stream is
// safe for concurrent use.
package httpstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
)

const (
	defaultIdleTimeout = 5 * time.Minute
	backoffBase        = 200 * time.Millisecond
	backoffMax         = 10 * time.Second
	// maxAsked is the longest wait that a service can ask for.
	maxAsked = 30 * time.Second
	// drainLimit bounds how long a finished answer is read to its end so that the
	// connection can be used again.
	drainLimit = 2 * time.Second
)

// Config says where and how to ask.
type Config struct {
	// ProviderName is used in messages.
	ProviderName string
	BaseURL      string
	// APIKey is empty where none is sent. In which header it goes is the client's
	// to say, before New.
	APIKey string
	// Headers are sent with every request.
	Headers map[string]string
	Query   map[string]string
	// RequestMaxRetries is the number of silent retries of a request that did not
	// get a stream.
	RequestMaxRetries int
	// StreamIdleTimeout bounds the silence of the service, before and within a
	// stream; 0 means five minutes.
	StreamIdleTimeout time.Duration
	// HTTPClient may be nil.
	HTTPClient *http.Client
	Logger     *slog.Logger
	// Refused maps an answer other than 2xx; nil means model.Refused.
	Refused func(status int, body, url string, after time.Duration) *model.Error
}

// Stream asks one endpoint.
type Stream struct {
	cfg  Config
	http *http.Client
	// url is asked; shown is its form for messages, without credentials.
	url, shown string
	log        *slog.Logger
	dropped    dropped
}

// New returns a Stream that posts to path below the base URL. A base URL that is
// no http or https URL is an error.
func New(cfg Config, path ...string) (*Stream, error) {
	u, err := BaseURL(cfg.ProviderName, cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	if cfg.StreamIdleTimeout <= 0 {
		cfg.StreamIdleTimeout = defaultIdleTimeout
	}
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = NewHTTPClient()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Refused == nil {
		cfg.Refused = model.Refused
	}
	u = u.JoinPath(path...)
	s := &Stream{cfg: cfg, http: SameHost(cfg.HTTPClient), url: WithQuery(u, cfg.Query), log: cfg.Logger}
	u.User, u.RawQuery = nil, ""
	s.shown = u.String()
	return s, nil
}

// Bearer is headers with a key as a bearer token, which one of them may replace.
func Bearer(key string, headers map[string]string) map[string]string {
	h := map[string]string{}
	if key != "" {
		h["Authorization"] = "Bearer " + key
	}
	for name, v := range headers {
		h[http.CanonicalHeaderKey(name)] = v
	}
	return h
}

// BaseURL parses a provider's base URL.
func BaseURL(provider, base string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("model provider %q: base_url %q is not an http or https URL", provider, base)
	}
	return u, nil
}

// WithQuery is the URL with further query parameters.
func WithQuery(u *url.URL, params map[string]string) string {
	v := *u
	q := v.Query()
	for k, x := range params {
		q.Set(k, x)
	}
	v.RawQuery = q.Encode()
	return v.String()
}

// SameHost is an HTTP client that follows redirects within a host only, so that
// no key in any header reaches another one.
func SameHost(c *http.Client) *http.Client {
	own := *c
	own.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > 5 || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return &own
}

// NewHTTPClient returns an HTTP client whose connections can be shared by the
// clients of many providers.
func NewHTTPClient() *http.Client {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   15 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	return &http.Client{Transport: t}
}

// Call is one request.
type Call struct {
	// Encode makes the body; the fields in drop are left out of it.
	Encode func(drop map[string]bool) ([]byte, error)
	// Optional are fields that the request can do without: a service that refuses
	// one by its name is asked again without it, now and later.
	Optional []string
	// Request gives the headers that identify thread and client.
	Request model.Request
	// Decode reads the answer and calls emit for every event; nil means that it was
	// complete. An error of emit has to be returned as it is.
	Decode func(a *Answer, emit func(model.Event) error) error
}

// Do sends the request and passes its events on, as model.Client demands.
func (s *Stream) Do(ctx context.Context, call Call, yield func(model.Event) error) error {
	drop := s.dropped.of(call.Request.Model)
	for attempt := 0; ; {
		body, err := call.Encode(drop)
		if err != nil {
			return &model.Error{Kind: model.KindOther, Message: fmt.Sprintf("cannot encode the model request: %v", err)}
		}
		res, watch, err := s.open(ctx, call.Request, body)
		if err == nil {
			return s.read(ctx, res, watch, call.Decode, yield)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if field := refusedField(err, call.Optional, drop); field != "" {
			s.log.Warn("the model service does not take a field, asking without it", "provider", s.cfg.ProviderName, "model", call.Request.Model, "field", field)
			drop = s.dropped.add(call.Request.Model, field)
			continue
		}
		merr, again := s.openError(err)
		if !again || attempt >= s.cfg.RequestMaxRetries {
			return merr
		}
		s.log.Debug("model request failed, trying again", "provider", s.cfg.ProviderName, "attempt", attempt+1, "error", err)
		if !sleep(ctx, Backoff(attempt, merr.RetryAfter)) {
			return context.Cause(ctx)
		}
		attempt++
	}
}

// open sends the request once and returns the answer whose stream can be read.
// The watchdog ends the request when the service says nothing for too long.
func (s *Stream) open(ctx context.Context, r model.Request, body []byte) (*http.Response, *watchdog, error) {
	ctx, w := newWatchdog(ctx, s.cfg.StreamIdleTimeout)
	res, err := s.send(ctx, r, body)
	if err != nil {
		w.stop()
		if errors.Is(context.Cause(ctx), errIdle) {
			err = errIdle
		}
		return nil, nil, err
	}
	return res, w, nil
}

func (s *Stream) send(ctx context.Context, r model.Request, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the model request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	for k, v := range map[string]string{"Originator": r.Originator, "User-Agent": r.UserAgent, "Session-Id": r.SessionID, "Thread-Id": r.ThreadID} {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.cfg.Headers)) {
		req.Header.Set(k, s.cfg.Headers[k])
	}
	res, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 300 {
		return nil, refusal(res)
	}
	return res, nil
}

// read turns the body into events.
func (s *Stream) read(ctx context.Context, res *http.Response, w *watchdog, decode func(*Answer, func(model.Event) error) error, yield func(model.Event) error) error {
	a := &Answer{res: res, w: w}
	res.Body = &watchedBody{ReadCloser: res.Body, w: w}
	var stop error
	err := decode(a, func(ev model.Event) error {
		stop = yield(ev)
		return stop
	})
	if err == nil {
		go drain(res.Body, w)
		return nil
	}
	w.stop()
	_ = res.Body.Close()
	var merr *model.Error
	switch {
	case stop != nil:
		return stop
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &merr):
		return merr
	case errors.Is(w.cause(), errIdle):
		return disconnected(errIdle)
	}
	return disconnected(err)
}

// drain reads what follows the last event, for the connection's sake.
func drain(body io.ReadCloser, w *watchdog) {
	w.limit(drainLimit)
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
	w.stop()
}

// Backoff is the wait before retry number attempt (from 0): doubling from 200 ms
// to 10 s with a tenth of jitter, or what the service asked for, up to 30 s.
func Backoff(attempt int, asked time.Duration) time.Duration {
	d := min(backoffBase<<min(attempt, 10), backoffMax)
	d = time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
	return max(d, min(asked, maxAsked))
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
