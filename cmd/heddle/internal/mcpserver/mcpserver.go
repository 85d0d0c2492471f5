// Package mcpserver makes heddle a tool of other agents: `heddle mcp-server`.
//
// It serves the Model Context Protocol on a pair of pipes, with two tools: codex
// starts a thread and runs its first turn, codex-reply runs a further turn. Each
// call runs on the control plane of the home, through one session that all calls
// share. What happens meanwhile is sent as codex/event notifications, and as
// progress where the client asked for it; approvals are put to the client as
// elicitations. A call that is cancelled interrupts its turn, and the end of the
// input interrupts all of them.
//
// Names of tools, arguments, events and members are those of earlier Codex
// releases. A Server is used once; its calls run concurrently, up to maxCalls.
package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/gateway/upstream"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxCalls is how many tool calls of one client run at a time.
	maxCalls = 64
	// maxLine bounds one message of the client; a prompt may have 1 Mi
	// characters of four bytes.
	maxLine = 8 << 20
	// farewell bounds how long an interrupted turn is waited for.
	farewell = 5 * time.Second
)

// Config describes a server.
type Config struct {
	// Dial connects to the control plane and starts it when needed.
	Dial func(context.Context) (*grpc.ClientConn, error)
	// Attach registers the session; its id must be set.
	Attach  *heddlev1.AttachRequest
	Version string
	Logger  *slog.Logger
}

// Server serves one client.
type Server struct {
	cfg     Config
	session *upstream.Session
	wire    *wire
	slots   chan struct{}
	calls   sync.WaitGroup

	mu      sync.Mutex
	threads map[string]bool // that calls have loaded
}

// New prepares a server. The session with the control plane is opened by the
// first call.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, slots: make(chan struct{}, maxCalls), threads: map[string]bool{}}
	s.session = upstream.New(upstream.Config{Dial: cfg.Dial, Attach: cfg.Attach, Logger: cfg.Logger, Reattached: func() { go s.reload() }})
	return s
}

// Run serves until the input ends or ctx does. When it returns, the turns of its
// calls are asked to end and their threads are let go.
func (s *Server) Run(asked context.Context, in io.ReadCloser, out io.WriteCloser) error {
	ctx, cancel := context.WithCancel(asked)
	defer cancel()
	s.wire = newWire(&mcp.IOTransport{Reader: in, Writer: out, MaxLineLength: maxLine}, cancel)
	server := mcp.NewServer(&mcp.Implementation{Name: "heddle-mcp-server", Title: "heddle", Version: s.cfg.Version}, &mcp.ServerOptions{
		Logger: s.cfg.Logger, Capabilities: &mcp.ServerCapabilities{},
		// Questions are requests of the server, which later versions do not have.
		SupportedProtocolVersions: []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"},
	})
	server.AddTool(codexTool(), s.handler(ctx, s.codex))
	server.AddTool(replyTool(), s.handler(ctx, s.reply))
	session, err := server.Connect(ctx, s.wire, nil)
	if err != nil {
		return fmt.Errorf("serve the Model Context Protocol: %w", err)
	}
	<-ctx.Done()
	s.release()
	if asked.Err() != nil {
		return nil // the reader waits for a client that is still there
	}
	flushed := make(chan error, 1)
	go func() { flushed <- session.Wait() }()
	select {
	case <-flushed:
	case <-time.After(farewell):
	}
	if err := s.wire.failure(); err != nil {
		return fmt.Errorf("read the client's messages: %w", err)
	}
	return nil
}

// release lets go of the threads and ends the session, which interrupts the
// turns that are tied to it.
func (s *Server) release() {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	s.calls.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.threads {
		err := s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
			_, err := heddlev1.NewThreadServiceClient(cc).UnloadThread(ctx, &heddlev1.UnloadThreadRequest{ThreadId: id})
			return err
		})
		if err != nil {
			s.cfg.Logger.Debug("unload a thread", "thread", id, "error", err)
		}
	}
	s.session.Close(ctx)
}

// reload loads the threads again at a control plane that took over.
func (s *Server) reload() {
	s.mu.Lock()
	var ids []string
	for id := range s.threads {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	for _, id := range ids {
		if _, err := s.load(context.Background(), id); err != nil {
			s.cfg.Logger.Warn("load a thread again", "thread", id, "error", err)
		}
	}
}

func (s *Server) load(ctx context.Context, id string) (resp *heddlev1.LoadThreadResponse, err error) {
	err = s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		resp, err = heddlev1.NewThreadServiceClient(cc).LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: id})
		return err
	})
	return resp, err
}

func (s *Server) hold(thread string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.threads[thread] = true
}

// handler bounds the calls, ties them to the server's life and turns errors into
// results of the tool.
func (s *Server) handler(life context.Context, do func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error)) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		select {
		case s.slots <- struct{}{}:
		default:
			return failure("", fmt.Errorf("%d calls run already; call again when one has ended", maxCalls)), nil
		}
		defer func() { <-s.slots }()
		s.calls.Add(1)
		defer s.calls.Done()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(life, func() { cancel(errGone) })()
		return do(ctx, req)
	}
}

// errGone is why a call ends when its client is gone.
var errGone = errors.New("the client is gone")

// success is the result of a call whose turn completed.
func success(thread, text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: text}},
		StructuredContent: map[string]any{"threadId": thread, "content": text},
	}
}

// failure is the result of a call that failed; it names the thread when there is
// one.
func failure(thread string, err error) *mcp.CallToolResult {
	r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}, IsError: true}
	if thread != "" {
		r.StructuredContent = map[string]any{"threadId": thread, "content": err.Error()}
	}
	return r
}

// absolute resolves a folder against that of the server's process.
func (s *Server) absolute(dir string) string {
	if dir == "" || filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(s.cfg.Attach.GetCwd(), dir)
}
