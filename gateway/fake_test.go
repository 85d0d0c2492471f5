package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// fake is a control plane without models, executors or a disk. Its log outlives
// its gRPC server, as a store outlives a process.
type fake struct {
	heddlev1.UnimplementedThreadServiceServer
	heddlev1.UnimplementedTurnServiceServer
	heddlev1.UnimplementedEventServiceServer
	heddlev1.UnimplementedApprovalServiceServer
	heddlev1.UnimplementedSessionServiceServer
	heddlev1.UnimplementedCatalogServiceServer
	heddlev1.UnimplementedWorkspaceServiceServer

	// files answers file work and config writes.
	files fileWork
	// onTurn plays a turn once it was accepted.
	onTurn func(f *fake, thread, turn string)
	// dropAnswer loses the connection after the next StartTurn was accepted.
	dropAnswer bool
	// dropCall loses the next turn/start, hideInput shows no item for an input.
	dropCall, hideInput bool
	// dropped is told when it did.
	dropped chan struct{}

	mu        sync.Mutex
	server    *grpc.Server
	lis       *bufconn.Listener
	threads   map[string]*fakeThread
	decisions []heddlev1.Decision
	detached  chan struct{}
	attaches  int
	loads     int
}

type fakeThread struct {
	row     *heddlev1.Thread
	events  []*heddlev1.Event
	turns   []*heddlev1.TurnWithItems
	pending []*heddlev1.Approval
	output  map[string][]byte
	changed chan struct{}
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{threads: map[string]*fakeThread{}, detached: make(chan struct{}, 8), dropped: make(chan struct{}, 1)}
	f.start()
	t.Cleanup(f.stop)
	return f
}

func (f *fake) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lis = bufconn.Listen(1 << 20)
	f.server = grpc.NewServer(grpc.UnaryInterceptor(errdefs.UnaryServer), grpc.StreamInterceptor(errdefs.StreamServer), grpc.MaxRecvMsgSize(64<<20))
	heddlev1.RegisterThreadServiceServer(f.server, f)
	heddlev1.RegisterTurnServiceServer(f.server, f)
	heddlev1.RegisterEventServiceServer(f.server, f)
	heddlev1.RegisterApprovalServiceServer(f.server, f)
	heddlev1.RegisterSessionServiceServer(f.server, f)
	heddlev1.RegisterCatalogServiceServer(f.server, f)
	heddlev1.RegisterWorkspaceServiceServer(f.server, f)
	go func(s *grpc.Server, l net.Listener) { _ = s.Serve(l) }(f.server, f.lis)
}

// stop ends the server as kill -9 would: without a word.
func (f *fake) stop() {
	f.mu.Lock()
	s := f.server
	f.mu.Unlock()
	s.Stop()
}

func (f *fake) dial(context.Context) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			f.mu.Lock()
			l := f.lis
			f.mu.Unlock()
			return l.DialContext(ctx)
		}))
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// append adds events to a thread's log and folds them into its row.
func (f *fake) append(thread, turn string, events ...*heddlev1.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.threads[thread]
	for _, e := range events {
		e.Seq, e.ThreadId, e.TurnId, e.TimeMs = uint64(len(t.events)+1), thread, turn, time.Now().UnixMilli()
		t.events = append(t.events, e)
		t.fold(e)
		t.row.LastSeq = e.Seq
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *fakeThread) fold(e *heddlev1.Event) {
	switch p := e.GetPayload().(type) {
	case *heddlev1.Event_TurnStarted:
		t.row.State, t.row.ActiveTurnId = heddlev1.ThreadState_THREAD_STATE_ACTIVE, p.TurnStarted.GetTurn().GetId()
	case *heddlev1.Event_TurnCompleted:
		t.row.State, t.row.ActiveTurnId = heddlev1.ThreadState_THREAD_STATE_IDLE, ""
		t.turns[len(t.turns)-1].Turn = p.TurnCompleted.GetTurn()
	case *heddlev1.Event_ItemCompleted:
		last := t.turns[len(t.turns)-1]
		last.Items = append(last.Items, p.ItemCompleted.GetItem())
	case *heddlev1.Event_ApprovalRequested:
		t.pending = append(t.pending, p.ApprovalRequested.GetApproval())
		t.row.WaitingOnApproval = true
	case *heddlev1.Event_ApprovalResolved:
		t.pending = slices.DeleteFunc(t.pending, func(a *heddlev1.Approval) bool { return a.GetId() == p.ApprovalResolved.GetApproval().GetId() })
		t.row.WaitingOnApproval = len(t.pending) > 0
	case *heddlev1.Event_ThreadNamed:
		t.row.Name = p.ThreadNamed.GetName()
	}
}

func (f *fake) find(id string) (*fakeThread, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.threads[id]
	if t == nil {
		return nil, errdefs.New(errdefs.ThreadNotFound, "thread not found: %s", id)
	}
	return t, nil
}

func (f *fake) StartThread(_ context.Context, r *heddlev1.StartThreadRequest) (*heddlev1.StartThreadResponse, error) {
	s := proto.CloneOf(r.GetSettings())
	if s.GetModel() == "" {
		s.Model = "model-a"
	}
	s.ModelProvider, s.ApprovalPolicy = "mock", "on-request"
	if s.GetSandbox() == nil {
		s.Sandbox = &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY}
	}
	now := time.Now().UnixMilli()
	t := &fakeThread{row: &heddlev1.Thread{
		Id: newID(), Settings: s, CreatedAtMs: now, UpdatedAtMs: now, Ephemeral: r.GetEphemeral(), Source: r.GetSource(),
		Originator: r.GetOriginator(), Version: r.GetVersion(), State: heddlev1.ThreadState_THREAD_STATE_IDLE,
	}, changed: make(chan struct{}), output: map[string][]byte{}}
	f.mu.Lock()
	f.threads[t.row.GetId()] = t
	f.mu.Unlock()
	f.append(t.row.GetId(), "", &heddlev1.Event{Payload: &heddlev1.Event_ThreadCreated{ThreadCreated: &heddlev1.ThreadCreated{}}})
	return &heddlev1.StartThreadResponse{Thread: f.row(t)}, nil
}

