package appserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

// maxPlan bounds an approved plan, in bytes.
const maxPlan = 256 << 10

// preparePlan shows a plan that a person approved to the thread's model with its
// next request. A copy in a file is not read: the plan is in the thread.
func (s *Server) preparePlan(ctx context.Context, _ *call, p *protocol.PlanParams) (any, error) {
	switch {
	case strings.TrimSpace(p.Markdown) == "":
		return nil, invalid("The approved plan is empty.")
	case len(p.Markdown) > maxPlan:
		return nil, invalid(fmt.Sprintf("The approved plan has %d bytes, the limit is %d.", len(p.Markdown), maxPlan))
	case s.thread(p.ThreadID) == nil:
		return nil, invalid(textNotFound + p.ThreadID)
	}
	plan := "<approved_plan>\n" + p.Markdown + "\n</approved_plan>\nThe person has approved this plan. Work by it when they ask for it."
	entry := &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{
		Role: "developer", Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: plan}}},
	}}}
	err := s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		_, err := heddlev1.NewThreadServiceClient(cc).InjectItems(ctx, &heddlev1.InjectItemsRequest{ThreadId: p.ThreadID, Entries: []*heddlev1.HistoryEntry{entry}})
		return err
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	return list{"prompt": "Implement the approved plan."}, nil
}
