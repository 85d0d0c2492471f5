package dispatch_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	"github.com/heddle-dev/heddle/controlplane/lease"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// rig is a dispatcher behind a real gRPC server.
type rig struct {
	t    testing.TB
	d    *dispatch.Dispatcher
	lis  *bufconn.Listener
	srv  *grpc.Server
	stop context.CancelFunc
	ran  chan struct{}
}

type service struct {
	executorv1.UnimplementedExecutorServiceServer
	d    *dispatch.Dispatcher
	peer dispatch.Peer
}

func (s service) Connect(stream grpc.BidiStreamingServer[executorv1.ConnectRequest, executorv1.ConnectResponse]) error {
	return s.d.Serve(stream.Context(), s.peer, stream)
}

func newRig(tb testing.TB, cfg dispatch.Config) *rig {
	tb.Helper()
	return newRigPeer(tb, cfg, dispatch.Peer{})
}

func newRigPeer(tb testing.TB, cfg dispatch.Config, peer dispatch.Peer) *rig {
	tb.Helper()
	if cfg.Jitter == nil {
		cfg.Jitter = func() float64 { return 0.5 }
	}
	d, err := dispatch.New(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	r := &rig{t: tb, d: d, lis: bufconn.Listen(1 << 20), ran: make(chan struct{})}
	r.srv = grpc.NewServer(grpc.StreamInterceptor(errdefs.StreamServer))
	executorv1.RegisterExecutorServiceServer(r.srv, service{d: d, peer: peer})
	go func() { _ = r.srv.Serve(r.lis) }()
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		defer close(r.ran)
		if err := d.Run(ctx); err != nil {
			tb.Errorf("run: %v", err)
		}
	}()
	return r
}

func (r *rig) close() {
	r.stop()
	<-r.ran
	r.srv.Stop()
}

// fake is an executor driven by hand. It answers renewals unless mute.
type fake struct {
	t      testing.TB
	id     string
	conn   *grpc.ClientConn
	stream executorv1.ExecutorService_ConnectClient
	in     chan *executorv1.ConnectResponse
	ended  chan struct{}
	err    error // why the stream ended
	mute   atomic.Bool
	acks   atomic.Int64 // renewals seen
	held   []*executorv1.Lease
	cancel context.CancelFunc
}

func (r *rig) dial() *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.lis.DialContext(ctx) }))
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// open starts a stream without registering.
func (r *rig) open(first *executorv1.ConnectRequest) *fake {
	r.t.Helper()
	f := &fake{t: r.t, id: first.GetRegister().GetExecutorId(), conn: r.dial(), in: make(chan *executorv1.ConnectResponse, 4096), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	stream, err := executorv1.NewExecutorServiceClient(f.conn).Connect(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	f.stream = stream
	if first != nil {
		f.send(first)
	}
	go f.read()
	return f
}

func (f *fake) read() {
	defer close(f.ended)
	for {
		m, err := f.stream.Recv()
		if err != nil {
			f.err = err
			return
		}
		if rn := m.GetRenewal(); rn != nil {
			f.acks.Add(1)
			if !f.mute.Load() {
				f.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_RenewAck{RenewAck: &executorv1.RenewAck{Round: rn.GetRound()}}})
			}
			continue
		}
		f.in <- m
	}
}

func register(reg *executorv1.Register) *executorv1.ConnectRequest {
	if reg.GetMaxProtocol() == 0 {
		reg.MinProtocol, reg.MaxProtocol = 1, 1
	}
	return &executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Register{Register: reg}}
}

// connect registers and takes the first two messages.
func (r *rig) connect(reg *executorv1.Register) *fake {
	r.t.Helper()
	f := r.open(register(reg))
	if m := f.next(); m.GetRegistered() == nil {
		r.t.Fatalf("first message %v, want registered", m)
	}
	m := f.next()
	if m.GetAssignments() == nil {
		r.t.Fatalf("second message %v, want assignments", m)
	}
	f.held = m.GetAssignments().GetLeases()
	return f
}

func executor(id string) *executorv1.Register { return &executorv1.Register{ExecutorId: id} }

// next is the next message that is no renewal.
func (f *fake) next() *executorv1.ConnectResponse {
	f.t.Helper()
	select {
	case m := <-f.in:
		return m
	case <-f.ended:
		f.t.Fatalf("stream of %s ended: %v", f.id, f.err)
	}
	return nil
}

