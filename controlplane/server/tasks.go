package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxShellCommand bounds the text of one command, in bytes.
const maxShellCommand = 128 << 10

// turnRequest is a request for a turn of the caller in a thread, with what the
// loss of the caller means for it.
func (s *Server) turnRequest(ctx context.Context, threadID string, gone heddlev1.OnDisconnect) (agent.TurnRequest, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return agent.TurnRequest{}, err
	}
	row, err := s.thread(ctx, threadID)
	if err != nil {
		return agent.TurnRequest{}, err
	}
	r := agent.TurnRequest{ThreadID: row.GetId(), SessionID: caller, OnDisconnect: gone}
	if caller == "" {
		if gone == heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED {
			r.OnDisconnect = heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE
		}
		return r, nil
	}
	sess, err := s.cfg.Sessions.Get(caller)
	if err != nil {
		return agent.TurnRequest{}, err
	}
	if gone == heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED {
		r.OnDisconnect = sess.OnDisconnect
	}
	s.cfg.Sessions.Hold(caller, row.GetId())
	if r.OnDisconnect == heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT && !row.GetEphemeral() {
		s.notePeer(ctx, sess)
	}
	return r, nil
}

func (s *turnService) CompactThread(ctx context.Context, r *heddlev1.CompactThreadRequest) (*heddlev1.CompactThreadResponse, error) {
	req, err := s.turnRequest(ctx, r.GetThreadId(), heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED)
	if err != nil {
		return nil, err
	}
	turn, err := s.cfg.Agent.Compact(ctx, req)
	if err != nil {
		return nil, err
	}
	return &heddlev1.CompactThreadResponse{Turn: turn}, nil
}

func (s *turnService) StartReview(ctx context.Context, r *heddlev1.StartReviewRequest) (*heddlev1.StartReviewResponse, error) {
	task, err := reviewTask(r)
	if err != nil {
		return nil, err
	}
	req, err := s.turnRequest(ctx, r.GetThreadId(), heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED)
	if err != nil {
		return nil, err
	}
	turn, err := s.cfg.Agent.Review(ctx, req, task)
	if err != nil {
		return nil, err
	}
	return &heddlev1.StartReviewResponse{Turn: turn, Label: task.GetHint()}, nil
}

// reviewTask is what a reviewer is asked for a target.
func reviewTask(r *heddlev1.StartReviewRequest) (*heddlev1.ReviewTask, error) {
	missing := func(what string) error { return errdefs.New(errdefs.InvalidArgument, "%s must not be empty", what) }
	switch t := r.GetTarget().(type) {
	case *heddlev1.StartReviewRequest_Uncommitted:
		return &heddlev1.ReviewTask{
			Hint:   "current changes",
			Prompt: "Review the changes in the working tree that are not committed (staged, unstaged, and untracked files) and report your findings.",
		}, nil
	case *heddlev1.StartReviewRequest_BaseBranch_:
		branch := strings.TrimSpace(t.BaseBranch.GetBranch())
		if branch == "" {
			return nil, missing("branch")
		}
		return &heddlev1.ReviewTask{
			Hint: fmt.Sprintf("changes against '%s'", branch),
			Prompt: fmt.Sprintf("Review the changes of the current branch against the branch '%s'. Find the merge base (git merge-base HEAD %q; when the branch is "+
				"behind its upstream, use the upstream), read git diff from there, and report your findings.", branch, branch),
		}, nil
	case *heddlev1.StartReviewRequest_Commit_:
		sha := strings.TrimSpace(t.Commit.GetSha())
		if sha == "" {
			return nil, missing("sha")
		}
		hint, of := "commit "+sha[:min(len(sha), 7)], sha
		if title := strings.TrimSpace(t.Commit.GetTitle()); title != "" {
			hint += ": " + title
			of += fmt.Sprintf(" (%q)", title)
		}
		return &heddlev1.ReviewTask{Hint: hint, Prompt: "Review what the commit " + of + " changes and report your findings."}, nil
	case *heddlev1.StartReviewRequest_Custom:
		text := strings.TrimSpace(t.Custom)
		if text == "" {
			return nil, missing("instructions")
		}
		return &heddlev1.ReviewTask{Hint: text, Prompt: text}, nil
	}
	return nil, missing("target")
}

func (s *turnService) RunShellCommand(ctx context.Context, r *heddlev1.RunShellCommandRequest) (*heddlev1.RunShellCommandResponse, error) {
	cmd := r.GetCommand()
	switch {
	case strings.TrimSpace(cmd) == "":
		return nil, errdefs.New(errdefs.InvalidArgument, "command must not be empty")
	case len(cmd) > maxShellCommand:
		return nil, errdefs.New(errdefs.InvalidArgument, "the command has %d bytes, the limit is %d", len(cmd), maxShellCommand)
	case strings.ContainsRune(cmd, 0):
		return nil, errdefs.New(errdefs.InvalidArgument, "a command cannot contain a zero byte")
	case r.GetTimeoutMs() < 0:
		return nil, errdefs.New(errdefs.InvalidArgument, "the timeout must not be negative")
	}
	req, err := s.turnRequest(ctx, r.GetThreadId(), heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED)
	if err != nil {
		return nil, err
	}
	id, err := s.cfg.Agent.Shell(ctx, req, &heddlev1.ShellTask{Command: cmd, TimeoutMs: r.GetTimeoutMs()})
	if err != nil {
		return nil, err
	}
	return &heddlev1.RunShellCommandResponse{TurnId: id}, nil
}