func (f *fake) row(t *fakeThread) *heddlev1.Thread {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(t.row)
}

func (f *fake) GetThread(_ context.Context, r *heddlev1.GetThreadRequest) (*heddlev1.GetThreadResponse, error) {
	t, err := f.find(r.GetThreadId())
	if err != nil {
		return nil, err
	}
	return &heddlev1.GetThreadResponse{Thread: f.row(t)}, nil
}

func (f *fake) LoadThread(_ context.Context, r *heddlev1.LoadThreadRequest) (*heddlev1.LoadThreadResponse, error) {
	t, err := f.find(r.GetThreadId())
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loads++
	return &heddlev1.LoadThreadResponse{Thread: proto.CloneOf(t.row), PendingApprovals: slices.Clone(t.pending)}, nil
}

func (f *fake) UnloadThread(context.Context, *heddlev1.UnloadThreadRequest) (*heddlev1.UnloadThreadResponse, error) {
	return &heddlev1.UnloadThreadResponse{}, nil
}

func (f *fake) ListThreads(context.Context, *heddlev1.ListThreadsRequest) (*heddlev1.ListThreadsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &heddlev1.ListThreadsResponse{}
	for _, t := range f.threads {
		out.Threads = append(out.Threads, proto.CloneOf(t.row))
	}
	return out, nil
}

func (f *fake) ListTurns(_ context.Context, r *heddlev1.ListTurnsRequest) (*heddlev1.ListTurnsResponse, error) {
	t, err := f.find(r.GetThreadId())
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &heddlev1.ListTurnsResponse{Head: t.row.GetLastSeq()}
	for _, turn := range slices.Backward(t.turns) {
		out.Turns = append(out.Turns, proto.CloneOf(turn))
	}
	if n := int(r.GetPageSize()); n > 0 && n < len(out.Turns) {
		out.Turns = out.Turns[:n]
	}
	return out, nil
}

func (f *fake) SetThreadName(_ context.Context, r *heddlev1.SetThreadNameRequest) (*heddlev1.SetThreadNameResponse, error) {
	t, err := f.find(r.GetThreadId())
	if err != nil {
		return nil, err
	}
	f.append(r.GetThreadId(), "", &heddlev1.Event{Payload: &heddlev1.Event_ThreadNamed{ThreadNamed: &heddlev1.ThreadNamed{Name: r.GetName()}}})
	return &heddlev1.SetThreadNameResponse{Thread: f.row(t)}, nil
}

func (f *fake) ArchiveThread(_ context.Context, r *heddlev1.ArchiveThreadRequest) (*heddlev1.ArchiveThreadResponse, error) {
	t, err := f.find(r.GetThreadId())
	if err != nil {
		return nil, err
	}
	if t.row.GetArchived() {
		return nil, errdefs.New(errdefs.ThreadArchived, "archived")
	}
	t.row.Archived = true
	f.append(r.GetThreadId(), "", &heddlev1.Event{Payload: &heddlev1.Event_ThreadArchived{ThreadArchived: &heddlev1.ThreadArchived{}}})
	return &heddlev1.ArchiveThreadResponse{}, nil
}

