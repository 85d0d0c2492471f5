package appserver

import (
	"context"
	"strconv"
	"time"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

// queueTable returns what is done for a method about a thread's queue.
func queueTable(method string) (entry, bool) {
	switch method {
	case "thread/queue/add":
		return handle((*Server).queueAdd), true
	case "thread/queue/list":
		return handle((*Server).queueList), true
	case "thread/queue/update":
		return handle((*Server).queueUpdate), true
	case "thread/queue/reorder":
		return handle((*Server).queueReorder), true
	case "thread/queue/delete":
		return handle((*Server).queueDelete), true
	case "thread/queue/start":
		return handle((*Server).queueStart), true
	}
	if e, ok := searchTable(method); ok {
		return e, true
	}
	return organizeTable(method)
}

func queueNote(thread string, seq uint64) note {
	return note{method: "thread/queue/changed", all: true, experimental: true, key: "queue/" + thread, seq: seq, params: threadID{thread}}
}

// queueCall runs a call of the queue service, which is not repeated.
func queueCall[T any](ctx context.Context, s *Server, id string, call func(context.Context, heddlev1.QueueServiceClient) (T, error)) (out T, err error) {
	err = s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		out, err = call(ctx, heddlev1.NewQueueServiceClient(cc))
		return err
	})
	return out, queueMissing(err, id)
}

// queueMissing puts it as clients know it that a thread cannot have a queue.
func queueMissing(err error, id string) error {
	switch {
	case errdefs.Is(err, errdefs.ThreadNotFound):
		return &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "failed to read thread: " + textNoRollout + id}
	case errdefs.Is(err, errdefs.ThreadArchived):
		return invalid("session " + id + " is archived. Run `heddle unarchive " + id + "` to unarchive it first.")
	}
	return err
}

// changesQueue holds back what the thread tells until the answer has left, and
// announces the change itself for a thread that is not loaded here.
func (s *Server) changesQueue(r *call, id string) (announce func()) {
	l := s.thread(id)
	if l == nil {
		return func() { r.then(func() { s.broadcast(queueNote(id, 0), nil) }) }
	}
	release := l.hold(r.client)
	r.then(func() { time.AfterFunc(answerGap, release) })
	return func() {}
}

func (s *Server) queueAdd(ctx context.Context, r *call, p *protocol.QueueAddParams) (any, error) {
	input, err := inputOf(p.Input, &p.ClientUserMessageID)
	if err != nil {
		return nil, err
	}
	announce := s.changesQueue(r, p.ThreadID)
	resp, err := queueCall(ctx, s, p.ThreadID, func(ctx context.Context, c heddlev1.QueueServiceClient) (*heddlev1.AddQueuedResponse, error) {
		return c.AddQueued(ctx, &heddlev1.AddQueuedRequest{ThreadId: p.ThreadID, Input: input, ClientMetadata: p.ClientMetadata, OnDisconnect: s.cfg.OnDisconnect})
	})
	if err != nil {
		return nil, err
	}
	announce()
	return list{"queuedSubmission": protocol.FromQueued(resp.GetMessage())}, nil
}

func (s *Server) queueList(ctx context.Context, _ *call, p *protocol.ThreadPageParams) (any, error) {
	resp, err := queueCall(ctx, s, p.ThreadID, func(ctx context.Context, c heddlev1.QueueServiceClient) (*heddlev1.ListQueuedResponse, error) {
		return c.ListQueued(ctx, &heddlev1.ListQueuedRequest{ThreadId: p.ThreadID})
	})
	if err != nil {
		return nil, err
	}
	start := 0
	if p.Cursor != nil {
		n, err := strconv.ParseUint(*p.Cursor, 10, 31)
		if err != nil {
			return nil, invalid("invalid queue pagination cursor: " + *p.Cursor)
		}
		start = int(n)
	}
	all := resp.GetQueue().GetMessages()
	data := []protocol.QueuedSubmission{}
	limit := int(pageSize(p.Limit))
	if limit == 0 {
		limit = 25
	}
	at := min(start, len(all))
	for ; at < len(all) && len(data) < limit; at++ {
		data = append(data, protocol.FromQueued(all[at]))
		if len(data) > 1 && tooLarge(data) {
			data = data[:len(data)-1]
			break
		}
	}
	var next *string
	if at < len(all) {
		n := strconv.Itoa(at)
		next = &n
	}
	return list{"data": data, "nextCursor": next}, nil
}

func (s *Server) queueUpdate(ctx context.Context, r *call, p *protocol.QueueUpdateParams) (any, error) {
	input, err := inputOf(p.Input, nil)
	if err != nil {
		return nil, err
	}
	announce := s.changesQueue(r, p.ThreadID)
	resp, err := queueCall(ctx, s, p.ThreadID, func(ctx context.Context, c heddlev1.QueueServiceClient) (*heddlev1.UpdateQueuedResponse, error) {
		return c.UpdateQueued(ctx, &heddlev1.UpdateQueuedRequest{ThreadId: p.ThreadID, Id: p.QueuedSubmissionID, Input: input, ClientMetadata: p.ClientMetadata})
	})
	if err != nil {
		return nil, err
	}
	announce()
	return list{"queuedSubmission": protocol.FromQueued(resp.GetMessage())}, nil
}

func (s *Server) queueReorder(ctx context.Context, r *call, p *protocol.QueueReorderParams) (any, error) {
	announce := s.changesQueue(r, p.ThreadID)
	_, err := queueCall(ctx, s, p.ThreadID, func(ctx context.Context, c heddlev1.QueueServiceClient) (*heddlev1.ReorderQueuedResponse, error) {
		return c.ReorderQueued(ctx, &heddlev1.ReorderQueuedRequest{ThreadId: p.ThreadID, Ids: p.QueuedSubmissionIDs})
	})
	if err != nil {
		return nil, err
	}
	announce()
	return list{}, nil
}

func (s *Server) queueDelete(ctx context.Context, r *call, p *protocol.QueueDeleteParams) (any, error) {
	announce := s.changesQueue(r, p.ThreadID)
	resp, err := queueCall(ctx, s, p.ThreadID, func(ctx context.Context, c heddlev1.QueueServiceClient) (*heddlev1.DeleteQueuedResponse, error) {
		return c.DeleteQueued(ctx, &heddlev1.DeleteQueuedRequest{ThreadId: p.ThreadID, Id: p.QueuedSubmissionID})
	})
	if err != nil {
		return nil, err
	}
	if resp.GetDeleted() {
		announce()
	}
	return list{"deleted": resp.GetDeleted()}, nil
}

func (s *Server) queueStart(ctx context.Context, r *call, p *protocol.QueueStartParams) (any, error) {
	if s.thread(p.ThreadID) == nil {
		if _, err := s.getThread(ctx, p.ThreadID); err != nil {
			return nil, queueMissing(err, p.ThreadID)
		}
		return nil, invalid("resume the thread before starting a queued message")
	}
	s.changesQueue(r, p.ThreadID)
	resp, err := queueCall(ctx, s, p.ThreadID, func(ctx context.Context, c heddlev1.QueueServiceClient) (*heddlev1.StartQueuedResponse, error) {
		return c.StartQueued(ctx, &heddlev1.StartQueuedRequest{ThreadId: p.ThreadID, Id: text(p.QueuedSubmissionID), OnDisconnect: s.cfg.OnDisconnect})
	})
	if err != nil {
		return nil, err
	}
	turn := protocol.FromTurn(resp.GetTurn())
	turn.StartedAt = nil
	return list{"turn": turn}, nil
}
