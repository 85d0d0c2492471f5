package appserver

import (
	"context"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

// resumeHistory makes a new thread whose model is shown the given history; the
// id that it is asked for is that of nothing here.
func (s *Server) resumeHistory(ctx context.Context, r *call, p *protocol.ThreadResumeParams) (any, error) {
	switch {
	case s.thread(p.ThreadID) != nil:
		return nil, invalid("cannot resume thread " + p.ThreadID + " with history while it is already running")
	case len(p.History) == 0:
		return nil, invalid("history must not be empty")
	}
	inject := &heddlev1.InjectItemsRequest{}
	for _, raw := range p.History {
		e, err := protocol.ToHistory(raw)
		if err != nil {
			return nil, invalid("Invalid request: " + err.Error())
		}
		inject.Entries = append(inject.Entries, e)
	}
	settings, err := s.settle(resumeSettings(p))
	if err != nil {
		return nil, err
	}
	var t *heddlev1.Thread
	err = s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		c := heddlev1.NewThreadServiceClient(cc)
		resp, err := c.StartThread(ctx, &heddlev1.StartThreadRequest{
			Settings: settings, Source: s.cfg.Source, Originator: s.originatorName(), Version: s.cfg.Version,
		})
		if err != nil {
			return err
		}
		inject.ThreadId = resp.GetThread().GetId()
		if _, err := c.InjectItems(ctx, inject); err != nil {
			// A thread without its history is not what was asked for.
			_, _ = c.DeleteThread(context.WithoutCancel(ctx), &heddlev1.DeleteThreadRequest{ThreadId: inject.GetThreadId()})
			return err
		}
		row, err := c.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: inject.GetThreadId()})
		t = row.GetThread()
		return err
	})
	if err != nil {
		return nil, err
	}
	l, _, err := s.load(t, nil)
	if err != nil {
		return nil, err
	}
	release := l.subscribe(r.client, t, nil)
	r.then(func() {
		defer release()
		s.welcome(r.client, t, "", nil)
	})
	return protocol.Resumed{Opened: protocol.FromOpened(t, s.wire(t)), CollaborationMode: protocol.ModeOf(t.GetSettings())}, nil
}
