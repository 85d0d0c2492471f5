package server

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func agentItem(id, text string) *heddlev1.Item {
	return &heddlev1.Item{Id: id, Content: &heddlev1.Item_AgentMessage{AgentMessage: &heddlev1.AgentMessage{Text: text}}}
}

// P12: a message that callers could not take keeps everything but the middle of its
// longest texts; what the log holds is not touched.
func TestLargeAnswersAreFitted(t *testing.T) {
	long := strings.Repeat("0123456789ä", 5_000_000)
	kept := &heddlev1.ListItemsResponse{Items: []*heddlev1.Item{agentItem("a", "short"), agentItem("b", long), agentItem("c", "last")}}
	before := proto.Size(kept)
	got, err := FitUnary(t.Context(), nil, nil, func(context.Context, any) (any, error) { return kept, nil })
	resp, _ := got.(*heddlev1.ListItemsResponse)
	if err != nil || len(resp.GetItems()) != 3 || proto.Size(resp) > maxAnswer {
		t.Fatal(len(resp.GetItems()), proto.Size(resp), err)
	}
	text := resp.GetItems()[1].GetAgentMessage().GetText()
	if !strings.HasPrefix(text, "0123456789ä01") || !strings.HasSuffix(text, "9ä") || !strings.Contains(text, " of 60000000 omitted ...]") || strings.ToValidUTF8(text, "") != text {
		t.Errorf("%d bytes: %.40q", len(text), text)
	}
	if resp.GetItems()[0].GetAgentMessage().GetText() != "short" || proto.Size(kept) != before {
		t.Error("something else was changed")
	}
	small := &heddlev1.ListItemsResponse{Items: kept.GetItems()[:1]}
	if got, _ := FitUnary(t.Context(), nil, nil, func(context.Context, any) (any, error) { return small, nil }); got != any(small) {
		t.Error("a small answer was copied")
	}
	sink := &sink{}
	err = FitStream(nil, sink, nil, func(_ any, ss grpc.ServerStream) error { return ss.SendMsg(kept) })
	if m, _ := sink.last.(proto.Message); err != nil || proto.Size(m) > maxAnswer {
		t.Errorf("a stream sends %d bytes, %v", proto.Size(m), err)
	}
}

type sink struct {
	grpc.ServerStream
	last any
}

func (s *sink) SendMsg(m any) error { s.last = m; return nil }
