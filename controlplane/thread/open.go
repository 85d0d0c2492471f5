package thread

import (
	"cmp"
	"maps"
	"slices"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// OpenItems returns the open items in the order of their start.
func (s *State) OpenItems() []*heddlev1.Item {
	rows := slices.SortedFunc(maps.Values(s.Items), func(a, b OpenItem) int { return cmp.Compare(a.StartSeq, b.StartSeq) })
	items := make([]*heddlev1.Item, 0, len(rows))
	for _, r := range rows {
		items = append(items, r.Item)
	}
	return items
}

// OpenActions returns the unresolved actions in the order of their ids.
func (s *State) OpenActions() []*heddlev1.ActionIntent {
	return slices.SortedFunc(maps.Values(s.Actions), func(a, b *heddlev1.ActionIntent) int { return cmp.Compare(a.GetActionId(), b.GetActionId()) })
}

// PendingApprovals returns the undecided approvals in the order of their
// request ids.
func (s *State) PendingApprovals() []*heddlev1.Approval {
	return slices.SortedFunc(maps.Values(s.Approvals), func(a, b *heddlev1.Approval) int { return cmp.Compare(a.GetRequestId(), b.GetRequestId()) })
}

// OpenTurns returns the open turns in order.
func (s *State) OpenTurns() []*heddlev1.Turn {
	return slices.SortedFunc(maps.Values(s.Turns), func(a, b *heddlev1.Turn) int { return cmp.Compare(a.GetOrdinal(), b.GetOrdinal()) })
}
