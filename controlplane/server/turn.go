package server

import (
	"context"
	"unicode/utf8"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// MaxInputChars bounds the text of one input, in characters.
const MaxInputChars = 1 << 20

type turnService struct {
	heddlev1.UnimplementedTurnServiceServer
	*Server
}

func (s *turnService) StartTurn(ctx context.Context, r *heddlev1.StartTurnRequest) (*heddlev1.StartTurnResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkInput(r.GetInput()); err != nil {
		return nil, err
	}
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	patch, err := s.cfg.Settings.Patch(ctx, caller, r.GetSettings())
	if err != nil {
		return nil, err
	}
	gone := r.GetOnDisconnect()
	if caller != "" {
		sess, err := s.cfg.Sessions.Get(caller)
		if err != nil {
			return nil, err
		}
		if gone == heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED {
			gone = sess.OnDisconnect
		}
		s.cfg.Sessions.Hold(caller, row.GetId())
		if gone == heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT && !row.GetEphemeral() {
			s.notePeer(ctx, sess)
		}
	} else if gone == heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED {
		gone = heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE
	}
	ans, err := s.cfg.Agent.StartTurn(ctx, agent.TurnRequest{
		ThreadID: row.GetId(), Input: r.GetInput(), Settings: patch, OutputSchema: r.GetOutputSchema(), SessionID: caller, OnDisconnect: gone,
	})
	if err != nil {
		return nil, err
	}
	return &heddlev1.StartTurnResponse{Turn: ans.Turn, Steered: ans.Steered, ChangedSettings: ans.Changed}, nil
}

func (s *turnService) SteerTurn(ctx context.Context, r *heddlev1.SteerTurnRequest) (*heddlev1.SteerTurnResponse, error) {
	if err := checkInput(r.GetInput()); err != nil {
		return nil, err
	}
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	id, err := s.cfg.Agent.Steer(ctx, row.GetId(), r.GetExpectedTurnId(), r.GetInput())
	if err != nil {
		return nil, err
	}
	return &heddlev1.SteerTurnResponse{TurnId: id}, nil
}

func (s *turnService) InterruptTurn(ctx context.Context, r *heddlev1.InterruptTurnRequest) (*heddlev1.InterruptTurnResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Agent.Interrupt(row.GetId(), r.GetTurnId()); err != nil {
		return nil, err
	}
	return &heddlev1.InterruptTurnResponse{}, nil
}

// checkInput bounds an input before anything is done with it.
func checkInput(in *heddlev1.UserMessage) error {
	chars := 0
	for _, p := range in.GetParts() {
		chars += utf8.RuneCountInString(p.GetText())
	}
	if chars > MaxInputChars {
		return errdefs.New(errdefs.InvalidArgument, "Input exceeds the maximum length of %d characters.", MaxInputChars).
			With("input_error_code", "input_too_large")
	}
	return nil
}
