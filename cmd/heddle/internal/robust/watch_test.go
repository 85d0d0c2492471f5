//go:build robust

package robust

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// dialControl connects to the home's control plane, whichever runs.
func dialControl(h *home) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+h.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 300 * time.Millisecond}, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
}

// follow watches one thread from its first event for as long as ctx lasts, and
// goes on where it was after every loss.
func (r *run) follow(ctx context.Context, conn *grpc.ClientConn, thread string) {
	cur := &Cursor{Reader: "follower", Thread: thread}
	for ctx.Err() == nil {
		err := r.watch(ctx, conn, cur, 0, 0)
		if ctx.Err() == nil && err != nil {
			r.tally.add("~watch broken and resumed")
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// hop watches random threads from random places, sometimes slowly.
func (r *run) hop(ctx context.Context, conn *grpc.ClientConn, rng *rand.Rand) {
	for ctx.Err() == nil {
		threads := r.threadList()
		if len(threads) == 0 {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		th := threads[rng.IntN(len(threads))]
		cur := &Cursor{Reader: "hopper", Thread: th.id}
		if top := r.seen.Top(th.id); top > 0 {
			cur.After = rng.Uint64N(top + 1)
		}
		part, cancel := context.WithTimeout(ctx, time.Duration(100+rng.IntN(1500))*time.Millisecond)
		_ = r.watch(part, conn, cur, 1+rng.IntN(40), time.Duration(rng.IntN(3)*20)*time.Millisecond)
		cancel()
	}
}

// watch reads up to most batches (0: all) and pauses between them.
func (r *run) watch(ctx context.Context, conn *grpc.ClientConn, cur *Cursor, most int, pause time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := heddlev1.NewEventServiceClient(conn).Watch(ctx, &heddlev1.WatchRequest{ThreadId: cur.Thread, After: cur.After}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for n := 0; most == 0 || n < most; n++ {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		cur.Take(r.seen, resp.GetEvents(), resp.GetHead())
		time.Sleep(pause)
	}
	return nil
}

// readLog reads a thread's log up to its head.
func readLog(ctx context.Context, conn *grpc.ClientConn, thread string, after uint64) ([]*heddlev1.Event, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	row, err := heddlev1.NewThreadServiceClient(conn).GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: thread}, grpc.WaitForReady(true))
	if err != nil {
		return nil, 0, fmt.Errorf("read thread %s: %w", thread, err)
	}
	head := row.GetThread().GetLastSeq()
	if after >= head {
		return nil, head, nil
	}
	stream, err := heddlev1.NewEventServiceClient(conn).Watch(ctx, &heddlev1.WatchRequest{ThreadId: thread, After: after})
	if err != nil {
		return nil, 0, err
	}
	var out []*heddlev1.Event
	for at := after; at < head; {
		resp, err := stream.Recv()
		if err != nil {
			return nil, 0, fmt.Errorf("watch %s after %d: %w", thread, at, err)
		}
		for _, ev := range resp.GetEvents() {
			out = append(out, ev)
			at = lastOf(ev)
		}
		head = max(head, resp.GetHead())
	}
	return out, head, nil
}

// resumeDepth is how many events are compared after each place.
const resumeDepth = 10

// resumePlaces bounds the places of one thread: of a longer log every n-th.
const resumePlaces = 1500

// checkResume watches a thread from every seq and checks that it goes on there
// with what others were shown.
func (r *run) checkResume(ctx context.Context, conn *grpc.ClientConn, thread string, log []*heddlev1.Event) (int, error) {
	var tried int
	end := lastOf(log[len(log)-1])
	stride := 1 + len(log)/resumePlaces
	for i := 0; i < len(log); i += stride {
		from := log[i].GetSeq() - 1
		part, cancel := context.WithTimeout(ctx, 20*time.Second)
		stream, err := heddlev1.NewEventServiceClient(conn).Watch(part, &heddlev1.WatchRequest{ThreadId: thread, After: from})
		var resp *heddlev1.WatchResponse
		if err == nil {
			resp, err = stream.Recv()
		}
		cancel()
		if err != nil {
			return tried, fmt.Errorf("watch %s after %d: %w", thread, from, err)
		}
		tried++
		cur := &Cursor{Reader: "resumed", Thread: thread, After: from}
		cur.Take(r.seen, resp.GetEvents()[:min(len(resp.GetEvents()), resumeDepth)], resp.GetHead())
		if resp.GetHead() > end {
			r.violate(Violation{thread, resp.GetHead(), "the log grew after all had ended"})
			return tried, nil
		}
		if len(resp.GetEvents()) == 0 {
			r.violate(Violation{thread, from, "a watch shows nothing first"})
		}
	}
	return tried, nil
}
