package mcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Set holds the servers of one thread.
type Set struct {
	host    Host
	clients []*client
	stop    context.CancelFunc
	began   time.Time
	// open counts calls; idle is closed by the last one after Retire.
	mu      sync.Mutex
	open    int
	retired bool
}

// Start starts servers in the background. Names are unique.
func Start(servers []Server, host Host) *Set {
	s := &Set{host: host, began: time.Now()}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	for _, cfg := range servers {
		c := newClient(ctx, &s.host, cfg)
		s.clients = append(s.clients, c)
	}
	for _, c := range s.clients {
		go c.begin()
	}
	return s
}

// Retry starts again the servers at a URL that are not connected: somebody logged
// in there.
func (s *Set) Retry(url string) {
	for _, c := range s.clients {
		if c.cfg.URL == url {
			go c.again()
		}
	}
}

// Close ends the servers. Calls that run fail.
func (s *Set) Close() { s.stop() }

// Retire ends the servers as soon as no call runs.
func (s *Set) Retire() {
	s.mu.Lock()
	s.retired = true
	idle := s.open == 0
	s.mu.Unlock()
	if idle {
		s.stop()
	}
}

// Await waits until no server starts for the first time any more, at most until
// limit has passed since Start.
func (s *Set) Await(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit - time.Since(s.began))
	defer timer.Stop()
	for _, c := range s.clients {
		select {
		case <-c.first:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Require waits for the first start of the required servers and fails, naming them
// all, when some did not start. Their own bounds of a start hold.
func (s *Set) Require(ctx context.Context) error {
	var failed []error
	for _, c := range s.clients {
		if !c.cfg.Required {
			continue
		}
		select {
		case <-c.first:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		c.mu.Lock()
		failed = append(failed, c.failed)
		c.mu.Unlock()
	}
	return errors.Join(failed...)
}

// Tools are the tools of the servers that could be started, in stable order.
func (s *Set) Tools() []*Tool {
	var list []*Tool
	for _, c := range s.clients {
		c.mu.Lock()
		list = append(list, c.tools...)
		c.mu.Unlock()
	}
	return list
}

// Find returns the tool that a model calls by a name.
func (s *Set) Find(namespace, alias string) *Tool {
	for _, t := range s.Tools() {
		if t.Namespace == namespace && t.Alias == alias {
			return t
		}
	}
	return nil
}

func (s *Set) client(server string) (*client, error) {
	for _, c := range s.clients {
		if c.cfg.Name == server {
			return c, nil
		}
	}
	return nil, errdefs.New(errdefs.Internal, "unknown MCP server '%s'", server)
}

// Call calls a tool and returns its result: content, structuredContent, isError
// and _meta. An error is one of the way there, or the server's own.
func (s *Set) Call(ctx context.Context, server string, k *Call) (*structpb.Struct, error) {
	c, err := s.client(server)
	if err != nil {
		return nil, err
	}
	if !c.cfg.offered(k.Tool) {
		return nil, errdefs.New(errdefs.Internal, "tool '%s' of MCP server '%s' is disabled by the config", k.Tool, server)
	}
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.open--
		end := s.retired && s.open == 0
		s.mu.Unlock()
		if end {
			s.stop()
		}
	}()
	res, err := c.call(ctx, k)
	if err != nil {
		return nil, err
	}
	return resultOf(res), nil
}

// Read reads a resource.
func (s *Set) Read(ctx context.Context, server, uri string) ([]*structpb.Struct, error) {
	c, err := s.client(server)
	if err != nil {
		return nil, err
	}
	conn, err := c.live(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.ToolTimeout, fmt.Errorf("MCP server `%s` did not answer within %s", server, c.cfg.ToolTimeout))
	defer cancel()
	var res *sdk.ReadResourceResult
	err = within(ctx, func() (err error) {
		res, err = conn.conn.ReadResource(ctx, &sdk.ReadResourceParams{URI: uri})
		return err
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, errdefs.New(errdefs.Internal, "read resource `%s` of MCP server `%s`: %w", uri, server, err)
	}
	var out []*structpb.Struct
	for _, part := range res.Contents {
		o, err := object(part)
		if err != nil {
			return nil, errdefs.New(errdefs.Internal, "resource `%s` of MCP server `%s`: %w", uri, server, err)
		}
		out = append(out, o)
	}
	return out, nil
}

// Describe tells of the servers, or of one with a name. It waits for servers
// that still start.
func (s *Set) Describe(ctx context.Context, name string, toolsOnly bool) []*heddlev1.McpServer {
	var wg sync.WaitGroup
	var list []*heddlev1.McpServer
	for _, c := range s.clients {
		if name != "" && c.cfg.Name != name {
			continue
		}
		out := &heddlev1.McpServer{Name: c.cfg.Name, HttpOrigin: origin(c.cfg.URL)}
		list = append(list, out)
		wg.Go(func() { c.describe(ctx, out, toolsOnly) })
	}
	wg.Wait()
	return list
}

func (c *client) describe(ctx context.Context, out *heddlev1.McpServer, toolsOnly bool) {
	select {
	case <-c.first:
	case <-ctx.Done():
	}
	c.mu.Lock()
	s, tools, problem, locked := c.session, c.tools, c.problem, c.locked
	c.mu.Unlock()
	out.AuthStatus = c.authStatus(locked)
	out.RuntimeStatus = "connected"
	if s == nil || !s.alive() {
		out.RuntimeStatus, out.Error = "failed", problem
		if problem == "" {
			out.Error = fmt.Sprintf("MCP server `%s` is not connected", c.cfg.Name)
		}
		return
	}
	for _, t := range tools {
		out.Tools = append(out.Tools, t.wire)
	}
	init := s.conn.InitializeResult()
	if init.ServerInfo != nil {
		out.ServerInfo, _ = object(init.ServerInfo)
	}
	out.Capabilities, _ = object(init.Capabilities)
	if toolsOnly || init.Capabilities == nil || init.Capabilities.Resources == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StartupTimeout)
	defer cancel()
	// What cannot be listed is left out: the tools are there all the same.
	var resources, templates []*structpb.Struct
	if within(ctx, func() (err error) {
		resources, templates, err = listResources(ctx, s.conn)
		return err
	}) == nil {
		out.Resources, out.ResourceTemplates = resources, templates
	}
}

func listResources(ctx context.Context, conn *sdk.ClientSession) (resources, templates []*structpb.Struct, err error) {
	for r, err := range conn.Resources(ctx, nil) {
		if err != nil || len(resources) >= maxResources {
			break
		}
		if o, err := object(r); err == nil {
			resources = append(resources, o)
		}
	}
	for r, err := range conn.ResourceTemplates(ctx, nil) {
		if err != nil || len(templates) >= maxResources {
			break
		}
		if o, err := object(r); err == nil {
			templates = append(templates, o)
		}
	}
	return resources, templates, ctx.Err()
}
