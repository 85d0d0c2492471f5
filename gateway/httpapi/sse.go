package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// writeTimeout ends a stream whose reader takes nothing; it can come back with
// Last-Event-ID.
const writeTimeout = 30 * time.Second

// eventStream serves a thread's log as server-sent events. grpc-gateway streams
// JSON lines only, so this is ours.
type eventStream struct {
	client    heddlev1.EventServiceClient
	sessionID string
	keepAlive time.Duration
}

type watchResult struct {
	batch *heddlev1.WatchResponse
	err   error
}

func (s *eventStream) serve(w http.ResponseWriter, r *http.Request, thread string) {
	after, err := startAfter(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(r.Context(), sessionKey, s.sessionID))
	defer cancel()
	watch, err := s.client.Watch(ctx, &heddlev1.WatchRequest{ThreadId: thread, After: after})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	results := make(chan watchResult)
	go receive(ctx, watch, results)
	control := http.NewResponseController(w)
	started := false
	start := func() {
		if !started {
			started = true
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusOK)
		}
	}
	tick := time.NewTicker(s.keepAlive)
	defer tick.Stop()
	for {
		var out []byte
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			out = []byte(": keep-alive\n\n")
		case res := <-results:
			if res.err != nil {
				if !started {
					http.Error(w, status.Convert(res.err).Message(), httpStatus(res.err))
				}
				return
			}
			if out, err = encode(res.batch.GetEvents()); err != nil {
				return
			}
		}
		start()
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has one; a plain one then blocks
		if _, err := w.Write(out); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
	}
}

// receive hands on what a watch brings, up to its end.
func receive(ctx context.Context, watch grpc.ServerStreamingClient[heddlev1.WatchResponse], results chan<- watchResult) {
	for {
		batch, err := watch.Recv()
		select {
		case results <- watchResult{batch, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// startAfter reads the seq to resume after: Last-Event-ID, else ?after=N, else 0.
func startAfter(r *http.Request) (uint64, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("after")
	}
	if text == "" {
		return 0, nil
	}
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resume events: %q is not a seq; send the id of the last event you saw", text)
	}
	return after, nil
}

func encode(events []*heddlev1.Event) ([]byte, error) {
	var b strings.Builder
	for _, e := range events {
		data, err := protojson.Marshal(e)
		if err != nil {
			return nil, fmt.Errorf("encode event %d: %w", e.GetSeq(), err)
		}
		fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: %s\n\n", e.GetSeq(), kind(e), data)
	}
	return []byte(b.String()), nil
}

// kind is the name of the event's payload field, such as "turn_started".
func kind(e *heddlev1.Event) string {
	m := e.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("payload"))
	if field == nil {
		return "unknown"
	}
	return string(field.Name())
}

func httpStatus(err error) int {
	switch status.Code(err) {
	case codes.NotFound:
		return http.StatusNotFound
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