func (f *fake) StartTurn(ctx context.Context, r *heddlev1.StartTurnRequest) (*heddlev1.StartTurnResponse, error) {
	t, err := f.find(r.GetThreadId())
	if err != nil {
		return nil, err
	}
	turn := &heddlev1.Turn{
		Id: newID(), ThreadId: r.GetThreadId(), Status: heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS, AcceptedAtMs: time.Now().UnixMilli(),
		SessionId: sessionOf(ctx),
	}
	f.mu.Lock()
	drop, lost := f.dropAnswer, f.dropCall
	f.dropAnswer, f.dropCall = false, false
	if lost {
		// The call is lost with the connection before anything is accepted.
		f.mu.Unlock()
		f.dropped <- struct{}{}
		f.stop()
		return nil, errors.New("gone")
	}
	turn.FirstSeq = uint64(len(t.events) + 1)
	t.turns = append(t.turns, &heddlev1.TurnWithItems{Turn: turn})
	t.row.TurnCount++
	f.mu.Unlock()
	f.append(r.GetThreadId(), turn.GetId(), &heddlev1.Event{Payload: &heddlev1.Event_TurnAccepted{TurnAccepted: &heddlev1.TurnAccepted{Turn: turn, Input: r.GetInput()}}})
	started := proto.CloneOf(turn)
	started.StartedAtMs = turn.GetAcceptedAtMs()
	user := &heddlev1.Item{Id: newID(), TurnId: turn.GetId(), StartedAtMs: 5000, CompletedAtMs: 5000, Status: heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, Content: &heddlev1.Item_UserMessage{UserMessage: r.GetInput()}}
	f.append(r.GetThreadId(), turn.GetId(), turnStarted(started))
	if !f.hideInput {
		f.append(r.GetThreadId(), turn.GetId(), itemStarted(user), itemCompleted(user))
	}
	if drop {
		// The answer is lost with the connection.
		f.dropped <- struct{}{}
		f.stop()
		return nil, errors.New("gone")
	}
	if f.onTurn != nil {
		go f.onTurn(f, r.GetThreadId(), turn.GetId())
	}
	return &heddlev1.StartTurnResponse{Turn: turn}, nil
}

func (f *fake) InterruptTurn(_ context.Context, r *heddlev1.InterruptTurnRequest) (*heddlev1.InterruptTurnResponse, error) {
	t, err := f.find(r.GetThreadId())
	if err != nil {
		return nil, err
	}
	row := f.row(t)
	switch {
	case row.GetActiveTurnId() == "":
		return nil, errdefs.New(errdefs.NoActiveTurn, "no active turn")
	case row.GetActiveTurnId() != r.GetTurnId():
		return nil, errdefs.New(errdefs.TurnMismatch, "mismatch").With("found", row.GetActiveTurnId())
	}
	f.append(r.GetThreadId(), r.GetTurnId(), turnCompleted(r.GetTurnId(), heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED, nil))
	return &heddlev1.InterruptTurnResponse{}, nil
}

