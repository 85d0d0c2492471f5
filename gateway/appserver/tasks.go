package appserver

import (
	"context"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

// turns runs a call of the turn service, which may not be repeated.
func turns[T any](ctx context.Context, s *Server, call func(context.Context, heddlev1.TurnServiceClient) (T, error)) (out T, err error) {
	err = s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		out, err = call(ctx, heddlev1.NewTurnServiceClient(cc))
		return err
	})
	return out, err
}

// behind holds back what the request's thread tells until its answer has left.
// It refuses a thread that is not loaded.
func (s *Server) behind(r *call, thread string) error {
	l := s.thread(thread)
	if l == nil {
		return invalid(textNotFound + thread)
	}
	release := l.hold(r.client)
	r.then(func() { time.AfterFunc(answerGap, release) })
	return nil
}

func (s *Server) compactStart(ctx context.Context, r *call, p *protocol.ThreadParams) (any, error) {
	if err := s.behind(r, p.ThreadID); err != nil {
		return nil, err
	}
	_, err := turns(ctx, s, func(ctx context.Context, c heddlev1.TurnServiceClient) (*heddlev1.CompactThreadResponse, error) {
		return c.CompactThread(ctx, &heddlev1.CompactThreadRequest{ThreadId: p.ThreadID})
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	return list{}, nil
}

func (s *Server) reviewStart(ctx context.Context, r *call, p *protocol.ReviewStartParams) (any, error) {
	req, err := reviewRequest(p)
	if err != nil {
		return nil, err
	}
	if err := s.behind(r, p.ThreadID); err != nil {
		return nil, err
	}
	resp, err := turns(ctx, s, func(ctx context.Context, c heddlev1.TurnServiceClient) (*heddlev1.StartReviewResponse, error) {
		return c.StartReview(ctx, req)
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	turn := protocol.FromTurn(resp.GetTurn())
	turn.StartedAt = nil
	label := protocol.FromItem(&heddlev1.Item{Id: turn.ID, Content: &heddlev1.Item_UserMessage{UserMessage: &heddlev1.UserMessage{
		Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: resp.GetLabel()}}},
	}}}, protocol.ItemOptions{})
	turn.Items = []any{label}
	return list{"turn": turn, "reviewThreadId": p.ThreadID}, nil
}

func reviewRequest(p *protocol.ReviewStartParams) (*heddlev1.StartReviewRequest, error) {
	req := &heddlev1.StartReviewRequest{ThreadId: p.ThreadID}
	needed, name := p.Target.Type, ""
	switch p.Target.Type {
	case "baseBranch":
		needed, name = p.Target.Branch, "branch"
		req.Target = &heddlev1.StartReviewRequest_BaseBranch_{BaseBranch: &heddlev1.StartReviewRequest_BaseBranch{Branch: p.Target.Branch}}
	case "commit":
		needed, name = p.Target.SHA, "sha"
		req.Target = &heddlev1.StartReviewRequest_Commit_{Commit: &heddlev1.StartReviewRequest_Commit{Sha: p.Target.SHA, Title: text(p.Target.Title)}}
	case "custom":
		needed, name = p.Target.Instructions, "instructions"
		req.Target = &heddlev1.StartReviewRequest_Custom{Custom: p.Target.Instructions}
	default:
		req.Target = &heddlev1.StartReviewRequest_Uncommitted{Uncommitted: &heddlev1.StartReviewRequest_UncommittedChanges{}}
	}
	if strings.TrimSpace(needed) == "" {
		return nil, invalid(name + " must not be empty")
	}
	return req, nil
}

func (s *Server) shellCommand(ctx context.Context, r *call, p *protocol.ShellCommandParams) (any, error) {
	req := &heddlev1.RunShellCommandRequest{ThreadId: p.ThreadID, Command: p.Command}
	if strings.TrimSpace(p.Command) == "" {
		return nil, invalid("command must not be empty")
	}
	if p.TimeoutMs != nil {
		if *p.TimeoutMs < 0 {
			return nil, params("timeoutMs must not be negative")
		}
		req.TimeoutMs = *p.TimeoutMs
	}
	if err := s.behind(r, p.ThreadID); err != nil {
		return nil, err
	}
	_, err := turns(ctx, s, func(ctx context.Context, c heddlev1.TurnServiceClient) (*heddlev1.RunShellCommandResponse, error) {
		return c.RunShellCommand(ctx, req)
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	return list{}, nil
}

func (s *Server) injectItems(ctx context.Context, _ *call, p *protocol.InjectItemsParams) (any, error) {
	req := &heddlev1.InjectItemsRequest{ThreadId: p.ThreadID}
	if len(p.Items) == 0 {
		return nil, invalid("items must not be empty")
	}
	for _, raw := range p.Items {
		e, err := protocol.ToHistory(raw)
		if err != nil {
			return nil, invalid("Invalid request: " + err.Error())
		}
		req.Entries = append(req.Entries, e)
	}
	if s.thread(p.ThreadID) == nil {
		return nil, invalid(textNotFound + p.ThreadID)
	}
	err := s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		_, err := heddlev1.NewThreadServiceClient(cc).InjectItems(ctx, req)
		return err
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	return list{}, nil
}

func (s *Server) goalSet(ctx context.Context, r *call, p *protocol.GoalSetParams) (any, error) {
	if p.Objective != nil && strings.TrimSpace(*p.Objective) == "" {
		return nil, invalid("goal objective must not be empty")
	}
	if err := s.behind(r, p.ThreadID); err != nil {
		return nil, err
	}
	var resp *heddlev1.SetGoalResponse
	err := s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		resp, err = heddlev1.NewThreadServiceClient(cc).SetGoal(ctx, &heddlev1.SetGoalRequest{
			ThreadId: p.ThreadID, Objective: strings.TrimSpace(text(p.Objective)), Status: text(p.Status), TokenBudget: p.TokenBudget,
		})
		return err
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	return list{"goal": protocol.FromGoal(p.ThreadID, resp.GetGoal())}, nil
}

func (s *Server) goalGet(ctx context.Context, _ *call, p *protocol.ThreadParams) (any, error) {
	t, err := s.getThread(ctx, p.ThreadID)
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	return list{"goal": protocol.FromGoal(p.ThreadID, t.GetGoal())}, nil
}

func (s *Server) goalClear(ctx context.Context, r *call, p *protocol.GoalClearParams) (any, error) {
	if err := s.behind(r, p.ThreadID); err != nil {
		return nil, err
	}
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ClearGoalResponse, error) {
		return c.ClearGoal(ctx, &heddlev1.ClearGoalRequest{ThreadId: p.ThreadID})
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	return list{"cleared": resp.GetCleared()}, nil
}

// goalNote tells of a goal as it is now.
func goalNote(thread, turn string, g *heddlev1.Goal, seq uint64) note {
	if g == nil {
		return note{method: "thread/goal/cleared", all: true, seq: seq, params: threadID{thread}}
	}
	var turnID *string
	if turn != "" {
		turnID = &turn
	}
	return note{method: "thread/goal/updated", all: true, seq: seq, params: list{"threadId": thread, "turnId": turnID, "goal": protocol.FromGoal(thread, g)}}
}

func (s *Server) threadRevert(ctx context.Context, r *call, p *protocol.RevertParams) (any, error) {
	if err := s.behind(r, p.ThreadID); err != nil {
		return nil, err
	}
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.RevertThreadResponse, error) {
		return c.RevertThread(ctx, &heddlev1.RevertThreadRequest{ThreadId: p.ThreadID, BeforeTurnId: p.BeforeTurnID})
	})
	switch {
	case errdefs.Is(err, errdefs.TurnNotFound):
		return nil, invalid("turn not found: " + p.BeforeTurnID)
	case err != nil:
		return nil, named(err, textNotFound, p.ThreadID)
	}
	var pages protocol.Resumed
	if _, err := s.pageTokens(ctx, resp.GetThread(), &pages); err != nil {
		return nil, err
	}
	return list{"thread": s.wire(resp.GetThread()), "turnsBackwardsCursor": pages.TurnsBackwardsCursor, "itemsBackwardsCursor": pages.ItemsBackwardsCursor}, nil
}
