package execmode_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// fake is a control plane whose turn is a list of events. Each step is sent
// when the one before was read; a step may wait for a call.
type fake struct {
	heddlev1.UnimplementedSessionServiceServer
	heddlev1.UnimplementedThreadServiceServer
	heddlev1.UnimplementedTurnServiceServer
	heddlev1.UnimplementedEventServiceServer
	heddlev1.UnimplementedApprovalServiceServer

	thread   *heddlev1.Thread
	attached *heddlev1.Attached
	startErr error
	turns    int64
	// loseAnswer makes the answer to an accepted turn get lost.
	loseAnswer bool
	// before ends on a call, after comes once it was made.
	before, after []*heddlev1.Event

	mu       sync.Mutex
	log      []*heddlev1.Event
	grew     chan struct{}
	sessions []string
	calls    []string
	request  *heddlev1.StartTurnRequest
	started  *heddlev1.StartThreadRequest
	// release is the call after which `after` is logged.
	release string
}

func (f *fake) note(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	if call == f.release {
		f.append(f.after)
		f.after = nil
	}
}

func (f *fake) append(events []*heddlev1.Event) {
	for _, ev := range events {
		ev.Seq = uint64(len(f.log) + 1)
		f.log = append(f.log, ev)
	}
	if f.grew != nil {
		close(f.grew)
	}
	f.grew = make(chan struct{})
}

func (f *fake) made(call string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == call {
			return true
		}
	}
	return false
}

