//go:build robust

package robust

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// checkRows compares what lists show of a thread at rest with its log, and
// returns how many rows it saw. A fork shows its source's turns too, which its
// own log does not have.
func (r *run) checkRows(ctx context.Context, conn *grpc.ClientConn, thread string, log []*heddlev1.Event) (int, error) {
	turns, items := map[string]*heddlev1.Turn{}, map[string]*heddlev1.Item{}
	fork := false
	for _, ev := range log {
		if c := ev.GetThreadCreated(); c != nil {
			fork = c.GetThread().GetForkedFromId() != ""
		}
		if t := ev.GetTurnCompleted().GetTurn(); t != nil {
			turns[t.GetId()] = t
		}
		if i := ev.GetItemCompleted().GetItem(); i != nil {
			items[i.GetId()] = i
		}
	}
	svc := heddlev1.NewThreadServiceClient(conn)
	rows := 0
	for token := ""; ; {
		page, err := svc.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: thread, PageToken: token})
		if err != nil {
			return rows, fmt.Errorf("list turns of %s: %w", thread, err)
		}
		for _, row := range page.GetTurns() {
			rows++
			id := row.GetTurn().GetId()
			if want := turns[id]; want == nil && !fork || want != nil && want.GetStatus() != row.GetTurn().GetStatus() {
				r.violate(Violation{thread, 0, fmt.Sprintf("turn %s is listed as %v, the log ends it with %v", id, row.GetTurn().GetStatus(), want.GetStatus())})
			}
			delete(turns, id)
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	for token := ""; ; {
		page, err := svc.ListItems(ctx, &heddlev1.ListItemsRequest{ThreadId: thread, PageToken: token})
		if err != nil {
			return rows, fmt.Errorf("list items of %s: %w", thread, err)
		}
		for _, row := range page.GetItems() {
			rows++
			if want := items[row.GetId()]; want == nil && !fork || want != nil && !proto.Equal(want, row) {
				r.violate(Violation{thread, 0, fmt.Sprintf("item %s is listed as\n  %v\nthe log ends it with\n  %v", row.GetId(), row, want)})
			}
			delete(items, row.GetId())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(turns)+len(items) > 0 {
		r.violate(Violation{thread, 0, fmt.Sprintf("%d turns and %d items of the log are not listed", len(turns), len(items))})
	}
	pending, err := heddlev1.NewApprovalServiceClient(conn).ListPendingApprovals(ctx, &heddlev1.ListPendingApprovalsRequest{ThreadId: thread})
	if err != nil {
		return rows, err
	}
	if n := len(pending.GetApprovals()); n > 0 {
		r.violate(Violation{thread, 0, fmt.Sprintf("%d questions are open", n)})
	}
	return rows, nil
}
