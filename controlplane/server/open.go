package server

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/controlplane/store"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxOpenLog bounds the events that are read to show open items, and
	// maxOpenOutput the output that is shown of a running command.
	maxOpenLog    = 8 << 20
	maxOpenOutput = 128 << 10
)

// showOpen gives the open items of a page what was shown of them up to the
// page's head: their rows have what they began with. A client that goes on from
// the head gets the rest.
func (s *Server) showOpen(ctx context.Context, threadID string, page *heddlev1.ListTurnsResponse) (*heddlev1.ListTurnsResponse, error) {
	open := map[string]*heddlev1.Item{}
	var from uint64
	for _, t := range page.GetTurns() {
		for i, it := range t.GetItems() {
			if it.GetStatus() != heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS || it.GetCompletedAtMs() != 0 {
				continue
			}
			row, err := s.store.Item(ctx, threadID, it.GetId())
			if err != nil || row.ThreadID != threadID {
				// Gone meanwhile, or a fork's view of its source, which has ended.
				continue
			}
			t.Items = slices.Clone(t.GetItems())
			t.Items[i] = proto.CloneOf(it)
			open[it.GetId()] = t.Items[i]
			if from == 0 || row.StartSeq < from {
				from = row.StartSeq
			}
		}
	}
	if len(open) == 0 {
		return page, nil
	}
	return page, s.replayInto(ctx, threadID, from, page.GetHead(), open)
}

// replayInto adds the events of a range to the items.
func (s *Server) replayInto(ctx context.Context, threadID string, from, head uint64, open map[string]*heddlev1.Item) error {
	outputs := map[string]*heddlev1.OutputAdvanced{}
	read := 0
	for after := from; after < head && read < maxOpenLog; {
		events, _, err := s.store.Events(ctx, threadID, after, 0)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			break
		}
		for _, ev := range events {
			if ev.GetSeq() > head {
				break
			}
			read += proto.Size(ev)
			if d := ev.GetItemDelta(); d != nil && open[d.GetItemId()] != nil {
				agent.ShowDelta(open[d.GetItemId()], d)
			}
			if a := ev.GetOutputAdvanced(); a != nil && open[a.GetItemId()] != nil {
				outputs[a.GetItemId()] = a
			}
		}
		after = store.EndOf(events[len(events)-1])
	}
	for id, a := range outputs {
		if c := open[id].GetCommandExecution(); c != nil {
			view, err := s.openOutput(threadID, id, a.GetOffset()+a.GetLength())
			if err != nil {
				return err
			}
			c.AggregatedOutput, c.OutputBytes = view, a.GetOffset()+a.GetLength()
		}
	}
	return nil
}

// openOutput is what a running command has written up to an offset: all of it,
// or a mark and the end.
func (s *Server) openOutput(threadID, itemID string, end int64) ([]byte, error) {
	begin := max(0, end-maxOpenOutput)
	data, _, err := s.cfg.Outputs.ReadAt(threadID, itemID, begin, end-begin)
	if err != nil {
		return nil, fmt.Errorf("read what a command has written: %w", err)
	}
	if begin > 0 {
		data = slices.Concat(fmt.Appendf(nil, "[... %d bytes of output left out ...]\n", begin), data)
	}
	return data, nil
}