func (f *fake) Attach(req *heddlev1.AttachRequest, stream heddlev1.SessionService_AttachServer) error {
	f.mu.Lock()
	f.sessions = append(f.sessions, req.GetSessionId())
	f.mu.Unlock()
	msg := f.attached
	if msg == nil {
		msg = &heddlev1.Attached{}
	}
	if err := stream.Send(&heddlev1.AttachResponse{Message: &heddlev1.AttachResponse_Attached{Attached: msg}}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (f *fake) Detach(context.Context, *heddlev1.DetachRequest) (*heddlev1.DetachResponse, error) {
	f.note("Detach")
	return &heddlev1.DetachResponse{}, nil
}

func (f *fake) StartThread(_ context.Context, req *heddlev1.StartThreadRequest) (*heddlev1.StartThreadResponse, error) {
	f.started = req
	if f.startErr != nil {
		return nil, f.startErr
	}
	return &heddlev1.StartThreadResponse{Thread: f.thread, Warnings: []string{"thread warning"}}, nil
}

func (f *fake) LoadThread(_ context.Context, req *heddlev1.LoadThreadRequest) (*heddlev1.LoadThreadResponse, error) {
	if req.GetThreadId() != f.thread.GetId() {
		return nil, errdefs.New(errdefs.ThreadNotFound, "thread not found: %s", req.GetThreadId())
	}
	return &heddlev1.LoadThreadResponse{Thread: f.thread}, nil
}

func (f *fake) ListThreads(_ context.Context, req *heddlev1.ListThreadsRequest) (*heddlev1.ListThreadsResponse, error) {
	if len(req.GetCwds()) == 1 && req.GetCwds()[0] == "/ws" {
		return &heddlev1.ListThreadsResponse{Threads: []*heddlev1.Thread{f.thread}}, nil
	}
	return &heddlev1.ListThreadsResponse{}, nil
}

func (f *fake) UnloadThread(context.Context, *heddlev1.UnloadThreadRequest) (*heddlev1.UnloadThreadResponse, error) {
	f.note("UnloadThread")
	return &heddlev1.UnloadThreadResponse{}, nil
}

func (f *fake) TerminateBackgroundTerminal(context.Context, *heddlev1.TerminateBackgroundTerminalRequest) (*heddlev1.TerminateBackgroundTerminalResponse, error) {
	f.note("TerminateBackgroundTerminal")
	return &heddlev1.TerminateBackgroundTerminalResponse{}, nil
}

func (f *fake) GetThread(context.Context, *heddlev1.GetThreadRequest) (*heddlev1.GetThreadResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &heddlev1.GetThreadResponse{Thread: &heddlev1.Thread{Id: f.thread.GetId(), TurnCount: f.turns}}, nil
}

func (f *fake) ListTurns(context.Context, *heddlev1.ListTurnsRequest) (*heddlev1.ListTurnsResponse, error) {
	return &heddlev1.ListTurnsResponse{Turns: []*heddlev1.TurnWithItems{{Turn: &heddlev1.Turn{Id: "t1"}}}}, nil
}

func (f *fake) StartTurn(_ context.Context, req *heddlev1.StartTurnRequest) (*heddlev1.StartTurnResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.request = req
	f.turns++
	f.append(f.before)
	if f.loseAnswer {
		f.loseAnswer = false
		return nil, status.Error(codes.Unavailable, "the connection broke")
	}
	return &heddlev1.StartTurnResponse{Turn: &heddlev1.Turn{Id: "t1"}}, nil
}

func (f *fake) InterruptTurn(context.Context, *heddlev1.InterruptTurnRequest) (*heddlev1.InterruptTurnResponse, error) {
	f.note("InterruptTurn")
	return &heddlev1.InterruptTurnResponse{}, nil
}

func (f *fake) ResolveApproval(_ context.Context, req *heddlev1.ResolveApprovalRequest) (*heddlev1.ResolveApprovalResponse, error) {
	f.note("ResolveApproval " + req.GetDecision().String())
	return &heddlev1.ResolveApprovalResponse{}, nil
}

func (f *fake) Watch(req *heddlev1.WatchRequest, stream heddlev1.EventService_WatchServer) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	if len(md.Get("heddle-session")) != 1 {
		return errdefs.New(errdefs.SessionUnknown, "no session")
	}
	after := req.GetAfter()
	for {
		f.mu.Lock()
		batch, grew := f.log[min(after, uint64(len(f.log))):], f.grew
		f.mu.Unlock()
		if len(batch) > 0 {
			if err := stream.Send(&heddlev1.WatchResponse{Events: batch}); err != nil {
				return err
			}
			after += uint64(len(batch))
			continue
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-grew:
		}
	}
}

// serve returns a dial function; each call of cut drops every connection.
func (f *fake) serve(t *testing.T) (dial func(context.Context) (*grpc.ClientConn, error), cut func()) {
	t.Helper()
	f.grew = make(chan struct{})
	if f.thread == nil {
		f.thread = &heddlev1.Thread{Id: "th1", Settings: &heddlev1.ThreadSettings{Cwd: "/ws"}}
	}
	var mu sync.Mutex
	var lis *bufconn.Listener
	var srv *grpc.Server
	start := func() {
		mu.Lock()
		defer mu.Unlock()
		lis = bufconn.Listen(1 << 20)
		srv = grpc.NewServer(grpc.UnaryInterceptor(errdefs.UnaryServer), grpc.StreamInterceptor(errdefs.StreamServer))
		heddlev1.RegisterSessionServiceServer(srv, f)
		heddlev1.RegisterThreadServiceServer(srv, f)
		heddlev1.RegisterTurnServiceServer(srv, f)
		heddlev1.RegisterEventServiceServer(srv, f)
		heddlev1.RegisterApprovalServiceServer(srv, f)
		go func(l *bufconn.Listener, s *grpc.Server) { _ = s.Serve(l) }(lis, srv)
	}
	start()
	t.Cleanup(func() { mu.Lock(); defer mu.Unlock(); srv.Stop() })
	dial = func(context.Context) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				mu.Lock()
				l := lis
				mu.Unlock()
				return l.DialContext(ctx)
			}))
	}
	cut = func() {
		mu.Lock()
		old := srv
		mu.Unlock()
		start()
		old.Stop()
	}
	return dial, cut
}
