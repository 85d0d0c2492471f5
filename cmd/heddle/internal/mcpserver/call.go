package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/gateway/upstream"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// retryPause is the wait before a lost stream of events is opened again.
const retryPause = 50 * time.Millisecond

// call is one call of a tool: a turn that is started and followed to its end.
type call struct {
	srv    *Server
	req    *mcp.CallToolRequest
	thread *heddlev1.Thread
	turn   string
	view   events
	asks   map[string]context.CancelFunc // open elicitations by approval id
	answer string
	failed *heddlev1.TurnError
}

// codex starts a thread and runs its first turn.
func (s *Server) codex(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := readCodexArgs(req.Params.Arguments)
	if err != nil {
		return failure("", err), nil
	}
	settings, err := args.settings(s.absolute(args.Cwd))
	if err != nil {
		return failure("", err), nil
	}
	attached, err := s.session.Attached(ctx)
	if err != nil {
		return failure("", plain(err)), nil
	}
	var started *heddlev1.StartThreadResponse
	err = s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		started, err = heddlev1.NewThreadServiceClient(cc).StartThread(ctx, &heddlev1.StartThreadRequest{
			Settings: settings, Source: "appServer", Originator: "heddle_mcp_server", Version: s.cfg.Version,
		})
		return err
	})
	if err != nil {
		return failure("", plain(err)), nil
	}
	c := s.newCall(req, started.GetThread())
	c.configured(ctx)
	for _, w := range attached.GetConfigWarnings() {
		c.warn(ctx, w.GetSummary())
	}
	for _, w := range started.GetWarnings() {
		c.warn(ctx, w)
	}
	return c.run(ctx, *args.Prompt), nil
}

// reply runs a further turn of a thread.
func (s *Server) reply(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := readReplyArgs(req.Params.Arguments)
	if err != nil {
		return failure("", err), nil
	}
	loaded, err := s.load(ctx, args.ThreadID)
	if errdefs.Is(err, errdefs.ThreadNotFound) {
		err = fmt.Errorf("Session not found for thread_id: %s", args.ThreadID) //nolint:staticcheck // the text is API: callers look for it
	}
	if err != nil {
		return failure(args.ThreadID, plain(err)), nil
	}
	c := s.newCall(req, loaded.GetThread())
	for _, a := range loaded.GetPendingApprovals() {
		c.ask(ctx, a)
	}
	return c.run(ctx, *args.Prompt), nil
}

func (s *Server) newCall(req *mcp.CallToolRequest, t *heddlev1.Thread) *call {
	s.hold(t.GetId())
	c := &call{srv: s, req: req, thread: t, asks: map[string]context.CancelFunc{}}
	c.view = events{requestID: req.Params.GetMeta()[metaRequestID], progress: req.Params.GetProgressToken(), send: c.send, read: c.read}
	return c
}

// send passes a message on. A client that is gone ends the call by its context.
func (c *call) send(ctx context.Context, method string, params any) {
	if err := c.srv.wire.notify(ctx, method, params); err != nil {
		c.srv.cfg.Logger.Debug("send to the client", "method", method, "error", err)
	}
}

// read returns a range of a command's output.
func (c *call) read(ctx context.Context, item string, offset, length int64) (data []byte, err error) {
	err = c.srv.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		resp, err := heddlev1.NewEventServiceClient(cc).ReadOutput(ctx, &heddlev1.ReadOutputRequest{
			ThreadId: c.thread.GetId(), ItemId: item, Offset: offset, Length: length,
		})
		data = resp.GetData()
		return err
	})
	return data, err
}

// run starts the turn, follows it and makes the call's result.
func (c *call) run(ctx context.Context, prompt string) *mcp.CallToolResult {
	defer func() {
		for _, cancel := range c.asks {
			cancel()
		}
	}()
	id := c.thread.GetId()
	turn, err := c.start(ctx, prompt)
	if err != nil {
		return failure(id, plain(err))
	}
	c.turn = turn.GetId()
	status, err := c.follow(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		c.interrupt(ctx)
		return failure(id, context.Cause(ctx))
	case err != nil:
		return failure(id, plain(err))
	case status == heddlev1.TurnStatus_TURN_STATUS_FAILED:
		return failure(id, errors.New(c.failed.GetMessage()))
	case status == heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED:
		return failure(id, errors.New("the turn was interrupted"))
	}
	return success(id, c.answer)
}