// nothing fails when a message is waiting once everybody is idle.
func (f *fake) nothing() {
	f.t.Helper()
	synctest.Wait()
	select {
	case m := <-f.in:
		f.t.Fatalf("unexpected message to %s: %v", f.id, m)
	default:
	}
}

func (f *fake) grant() *executorv1.Lease {
	f.t.Helper()
	m := f.next()
	if m.GetGrant() == nil {
		f.t.Fatalf("got %v, want a grant", m)
	}
	return m.GetGrant().GetLease()
}

func (f *fake) action() *executorv1.Action {
	f.t.Helper()
	m := f.next()
	if m.GetAction() == nil {
		f.t.Fatalf("got %v, want an action", m)
	}
	return m.GetAction()
}

func (f *fake) send(m *executorv1.ConnectRequest) {
	// A stream that has ended tells why in read; some tests send on purpose then.
	_ = f.stream.Send(m)
}

func (f *fake) started(a *executorv1.Action, pid int64) {
	f.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_ActionStarted{ActionStarted: &executorv1.ActionStarted{
		ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(), Pid: pid,
	}}})
}

func (f *fake) output(a *executorv1.Action, stream int32, offset int64, data string) {
	f.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Output{Output: &executorv1.OutputChunk{
		ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(), Stream: stream, Offset: offset, Data: []byte(data),
	}}})
}

func (f *fake) exit(a *executorv1.Action, code int32) {
	f.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Result{Result: &executorv1.ActionResult{
		ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(),
		Outcome: &executorv1.ActionResult_Process{Process: &executorv1.ProcessResult{ExitCode: code}},
	}}})
}

func (f *fake) release(l *executorv1.Lease) {
	f.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_LeaseReleased{LeaseReleased: &executorv1.LeaseReleased{
		LeaseId: l.GetLeaseId(), Epoch: l.GetEpoch(),
	}}})
}

// drop cuts the connection.
func (f *fake) drop() {
	f.cancel()
	_ = f.conn.Close()
	<-f.ended
	synctest.Wait()
}

func process(id string, argv ...string) *executorv1.Action {
	return &executorv1.Action{ActionId: id, Kind: &executorv1.Action_StartProcess{StartProcess: &executorv1.StartProcess{Argv: argv}}}
}

func (r *rig) start(ctx context.Context, spec dispatch.Spec) *dispatch.Handle {
	r.t.Helper()
	h, err := r.d.Start(ctx, spec)
	if err != nil {
		r.t.Fatalf("start %s: %v", spec.Action.GetActionId(), err)
	}
	return h
}

// wantExit takes the result of a process.
func wantExit(tb testing.TB, h *dispatch.Handle, code int32) {
	tb.Helper()
	res, err := h.Result(context.Background())
	if err != nil {
		tb.Fatalf("result of %s: %v", h.ActionID(), err)
	}
	if res.GetProcess() == nil || res.GetProcess().GetExitCode() != code {
		tb.Fatalf("result of %s: got %v, want exit code %d", h.ActionID(), res, code)
	}
}

func wantReason(tb testing.TB, h *dispatch.Handle, reason errdefs.Reason) error {
	tb.Helper()
	res, err := h.Result(context.Background())
	if !errdefs.Is(err, reason) {
		tb.Fatalf("result of %s: got %v, %v, want %s", h.ActionID(), res, err, reason)
	}
	return err
}

func pending(tb testing.TB, h *dispatch.Handle) {
	tb.Helper()
	synctest.Wait()
	select {
	case <-h.Done():
		res, err := h.Result(context.Background())
		tb.Fatalf("%s has ended: %v, %v", h.ActionID(), res, err)
	default:
	}
}

// bubble runs a test on virtual time.
func bubble(t *testing.T, cfg dispatch.Config, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cfg)
		defer r.close()
		f(r)
	})
}

// durable is the part of a store that survives a restart.
type durable struct{ values map[string][]byte }

func (m *durable) Meta(_ context.Context, key string) ([]byte, error) { return m.values[key], nil }

func (m *durable) SetMeta(_ context.Context, key string, value []byte) error {
	m.values[key] = value
	return nil
}

func (m *durable) epochs(tb testing.TB) lease.Epochs {
	tb.Helper()
	if m.values == nil {
		m.values = map[string][]byte{}
	}
	e, err := lease.OpenEpochs(context.Background(), m)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

var errBoom = errors.New("boom")

const fence = 30 * time.Second
