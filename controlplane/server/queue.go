package server

import (
	"context"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxClientMetadata bounds what a client says for the model provider.
	maxClientMetadata = 16 << 10
	maxMetadataKeys   = 64
)

type queueService struct {
	heddlev1.UnimplementedQueueServiceServer
	*Server
}

// standing is a request for a turn that begins later, if at all: other than
// turnRequest it does not make the caller hold the thread.
func (s *Server) standing(ctx context.Context, threadID string, gone heddlev1.OnDisconnect) (agent.TurnRequest, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return agent.TurnRequest{}, err
	}
	row, err := s.thread(ctx, threadID)
	if err != nil {
		return agent.TurnRequest{}, err
	}
	r := agent.TurnRequest{ThreadID: row.GetId(), SessionID: caller, OnDisconnect: gone}
	switch {
	case gone != heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED:
	case caller == "":
		r.OnDisconnect = heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE
	default:
		sess, err := s.cfg.Sessions.Get(caller)
		if err != nil {
			return agent.TurnRequest{}, err
		}
		r.OnDisconnect = sess.OnDisconnect
		if r.OnDisconnect == heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT && !row.GetEphemeral() {
			s.notePeer(ctx, sess)
		}
	}
	return r, nil
}

// checkQueued bounds what is put into a queue.
func checkQueued(in *heddlev1.UserMessage, metadata map[string]string) error {
	if len(in.GetParts()) == 0 {
		return errdefs.New(errdefs.InvalidArgument, "only user input can be added to the user-message queue")
	}
	if err := checkInput(in); err != nil {
		return err
	}
	return checkMap("client metadata", metadata, maxMetadataKeys, maxClientMetadata)
}

// checkMap bounds a map of a client's own values.
func checkMap(what string, m map[string]string, keys, bytes int) error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	if len(m) > keys || size > bytes {
		return errdefs.New(errdefs.InvalidArgument, "%s must not exceed %d entries of together %d bytes", what, keys, bytes)
	}
	return nil
}

func (s *queueService) AddQueued(ctx context.Context, r *heddlev1.AddQueuedRequest) (*heddlev1.AddQueuedResponse, error) {
	req, err := s.standing(ctx, r.GetThreadId(), r.GetOnDisconnect())
	if err != nil {
		return nil, err
	}
	if err := checkQueued(r.GetInput(), r.GetClientMetadata()); err != nil {
		return nil, err
	}
	req.Input = r.GetInput()
	m, err := s.cfg.Agent.Enqueue(ctx, req, r.GetClientMetadata())
	if err != nil {
		return nil, err
	}
	return &heddlev1.AddQueuedResponse{Message: m}, nil
}

func (s *queueService) ListQueued(ctx context.Context, r *heddlev1.ListQueuedRequest) (*heddlev1.ListQueuedResponse, error) {
	row, err := s.thread(ctx, r.GetThreadId())
	switch {
	case err != nil:
		return nil, err
	case row.GetArchived():
		return nil, errdefs.New(errdefs.ThreadArchived, "thread %s is archived", row.GetId()).With("thread", row.GetId())
	case row.GetEphemeral():
		return nil, errdefs.New(errdefs.InvalidArgument, "ephemeral thread does not support queued submissions: %s", row.GetId())
	}
	st, err := s.store.Load(ctx, row.GetId())
	if err != nil {
		return nil, err
	}
	return &heddlev1.ListQueuedResponse{Queue: st.Queue}, nil
}

func (s *queueService) UpdateQueued(ctx context.Context, r *heddlev1.UpdateQueuedRequest) (*heddlev1.UpdateQueuedResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	if err := checkQueued(r.GetInput(), r.GetClientMetadata()); err != nil {
		return nil, err
	}
	m, err := s.cfg.Agent.UpdateQueued(ctx, r.GetThreadId(), r.GetId(), r.GetInput(), r.GetClientMetadata())
	if err != nil {
		return nil, err
	}
	return &heddlev1.UpdateQueuedResponse{Message: m}, nil
}

func (s *queueService) ReorderQueued(ctx context.Context, r *heddlev1.ReorderQueuedRequest) (*heddlev1.ReorderQueuedResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	if err := s.cfg.Agent.ReorderQueued(ctx, r.GetThreadId(), r.GetIds()); err != nil {
		return nil, err
	}
	return &heddlev1.ReorderQueuedResponse{}, nil
}

func (s *queueService) DeleteQueued(ctx context.Context, r *heddlev1.DeleteQueuedRequest) (*heddlev1.DeleteQueuedResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	deleted, err := s.cfg.Agent.DeleteQueued(ctx, r.GetThreadId(), r.GetId())
	if err != nil {
		return nil, err
	}
	return &heddlev1.DeleteQueuedResponse{Deleted: deleted}, nil
}

func (s *queueService) StartQueued(ctx context.Context, r *heddlev1.StartQueuedRequest) (*heddlev1.StartQueuedResponse, error) {
	req, err := s.standing(ctx, r.GetThreadId(), r.GetOnDisconnect())
	if err != nil {
		return nil, err
	}
	turn, err := s.cfg.Agent.StartQueued(ctx, req, r.GetId())
	if err != nil {
		return nil, err
	}
	return &heddlev1.StartQueuedResponse{Turn: turn}, nil
}