// start starts the turn, or steers the one that runs. When the answer is lost
// with the connection, the turn is looked for before it is asked for again.
func (c *call) start(ctx context.Context, prompt string) (turn *heddlev1.Turn, err error) {
	req := &heddlev1.StartTurnRequest{
		ThreadId: c.thread.GetId(), OnDisconnect: c.srv.cfg.Attach.GetOnDisconnect(),
		Input: &heddlev1.UserMessage{Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: prompt}}}},
	}
	asked := false
	err = c.srv.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		if asked {
			threads := heddlev1.NewThreadServiceClient(cc)
			now, err := threads.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: c.thread.GetId()})
			if err != nil {
				return err
			}
			if now.GetThread().GetTurnCount() > c.thread.GetTurnCount() {
				last, err := threads.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: c.thread.GetId(), PageSize: 1, View: heddlev1.ItemsView_ITEMS_VIEW_NONE})
				if err != nil || len(last.GetTurns()) == 0 {
					return errors.Join(err, errors.New("find the turn that was started"))
				}
				turn = last.GetTurns()[0].GetTurn()
				return nil
			}
		}
		asked = true
		resp, err := heddlev1.NewTurnServiceClient(cc).StartTurn(ctx, req)
		turn = resp.GetTurn()
		return err
	})
	return turn, err
}

// interrupt ends the turn of a call that was cancelled and waits a little for
// its end, so that what the client does next finds the thread idle.
func (c *call) interrupt(ctx context.Context) {
	if errors.Is(context.Cause(ctx), errGone) {
		return // the end of the session does it, for all turns at once
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	err := c.srv.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		_, err := heddlev1.NewTurnServiceClient(cc).InterruptTurn(ctx, &heddlev1.InterruptTurnRequest{ThreadId: c.thread.GetId(), TurnId: c.turn})
		return err
	})
	if err == nil {
		_, err = c.follow(ctx)
	}
	if err != nil && !errdefs.Is(err, errdefs.NoActiveTurn) {
		c.srv.cfg.Logger.Warn("interrupt a turn whose call was cancelled", "thread", c.thread.GetId(), "error", err)
	}
}

// errEnded stops the stream of events at the end of the turn.
var errEnded = errors.New("the turn has ended")

// follow shows the turn's events, from the thread's last one on, across losses
// of the control plane.
func (c *call) follow(ctx context.Context) (status heddlev1.TurnStatus, err error) {
	after := c.thread.GetLastSeq()
	for {
		err := c.watch(ctx, after, func(ev *heddlev1.Event) error {
			after = max(ev.GetSeq(), ev.GetRangeCompacted().GetLastSeq())
			c.thread.LastSeq = after
			if ev.GetTurnId() != c.turn && ev.GetTurnId() != "" {
				return nil
			}
			c.apply(ctx, ev)
			if done := ev.GetTurnCompleted(); done != nil {
				status = done.GetTurn().GetStatus()
				c.failed = done.GetTurn().GetError()
				return errEnded
			}
			return nil
		})
		switch {
		case errors.Is(err, errEnded):
			return status, nil
		case ctx.Err() != nil:
			return status, ctx.Err()
		case !errors.Is(err, io.EOF) && !upstream.Lost(err) && !errdefs.Is(err, errdefs.SessionUnknown):
			return status, fmt.Errorf("read the thread's events: %w", err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return status, ctx.Err()
		}
	}
}

func (c *call) watch(ctx context.Context, after uint64, handle func(*heddlev1.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stream grpc.ServerStreamingClient[heddlev1.WatchResponse]
	err := c.srv.session.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = heddlev1.NewEventServiceClient(cc).Watch(ctx, &heddlev1.WatchRequest{ThreadId: c.thread.GetId(), After: after})
		return err
	})
	if err != nil {
		return err
	}
	for {
		batch, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, ev := range batch.GetEvents() {
			if err := handle(ev); err != nil {
				return err
			}
		}
	}
}

// apply takes one event of the turn.
func (c *call) apply(ctx context.Context, ev *heddlev1.Event) {
	if m := ev.GetItemCompleted().GetItem().GetAgentMessage(); m != nil {
		c.answer = m.GetText()
	}
	c.show(ctx, ev)
	if a := ev.GetApprovalRequested().GetApproval(); a != nil {
		c.ask(ctx, a)
	}
	if a := ev.GetApprovalResolved().GetApproval(); a != nil {
		if cancel := c.asks[a.GetId()]; cancel != nil {
			cancel()
			delete(c.asks, a.GetId())
		}
	}
}

// plain is an error in the control plane's words alone.
func plain(err error) error {
	if e := errdefs.From(err); e != nil {
		return e
	}
	return err
}
