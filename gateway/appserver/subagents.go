package appserver

import (
	"context"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// started are the sub-agents that an event says were started.
func started(e *heddlev1.Event) []string {
	it := e.GetItemCompleted().GetItem()
	if a := it.GetAgentCall(); a.GetTool() == "spawnAgent" && it.GetStatus() == heddlev1.ItemStatus_ITEM_STATUS_COMPLETED {
		return a.GetReceiverThreadIds()
	}
	return nil
}

// followAgent subscribes a connection to a sub-agent of a thread that it follows,
// so that it sees what the agent does and is asked about it. With fresh set it is
// shown everything from the agent's beginning.
func (s *Server) followAgent(ctx context.Context, c *client, id string, fresh bool) {
	resp, err := threads(ctx, s, func(ctx context.Context, cc heddlev1.ThreadServiceClient) (*heddlev1.LoadThreadResponse, error) {
		return cc.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: id})
	})
	if err != nil {
		s.log.Info("following a sub-agent failed", "thread", id, "error", err)
		return
	}
	t, pending := resp.GetThread(), resp.GetPendingApprovals()
	l, _, err := s.load(t, pending)
	if err != nil {
		s.log.Info("following a sub-agent failed", "thread", id, "error", err)
		return
	}
	from := t
	if fresh {
		// Its first event made it; the questions come as events too.
		from = proto.CloneOf(t)
		from.LastSeq, from.State = 1, heddlev1.ThreadState_THREAD_STATE_IDLE
		pending = nil
	}
	release := l.subscribe(c, from, pending)
	defer release()
	for _, a := range pending {
		if a.GetReviewer() != "" {
			continue
		}
		if err := c.ask(c.ctx, a); err != nil {
			s.log.Debug("asking again failed", "thread", id, "error", err)
		}
	}
}
