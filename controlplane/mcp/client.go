package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/heddle-dev/heddle/controlplane/mcp/oauth"
	"github.com/heddle-dev/heddle/proto/errdefs"
)

const (
	// stuckWait is how long a call that was given up may hold its server.
	stuckWait = 2 * time.Second
	// endNotice is how long the reason of a broken connection is waited for.
	endNotice = 500 * time.Millisecond
	// maxWaiting bounds the questions of one server that wait for another.
	maxWaiting = 8
	// maxProgress bounds the reports of one call, progressEvery how often they come.
	maxProgress   = 1000
	progressEvery = 100 * time.Millisecond
	maxText       = 16 << 10
)

// client is one server.
type client struct {
	cfg  Server
	host *Host
	// ctx ends with the set.
	ctx context.Context
	// first is closed when the first start has ended, either way.
	first chan struct{}
	// starting serialises starts, asking questions.
	starting chan struct{}
	asking   chan struct{}

	mu      sync.Mutex
	state   string
	problem string
	// failed is why the first start did not succeed.
	failed error
	// locked is true when the server refused for want of a login.
	locked  bool
	session *session
	tools   []*Tool
	calls   map[*running]bool
	waiting int
	token   int
}

// session is one connection.
type session struct {
	conn *sdk.ClientSession
	link *link
	// down is closed when the connection ended.
	down chan struct{}
}

func (s *session) close() {
	if s.link != nil {
		s.link.close()
	}
	// Closing waits for calls; those end since nobody answers any more.
	go func() { _ = s.conn.Close() }()
}

// alive reports whether calls can be made. A program's end is known here before the
// end of its output is read, and so before the connection is known to be down.
func (s *session) alive() bool {
	if s.link != nil && s.link.gone() {
		return false
	}
	select {
	case <-s.down:
		return false
	default:
		return true
	}
}

// running is one call that a server works on.
type running struct {
	call    *Call
	token   string
	timer   *time.Timer
	said    int
	lastSay time.Time
}

func newClient(ctx context.Context, host *Host, s Server) *client {
	return &client{
		cfg: s, host: host, ctx: ctx, first: make(chan struct{}), starting: make(chan struct{}, 1), asking: make(chan struct{}, 1),
		state: Starting, calls: map[*running]bool{},
	}
}

func (c *client) tell(state, problem string) {
	c.mu.Lock()
	c.state, c.problem = state, problem
	c.mu.Unlock()
	if c.host.Status != nil {
		c.host.Status(c.cfg.Name, state, problem)
	}
}

// begin is the first start.
func (c *client) begin() {
	defer close(c.first)
	c.tell(Starting, "")
	_, err := c.live(c.ctx)
	c.mu.Lock()
	c.failed = err
	c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		c.tell(Cancelled, "")
	case err != nil:
		c.tell(Failed, err.Error())
	default:
		c.tell(Ready, "")
	}
}

// again starts a server that is not connected, and tells of it as of the first
// start.
func (c *client) again() {
	<-c.first
	c.mu.Lock()
	up := c.session != nil && c.session.alive()
	c.mu.Unlock()
	if up || c.ctx.Err() != nil {
		return
	}
	c.tell(Starting, "")
	if _, err := c.live(c.ctx); err != nil {
		c.tell(Failed, err.Error())
		return
	}
	c.tell(Ready, "")
}

// live returns the connection, starting the server where there is none.
func (c *client) live(ctx context.Context) (*session, error) {
	select {
	case c.starting <- struct{}{}:
		defer func() { <-c.starting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	if s != nil && s.alive() {
		return s, nil
	}
	if s != nil {
		s.close()
	}
	bound, cancel := context.WithTimeoutCause(c.ctx, c.cfg.StartupTimeout, fmt.Errorf("it was not ready within %s", c.cfg.StartupTimeout))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	s, tools, err := c.connect(bound)
	c.mu.Lock()
	c.locked = errors.Is(err, oauth.ErrLogin)
	c.mu.Unlock()
	if err != nil {
		if cause := context.Cause(bound); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("MCP server `%s` could not be started: %w", c.cfg.Name, err)
	}
	c.mu.Lock()
	c.session, c.tools = s, tools
	c.mu.Unlock()
	context.AfterFunc(c.ctx, s.close)
	return s, nil
}

// connect starts the server and asks for its tools.
func (c *client) connect(ctx context.Context) (*session, []*Tool, error) {
	if c.cfg.Problem != "" {
		return nil, nil, errors.New(c.cfg.Problem)
	}
	s := &session{down: make(chan struct{})}
	var transport sdk.Transport
	var err error
	if c.cfg.URL != "" {
		transport, err = httpTransport(&c.cfg, c.host.Logins)
	} else if s.link, err = dial(ctx, c.host, &c.cfg); err == nil {
		transport = s.link.transport()
	}
	if err != nil {
		return nil, nil, err
	}
	cl := sdk.NewClient(&sdk.Implementation{Name: "heddle", Version: c.host.Version}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{}, ElicitationHandler: c.elicit, ProgressNotificationHandler: c.progress,
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { go c.refresh(s) },
	})
	var tools []*Tool
	err = within(ctx, func() error {
		conn, err := cl.Connect(ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: protocolVersion})
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			_ = conn.Close()
			return ctx.Err()
		}
		s.conn = conn
		go func() {
			_ = conn.Wait()
			close(s.down)
		}()
		if conn.InitializeResult().Capabilities.Tools == nil {
			return nil
		}
		tools, err = c.list(ctx, conn)
		if err != nil {
			s.close()
		}
		return err
	})
	if err == nil {
		return s, tools, nil
	}
	if s.link != nil {
		if why := s.link.why(endNotice); why != "" && ctx.Err() == nil {
			err = errors.New(why)
		}
		s.link.close()
	}
	return nil, nil, err
}

