package upstream_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/heddle-dev/heddle/gateway/upstream"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// plane is a control plane that can be told to drain.
type plane struct {
	heddlev1.UnimplementedSessionServiceServer
	heddlev1.UnimplementedCatalogServiceServer
	name   string
	drain  chan struct{}
	finish chan struct{} // holds calls back while it is open
	server *grpc.Server
	lis    *bufconn.Listener

	mu       sync.Mutex
	stopping bool
	calls    int
	gone     chan struct{}
}

func newPlane(t *testing.T, name string) *plane {
	t.Helper()
	p := &plane{name: name, drain: make(chan struct{}), finish: make(chan struct{}), lis: bufconn.Listen(1 << 16), gone: make(chan struct{})}
	p.server = grpc.NewServer(grpc.UnaryInterceptor(errdefs.UnaryServer), grpc.StreamInterceptor(errdefs.StreamServer))
	heddlev1.RegisterSessionServiceServer(p.server, p)
	heddlev1.RegisterCatalogServiceServer(p.server, p)
	go func() { _ = p.server.Serve(p.lis) }()
	t.Cleanup(p.server.Stop)
	return p
}

func (p *plane) Attach(_ *heddlev1.AttachRequest, s grpc.ServerStreamingServer[heddlev1.AttachResponse]) error {
	if err := s.Send(&heddlev1.AttachResponse{Message: &heddlev1.AttachResponse_Attached{Attached: &heddlev1.Attached{Home: p.name}}}); err != nil {
		return err
	}
	select {
	case <-p.drain:
	case <-s.Context().Done():
		return nil
	}
	if err := s.Send(&heddlev1.AttachResponse{Message: &heddlev1.AttachResponse_Draining{Draining: &heddlev1.Draining{Reason: "test"}}}); err != nil {
		return err
	}
	<-s.Context().Done()
	close(p.gone)
	return nil
}

func (p *plane) Detach(context.Context, *heddlev1.DetachRequest) (*heddlev1.DetachResponse, error) {
	return &heddlev1.DetachResponse{}, nil
}

func (p *plane) GetStatus(ctx context.Context, _ *heddlev1.GetStatusRequest) (*heddlev1.GetStatusResponse, error) {
	p.mu.Lock()
	p.calls++
	stopping := p.stopping
	p.mu.Unlock()
	if stopping {
		return nil, errdefs.New(errdefs.Busy, "the control plane is stopping")
	}
	select {
	case <-p.finish:
		return &heddlev1.GetStatusResponse{Version: p.name}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *plane) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///plane", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.lis.DialContext(ctx) }))
}

// A session obeys a control plane that drains: what it was asked is answered,
// what comes then is asked of the next one, also where the stopping one refused
// it, and the connection is left at once.
func TestDraining(t *testing.T) {
	old, next := newPlane(t, "old"), newPlane(t, "next")
	close(next.finish)
	dials := 0
	s := upstream.New(upstream.Config{Attach: &heddlev1.AttachRequest{SessionId: "s"}, Dial: func(context.Context) (*grpc.ClientConn, error) {
		if dials++; dials == 1 {
			return old.dial()
		}
		return next.dial()
	}})
	t.Cleanup(func() { s.Close(t.Context()) })
	ask := func(do func(context.Context, func(context.Context, grpc.ClientConnInterface) error) error) string {
		var resp *heddlev1.GetStatusResponse
		err := do(t.Context(), func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
			resp, err = heddlev1.NewCatalogServiceClient(cc).GetStatus(ctx, &heddlev1.GetStatusRequest{})
			return err
		})
		if err != nil {
			t.Errorf("call: %v", err)
		}
		return resp.GetVersion()
	}
	if _, err := s.Attached(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers := make(chan string, 2)
	go func() { answers <- ask(s.DoOnce) }()
	for {
		old.mu.Lock()
		asked := old.calls > 0
		old.stopping = asked
		old.mu.Unlock()
		if asked {
			break
		}
		time.Sleep(time.Millisecond)
	}
	// Refused by the stopping one, before or after its word of the stop.
	go func() { answers <- ask(s.DoOnce) }()
	close(old.drain)
	close(old.finish)
	got := []string{<-answers, <-answers}
	if got[0] == got[1] {
		t.Errorf("answered by %v", got)
	}
	select {
	case <-old.gone:
	case <-time.After(5 * time.Second):
		t.Error("the draining control plane was not left")
	}
	if by := ask(s.Do); by != "next" {
		t.Errorf("later answered by %s", by)
	}
	attached, err := s.Attached(t.Context())
	if err != nil || attached.GetHome() != "next" {
		t.Errorf("attached to %v, %v", attached, err)
	}
}
