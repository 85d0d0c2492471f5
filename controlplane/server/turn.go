package server

import (
	"context"
	"unicode/utf8"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// MaxInputChars bounds the text of one input, in characters. Clients of the v2
// protocol are held to less, by their gateway; what exec reads from a pipe may
// be this long.
const MaxInputChars = 16 << 20

type turnService struct {
	heddlev1.UnimplementedTurnServiceServer
	*Server
}

func (s *turnService) StartTurn(ctx context.Context, r *heddlev1.StartTurnRequest) (*heddlev1.StartTurnResponse, error) {
	if err := checkInput(r.GetInput()); err != nil {
		return nil, err
	}
	req, err := s.turnRequest(ctx, r.GetThreadId(), r.GetOnDisconnect())
	if err != nil {
		return nil, err
	}
	if req.Settings, err = s.cfg.Settings.Patch(ctx, req.SessionID, r.GetSettings()); err != nil {
		return nil, err
	}
	req.Input, req.OutputSchema = r.GetInput(), r.GetOutputSchema()
	ans, err := s.cfg.Agent.StartTurn(ctx, req)
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
