package appserver

import (
	"context"
	"errors"
	"time"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	"github.com/heddle-dev/heddle/gateway/upstream"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// answerGap is how long a turn's notifications stay behind its answer. A client
// that takes whatever has arrived in one read then gets the answer by itself.
const answerGap = time.Millisecond

func (s *Server) turnStart(ctx context.Context, r *call, p *protocol.TurnStartParams) (any, error) {
	if p.ToolOutput != nil {
		return nil, invalid("turn/start.toolOutput is not supported by this server")
	}
	input, err := inputOf(p.Input, p.ClientUserMessageID)
	if err != nil {
		return nil, err
	}
	settings, err := s.settle(turnSettings(p))
	if err != nil {
		return nil, err
	}
	l := s.thread(p.ThreadID)
	if l == nil {
		return nil, invalid(textNotFound + p.ThreadID)
	}
	req := &heddlev1.StartTurnRequest{
		ThreadId: p.ThreadID, Input: input, Settings: settings, OutputSchema: protocol.ToStruct(p.OutputSchema), OnDisconnect: s.cfg.OnDisconnect,
	}
	release := l.hold(r.client)
	r.then(func() {
		time.AfterFunc(answerGap, release)
	})
	resp, err := s.startTurn(ctx, req)
	switch {
	case errdefs.Is(err, errdefs.TurnNotSteerable):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "failed to submit turn input: " + err.Error()}
	case err != nil:
		return nil, named(err, textNotFound, p.ThreadID)
	}
	for _, w := range resp.GetWarnings() {
		r.client.tell("warning", warningParams(p.ThreadID, w))
	}
	turn := protocol.FromTurn(resp.GetTurn())
	if !resp.GetSteered() {
		turn.StartedAt = nil
	}
	return list{"turn": turn}, nil
}

// acceptedWait bounds the look at what became of a lost call.
const acceptedWait = 30 * time.Second

// startTurn starts a turn. When the connection is lost under way it looks
// whether the turn was accepted before it asks again, so that no input runs
// twice.
func (s *Server) startTurn(ctx context.Context, req *heddlev1.StartTurnRequest) (*heddlev1.StartTurnResponse, error) {
	var resp *heddlev1.StartTurnResponse
	sent := time.Now()
	for {
		err := s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
			resp, err = heddlev1.NewTurnServiceClient(cc).StartTurn(ctx, req)
			return err
		})
		if !errors.Is(err, upstream.ErrAmbiguous) {
			return resp, err
		}
		turn, busy, lookErr := s.acceptedTurn(ctx, req, sent)
		switch {
		case lookErr != nil:
			return nil, lookErr
		case turn != nil:
			return &heddlev1.StartTurnResponse{Turn: turn}, nil
		case busy:
			// The input may have steered the turn that runs.
			return nil, err
		}
	}
}

// acceptedTurn finds the turn that a lost call started. busy is true when
// another turn runs.
func (s *Server) acceptedTurn(ctx context.Context, req *heddlev1.StartTurnRequest, sent time.Time) (turn *heddlev1.Turn, busy bool, err error) {
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ListTurnsResponse, error) {
		return c.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: req.GetThreadId(), PageSize: 1, View: heddlev1.ItemsView_ITEMS_VIEW_FULL})
	})
	if err != nil || len(resp.GetTurns()) == 0 {
		return nil, false, err
	}
	newest := resp.GetTurns()[0]
	t := newest.GetTurn()
	// Clocks of two machines may differ a little.
	recent := t.GetAcceptedAtMs() >= sent.Add(-time.Second).UnixMilli() && t.GetSessionId() == s.session.ID()
	if recent {
		in, err := s.acceptedInput(ctx, t)
		if err != nil {
			return nil, false, err
		}
		if proto.Equal(withoutData(in), withoutData(req.GetInput())) {
			return t, false, nil
		}
	}
	return nil, t.GetStatus() == heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS, nil
}