func (f *fake) Watch(r *heddlev1.WatchRequest, s grpc.ServerStreamingServer[heddlev1.WatchResponse]) error {
	t, err := f.find(r.GetThreadId())
	if err != nil {
		return err
	}
	after := r.GetAfter()
	for {
		f.mu.Lock()
		events := t.events[min(int(after), len(t.events)):]
		events = slices.Clone(events[:min(len(events), 256)])
		changed := t.changed
		f.mu.Unlock()
		if len(events) > 0 {
			after = events[len(events)-1].GetSeq()
			if err := s.Send(&heddlev1.WatchResponse{Events: events, Head: after}); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (f *fake) ReadOutput(_ context.Context, r *heddlev1.ReadOutputRequest) (*heddlev1.ReadOutputResponse, error) {
	t, err := f.find(r.GetThreadId())
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	data := t.output[r.GetItemId()]
	from := min(int(r.GetOffset()), len(data))
	return &heddlev1.ReadOutputResponse{Data: data[from:min(from+int(r.GetLength()), len(data))], Offset: int64(from), Total: int64(len(data))}, nil
}

func (f *fake) ResolveApproval(_ context.Context, r *heddlev1.ResolveApprovalRequest) (*heddlev1.ResolveApprovalResponse, error) {
	t, err := f.find(r.GetThreadId())
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	i := slices.IndexFunc(t.pending, func(a *heddlev1.Approval) bool { return a.GetId() == r.GetApprovalId() })
	if i < 0 {
		f.mu.Unlock()
		return &heddlev1.ResolveApprovalResponse{}, nil
	}
	a := proto.CloneOf(t.pending[i])
	a.Decision = r.GetDecision()
	f.decisions = append(f.decisions, r.GetDecision())
	f.mu.Unlock()
	f.append(r.GetThreadId(), a.GetTurnId(), &heddlev1.Event{Payload: &heddlev1.Event_ApprovalResolved{ApprovalResolved: &heddlev1.ApprovalResolved{Approval: a}}})
	return &heddlev1.ResolveApprovalResponse{Approval: a, Accepted: true}, nil
}

func (f *fake) Attach(_ *heddlev1.AttachRequest, s grpc.ServerStreamingServer[heddlev1.AttachResponse]) error {
	f.mu.Lock()
	f.attaches++
	f.mu.Unlock()
	err := s.Send(&heddlev1.AttachResponse{Message: &heddlev1.AttachResponse_Attached{Attached: &heddlev1.Attached{Home: "/home", ServerVersion: "1.0.0"}}})
	if err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func (f *fake) Detach(context.Context, *heddlev1.DetachRequest) (*heddlev1.DetachResponse, error) {
	f.detached <- struct{}{}
	return &heddlev1.DetachResponse{}, nil
}

func (f *fake) ReadConfig(context.Context, *heddlev1.ReadConfigRequest) (*heddlev1.ReadConfigResponse, error) {
	c, err := structpb.NewStruct(map[string]any{"model": "model-a", "thread_unload_delay_secs": 0})
	return &heddlev1.ReadConfigResponse{Config: c}, err
}

func (f *fake) ListModels(context.Context, *heddlev1.ListModelsRequest) (*heddlev1.ListModelsResponse, error) {
	return &heddlev1.ListModelsResponse{Models: []*heddlev1.Model{{Id: "model-a", IsDefault: true}, {Id: "model-b"}}}, nil
}

// Exec echoes stdin and ends with its length.
func (f *fake) Exec(s grpc.BidiStreamingServer[heddlev1.ExecRequest, heddlev1.ExecResponse]) error {
	n := 0
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.GetTerminate() != nil {
			return s.Send(&heddlev1.ExecResponse{Message: &heddlev1.ExecResponse_Exited{Exited: &heddlev1.ExecExited{ExitCode: -1}}})
		}
		in := m.GetStdin()
		if st := m.GetStart(); st != nil {
			in = &heddlev1.ExecStdin{Data: []byte(fmt.Sprint(st.GetArgv())), Close: !st.GetStdin()}
		}
		n += len(in.GetData())
		if err := s.Send(&heddlev1.ExecResponse{Message: &heddlev1.ExecResponse_Output{Output: &heddlev1.ExecOutput{Stream: 1, Data: in.GetData()}}}); err != nil {
			return err
		}
		if in.GetClose() {
			return s.Send(&heddlev1.ExecResponse{Message: &heddlev1.ExecResponse_Exited{Exited: &heddlev1.ExecExited{ExitCode: int32(n)}}})
		}
	}
}

func turnStarted(t *heddlev1.Turn) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_TurnStarted{TurnStarted: &heddlev1.TurnStarted{Turn: t}}}
}

func turnCompleted(id string, status heddlev1.TurnStatus, last *heddlev1.Item) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_TurnCompleted{TurnCompleted: &heddlev1.TurnCompleted{Turn: &heddlev1.Turn{
		Id: id, Status: status, AcceptedAtMs: 1000, StartedAtMs: 2000, CompletedAtMs: 5000, DurationMs: 3000, LastAgentMessage: last,
	}}}}
}

func itemStarted(it *heddlev1.Item) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_ItemStarted{ItemStarted: &heddlev1.ItemStarted{Item: it}}}
}

func itemCompleted(it *heddlev1.Item) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_ItemCompleted{ItemCompleted: &heddlev1.ItemCompleted{Item: it}}}
}

func agentDelta(item, text string) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_ItemDelta{ItemDelta: &heddlev1.ItemDelta{ItemId: item, Delta: &heddlev1.ItemDelta_AgentText{AgentText: text}}}}
}

func agentItem(id, text string, done bool) *heddlev1.Item {
	it := &heddlev1.Item{Id: id, StartedAtMs: 6000, Status: heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS, Content: &heddlev1.Item_AgentMessage{AgentMessage: &heddlev1.AgentMessage{Text: text}}}
	if done {
		it.CompletedAtMs, it.Status = 7000, heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
	}
	return it
}

func (f *fake) ListItems(_ context.Context, r *heddlev1.ListItemsRequest) (*heddlev1.ListItemsResponse, error) {
	t, err := f.find(r.GetThreadId())
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &heddlev1.ListItemsResponse{}
	for _, turn := range t.turns {
		for _, it := range turn.GetItems() {
			out.Items = append(out.Items, proto.CloneOf(it))
		}
	}
	return out, nil
}
