package server

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// relay connects one Exec stream with one action.
type relay struct {
	stream grpc.BidiStreamingServer[heddlev1.ExecRequest, heddlev1.ExecResponse]
	caps   caps

	// mu lets one sender at a time send; it guards told and the setting of h.
	mu sync.Mutex
	// told is set when the started message was sent, which goes first.
	told bool
	h    *dispatch.Handle
}

// run follows the process to its end.
func (r *relay) run(ctx context.Context, h *dispatch.Handle) error {
	go r.requests(ctx, h)
	select {
	case <-h.Started():
		if h.PID() != 0 {
			if err := r.send(nil); err != nil {
				return err // the end of the stream's context ends the process
			}
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	res, err := h.Result(ctx)
	if err != nil {
		return err
	}
	h.Ack()
	return r.send(&heddlev1.ExecResponse{Message: &heddlev1.ExecResponse_Exited{Exited: exited(res)}})
}

func exited(res *executorv1.ActionResult) *heddlev1.ExecExited {
	if e := res.GetError(); e != nil {
		return &heddlev1.ExecExited{Error: e}
	}
	p := res.GetProcess()
	return &heddlev1.ExecExited{ExitCode: p.GetExitCode(), Verdict: p.GetVerdict(), DurationMs: p.GetDurationMs()}
}

// requests passes on what the client sends until its stream ends, which ends
// the process.
func (r *relay) requests(ctx context.Context, h *dispatch.Handle) {
	for {
		m, err := r.stream.Recv()
		if err != nil {
			_ = h.Terminate(ctx)
			return
		}
		switch k := m.GetMessage().(type) {
		case *heddlev1.ExecRequest_Stdin:
			err = h.Stdin(ctx, k.Stdin.GetData(), k.Stdin.GetClose())
		case *heddlev1.ExecRequest_Resize:
			err = h.Resize(ctx, k.Resize.GetRows(), k.Resize.GetCols())
		case *heddlev1.ExecRequest_Terminate:
			err = h.Terminate(ctx)
		default:
			_ = h.Terminate(ctx)
			return
		}
		if err != nil {
			return // the process has ended
		}
	}
}

// output passes on a chunk; it is called in order.
func (r *relay) output(c *executorv1.OutputChunk) error {
	data, reached, pass := r.caps.cut(c.GetStream(), c.GetData())
	if !pass {
		return nil
	}
	return r.send(&heddlev1.ExecResponse{Message: &heddlev1.ExecResponse_Output{Output: &heddlev1.ExecOutput{
		Stream: c.GetStream(), Data: data, CapReached: reached,
	}}})
}

// send sends a message, started before anything else; nil means only that.
func (r *relay) send(m *heddlev1.ExecResponse) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told && m.GetExited().GetError() == nil {
		r.told = true
		started := &heddlev1.ExecResponse{Message: &heddlev1.ExecResponse_Started{Started: &heddlev1.ExecStarted{Pid: r.h.PID()}}}
		if err := r.stream.Send(started); err != nil {
			return fmt.Errorf("send exec started: %w", err)
		}
	}
	if m == nil {
		return nil
	}
	if err := r.stream.Send(m); err != nil {
		return fmt.Errorf("send exec answer: %w", err)
	}
	return nil
}

// caps cuts each stream after a number of bytes; 0 means no cap.
type caps struct {
	limit  int64
	passed map[int32]int64
}

func newCaps(limit int64) caps { return caps{limit: limit, passed: map[int32]int64{}} }

// cut returns the part of data to pass on, whether the cap is reached with it,
// and whether there is anything to pass on at all.
func (c *caps) cut(stream int32, data []byte) (part []byte, reached, pass bool) {
	if c.limit <= 0 {
		return data, false, len(data) > 0
	}
	room := c.limit - c.passed[stream]
	if room <= 0 || len(data) == 0 {
		return nil, false, false
	}
	part = data[:min(room, int64(len(data)))]
	c.passed[stream] += int64(len(part))
	return part, c.passed[stream] == c.limit, true
}