// acceptedInput is the input with which a turn was accepted, shown or not: the
// turn of a request that came just before must not pass for the one of a request
// that got lost.
func (s *Server) acceptedInput(ctx context.Context, t *heddlev1.Turn) (in *heddlev1.UserMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, acceptedWait)
	defer cancel()
	err = s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		stream, err := heddlev1.NewEventServiceClient(cc).Watch(ctx, &heddlev1.WatchRequest{ThreadId: t.GetThreadId(), After: t.GetFirstSeq() - 1})
		if err != nil {
			return err
		}
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, ev := range resp.GetEvents() {
			if a := ev.GetTurnAccepted(); a.GetTurn().GetId() == t.GetId() {
				in = a.GetInput()
			}
		}
		return nil
	})
	return in, err
}

func withoutData(m *heddlev1.UserMessage) *heddlev1.UserMessage {
	c := proto.CloneOf(m)
	for _, p := range c.GetParts() {
		p.ImageData, p.ImageMime = nil, ""
	}
	return c
}

func (s *Server) turnSteer(ctx context.Context, r *call, p *protocol.TurnSteerParams) (any, error) {
	input, err := inputOf(p.Input, p.ClientUserMessageID)
	if err != nil {
		return nil, err
	}
	l := s.thread(p.ThreadID)
	if l == nil {
		return nil, invalid(textNotFound + p.ThreadID)
	}
	if len(p.Input) == 0 {
		return nil, invalid("input must not be empty")
	}
	r.then(l.hold(r.client))
	var resp *heddlev1.SteerTurnResponse
	err = s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		resp, err = heddlev1.NewTurnServiceClient(cc).SteerTurn(ctx, &heddlev1.SteerTurnRequest{
			ThreadId: p.ThreadID, ExpectedTurnId: p.ExpectedTurnID, Input: input,
		})
		return err
	})
	switch e := errdefs.From(err); {
	case err == nil:
		return list{"turnId": resp.GetTurnId()}, nil
	case e == nil:
		return nil, err
	case e.Reason == errdefs.NoActiveTurn:
		return nil, invalid("no active turn to steer")
	case e.Reason == errdefs.TurnMismatch:
		return nil, invalid("expected active turn id `" + p.ExpectedTurnID + "` but found `" + foundTurn(e) + "`")
	case e.Reason == errdefs.TurnNotSteerable:
		return nil, notSteerable(e)
	}
	return nil, named(err, textNotFound, p.ThreadID)
}

func foundTurn(e *errdefs.Error) string {
	for _, k := range []string{"found", "actual", "turn_id", "active_turn_id"} {
		if v := e.Meta[k]; v != "" {
			return v
		}
	}
	return ""
}

func notSteerable(e *errdefs.Error) error {
	kind := e.Meta["kind"]
	if kind != "review" {
		kind = "compact"
	}
	message := "cannot steer a " + kind + " turn"
	out := invalid(message)
	out.Data = list{
		"message": message, "additionalDetails": nil,
		"codexErrorInfo": list{"activeTurnNotSteerable": list{"turnKind": kind}},
	}
	return out
}

func (s *Server) turnInterrupt(ctx context.Context, r *call, p *protocol.TurnInterruptParams) (any, error) {
	l := s.thread(p.ThreadID)
	if l == nil {
		return nil, invalid(textNotFound + p.ThreadID)
	}
	r.then(l.hold(r.client))
	err := s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		_, err := heddlev1.NewTurnServiceClient(cc).InterruptTurn(ctx, &heddlev1.InterruptTurnRequest{ThreadId: p.ThreadID, TurnId: p.TurnID})
		return err
	})
	switch e := errdefs.From(err); {
	case err == nil:
		return list{}, nil
	case e == nil:
		return nil, err
	case e.Reason == errdefs.NoActiveTurn && p.TurnID == "":
		// Whatever may be starting: nothing was.
		return list{}, nil
	case e.Reason == errdefs.NoActiveTurn:
		return nil, invalid("no active turn to interrupt")
	case e.Reason == errdefs.TurnMismatch:
		return nil, invalid("expected active turn id " + p.TurnID + " but found " + foundTurn(e))
	}
	return nil, named(err, textNotFound, p.ThreadID)
}
