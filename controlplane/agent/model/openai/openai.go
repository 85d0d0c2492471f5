// Package openai is the client for services that speak the OpenAI Responses API.
//
// The request is sent through the official client library, which owns the URL,
// authentication and redirect rules. Retries are this package's own, because the
// provider settings bound them and a refusal must reach the user in the form that
// clients know. Events are decoded here, field by field, since a delta must cost
// next to nothing. The library's environment defaults are not used: a key
// reaches a service only when its provider names the variable. Of the library only
// the package of this API is linked in: all of it would add 14 MB to the program.
package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
)

const (
	defaultIdleTimeout = 5 * time.Minute
	backoffBase        = 200 * time.Millisecond
	backoffMax         = 10 * time.Second
	// drainLimit bounds how long a finished answer is read to its end so that the
	// connection can be used again.
	drainLimit = 2 * time.Second
)

// Config says where and how to ask.
type Config struct {
	// ProviderName is used in messages.
	ProviderName string
	BaseURL      string
	// APIKey is sent as a bearer token; empty sends none.
	APIKey  string
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
}

// Client implements model.Client. Safe for concurrent use.
type Client struct {
	cfg Config
	sdk responses.ResponseService
	url string
	log *slog.Logger
}

// New returns a client; a base URL that is no http or https URL is an error.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("model provider %q: base_url %q is not an http or https URL", cfg.ProviderName, cfg.BaseURL)
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
	opts := []option.RequestOption{
		option.WithBaseURL(cfg.BaseURL),
		option.WithHTTPClient(cfg.HTTPClient),
		option.WithMaxRetries(0),
		option.WithMiddleware(refuseStatus),
	}
	if cfg.APIKey != "" {
		opts = append(opts, option.WithAPIKey(cfg.APIKey))
	}
	for _, h := range []string{"Lang", "Package-Version", "Os", "Arch", "Runtime", "Runtime-Version", "Retry-Count", "Timeout"} {
		opts = append(opts, option.WithHeaderDel("X-Stainless-"+h))
	}
	for k, v := range cfg.Query {
		opts = append(opts, option.WithQuery(k, v))
	}
	for k, v := range cfg.Headers {
		opts = append(opts, option.WithHeader(k, v))
	}
	u.User, u.RawQuery = nil, ""
	return &Client{cfg: cfg, sdk: responses.NewResponseService(opts...), url: u.JoinPath("responses").String(), log: cfg.Logger}, nil
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

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, yield func(model.Event) error) error {
	body, err := encodeRequest(req)
	if err != nil {
		return &model.Error{Kind: model.KindOther, Message: fmt.Sprintf("cannot encode the model request: %v", err)}
	}
	for attempt := 0; ; attempt++ {
		res, watch, err := c.open(ctx, req, body)
		if err == nil {
			return c.read(ctx, res, watch, yield)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		merr, again := c.openError(err)
		if !again || attempt >= c.cfg.RequestMaxRetries {
			return merr
		}
		c.log.Debug("model request failed, trying again", "provider", c.cfg.ProviderName, "attempt", attempt+1, "error", err)
		if !sleep(ctx, Backoff(attempt, merr.RetryAfter)) {
			return context.Cause(ctx)
		}
	}
}

// open sends the request once and returns the answer whose stream can be read.
// The watchdog ends the request when the service says nothing for too long.
func (c *Client) open(ctx context.Context, req model.Request, body []byte) (*http.Response, *watchdog, error) {
	ctx, w := newWatchdog(ctx, c.cfg.StreamIdleTimeout)
	opts := []option.RequestOption{
		option.WithRequestBody("application/json", body),
		option.WithHeader("Accept", "text/event-stream"),
	}
	for k, v := range map[string]string{"Originator": req.Originator, "User-Agent": req.UserAgent, "Session-Id": req.SessionID, "Thread-Id": req.ThreadID} {
		if v != "" {
			opts = append(opts, option.WithHeader(k, v))
		}
	}
	// With the body given and the answer taken, the library sends and does no more.
	var res *http.Response
	opts = append(opts, option.WithResponseBodyInto(&res))
	if err := c.sdk.NewStreaming(ctx, responses.ResponseNewParams{}, opts...).Err(); err != nil {
		w.stop()
		if errors.Is(context.Cause(ctx), errIdle) {
			err = errIdle
		}
		return nil, nil, err
	}
	return res, w, nil
}

// read turns the body into events.
func (c *Client) read(ctx context.Context, res *http.Response, w *watchdog, yield func(model.Event) error) error {
	res.Body = &watchedBody{ReadCloser: res.Body, w: w}
	err := decode(res, yield)
	if err == nil {
		go drain(res.Body, w)
		return nil
	}
	w.stop()
	_ = res.Body.Close()
	var merr *model.Error
	var yerr *yieldError
	switch {
	case errors.As(err, &yerr):
		return yerr.err
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
	return max(d, min(asked, 30*time.Second))
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
