package server

import (
	"context"

	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxOutputRead bounds one ReadOutput answer.
const maxOutputRead = 1 << 20

type eventService struct {
	heddlev1.UnimplementedEventServiceServer
	*Server
}

func (s *eventService) Watch(r *heddlev1.WatchRequest, stream grpc.ServerStreamingServer[heddlev1.WatchResponse]) error {
	ctx := stream.Context()
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return err
	}
	w := s.cfg.Log.Watch(r.GetThreadId(), r.GetAfter())
	defer w.Close()
	for {
		events, head, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&heddlev1.WatchResponse{Events: events, Head: head}); err != nil {
			return err
		}
	}
}

// readLength is how much is read at a time of what was asked for; 0 asks for as
// much as there may be.
func readLength(offset, length int64) (int64, error) {
	if offset < 0 || length < 0 {
		return 0, errdefs.New(errdefs.InvalidArgument, "offset and length must not be negative")
	}
	if length == 0 || length > maxOutputRead {
		return maxOutputRead, nil
	}
	return length, nil
}

func (s *eventService) ReadOutput(ctx context.Context, r *heddlev1.ReadOutputRequest) (*heddlev1.ReadOutputResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	length, err := readLength(r.GetOffset(), r.GetLength())
	if err != nil {
		return nil, err
	}
	// A fork shows items whose bytes lie with its source.
	item, err := s.store.Item(ctx, r.GetThreadId(), r.GetItemId())
	if err != nil {
		return nil, err
	}
	data, total, err := s.cfg.Outputs.ReadAt(item.ThreadID, r.GetItemId(), r.GetOffset(), length)
	if err != nil {
		return nil, err
	}
	return &heddlev1.ReadOutputResponse{Data: data, Offset: r.GetOffset(), Total: total}, nil
}