// within runs f until ctx ends; f may then still run, and its results are not to
// be looked at.
func within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refresh asks for the tools again when the server said that they changed.
func (c *client) refresh(s *session) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.StartupTimeout)
	defer cancel()
	tools, err := c.list(ctx, s.conn)
	if err != nil {
		return
	}
	c.mu.Lock()
	if c.session == s {
		c.tools = tools
	}
	c.mu.Unlock()
}

// call calls a tool.
func (c *client) call(ctx context.Context, k *Call) (*sdk.CallToolResult, error) {
	s, err := c.live(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &running{call: k}
	c.mu.Lock()
	if len(c.calls) >= maxCalls {
		c.mu.Unlock()
		return nil, errdefs.New(errdefs.Overloaded, "MCP server `%s` works on %d calls already", c.cfg.Name, maxCalls)
	}
	c.token++
	r.token = fmt.Sprintf("call-%d", c.token)
	r.timer = time.AfterFunc(c.cfg.ToolTimeout, func() {
		cancel(fmt.Errorf("MCP server `%s` did not answer within %s", c.cfg.Name, c.cfg.ToolTimeout))
	})
	c.calls[r] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, r)
		r.timer.Stop()
		c.mu.Unlock()
	}()
	params := &sdk.CallToolParams{Name: k.Tool, Arguments: k.Arguments}
	params.SetProgressToken(r.token)
	var res *sdk.CallToolResult
	done := make(chan struct{})
	err = within(ctx, func() (err error) {
		defer close(done)
		res, err = s.conn.CallTool(ctx, params)
		return err
	})
	if err == nil {
		return res, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		// A server that does not even take the cancellation is ended.
		time.AfterFunc(stuckWait, func() {
			select {
			case <-done:
			default:
				s.close()
			}
		})
		return nil, cause
	}
	if s.link != nil && !s.alive() {
		if why := s.link.why(endNotice); why != "" {
			err = errors.New(why)
		}
	}
	return nil, fmt.Errorf("MCP server `%s`: %w", c.cfg.Name, err)
}

// latest returns a running call that can ask the person, the newest one.
func (c *client) latest() *running {
	var found *running
	for r := range c.calls {
		if r.call.Ask != nil && (found == nil || len(r.token) > len(found.token) || len(r.token) == len(found.token) && r.token > found.token) {
			found = r
		}
	}
	return found
}

// elicit puts a question of the server to the person. The time that this takes
// does not count for the server's calls.
func (c *client) elicit(ctx context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	p := req.Params
	c.mu.Lock()
	r := c.latest()
	if r == nil || c.waiting >= maxWaiting || len(p.Message) > maxText || len(p.URL) > maxText {
		c.mu.Unlock()
		return decline(), nil
	}
	c.waiting++
	for k := range c.calls {
		k.timer.Stop()
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting--; c.waiting > 0 {
			return
		}
		for k := range c.calls {
			k.timer.Reset(c.cfg.ToolTimeout)
		}
	}()
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	schema, err := plain(p.RequestedSchema)
	if err != nil {
		return decline(), nil
	}
	q := &Question{Server: c.cfg.Name, Mode: p.Mode, Message: p.Message, Schema: schema, URL: p.URL, ElicitationID: p.ElicitationID, Meta: p.Meta}
	if q.Mode == "" {
		q.Mode = "form"
	}
	a, err := r.call.Ask(ctx, q)
	if err != nil {
		return nil, err
	}
	return &sdk.ElicitResult{Action: a.Action, Content: a.Content}, nil
}

// progress passes on what the server says of a call.
func (c *client) progress(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
	token, _ := req.Params.ProgressToken.(string)
	c.mu.Lock()
	var found *running
	for r := range c.calls {
		if r.token == token && r.call.Progress != nil && r.said < maxProgress && time.Since(r.lastSay) >= progressEvery {
			found = r
			r.said++
			r.lastSay = time.Now()
		}
	}
	c.mu.Unlock()
	message := req.Params.Message
	if found == nil || message == "" {
		return
	}
	if len(message) > maxText {
		message = strings.ToValidUTF8(message[:maxText], "")
	}
	found.call.Progress(message)
}

// offered reports whether the config lets a tool be used.
func (s *Server) offered(tool string) bool {
	return (s.Enabled == nil || slices.Contains(s.Enabled, tool)) && !slices.Contains(s.Disabled, tool)
}
