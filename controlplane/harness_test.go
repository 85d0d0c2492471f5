package controlplane

import (
	"context"

	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/controlplane/server"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
)

// rig is a control plane over an in-memory connection, with a model that tests
// script and an executor that does nothing real.
type rig struct {
	t     *testing.T
	home  string
	model *fakeModel
	exec  *fakeExecutor
	cp    *ControlPlane
	conn  *grpc.ClientConn
	stop  func()

	threads   heddlev1.ThreadServiceClient
	turns     heddlev1.TurnServiceClient
	events    heddlev1.EventServiceClient
	approvals heddlev1.ApprovalServiceClient
	sessions  heddlev1.SessionServiceClient
	catalog   heddlev1.CatalogServiceClient
}

func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	home := t.TempDir()
	r := &rig{t: t, home: home, model: &fakeModel{t: t}}
	cfg := Config{Home: config.Home{Dir: home}, Store: "memory", Version: "test", Clients: r.model, ExecutorWait: 2 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	r.open(cfg)
	return r
}

func (r *rig) open(cfg Config) {
	t := r.t
	cp, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.serve(cp)
}

// serve runs a control plane and connects the clients and the executor to it.
func (r *rig) serve(cp *ControlPlane) {
	t := r.t
	var err error
	r.cp = cp
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- cp.Run(ctx) }()
	lis := bufconn.Listen(1 << 20)
	srv := grpc.NewServer(cp.ServerOptions()...)
	cp.Register(srv)
	go func() { _ = srv.Serve(lis) }()
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }
	r.conn, err = grpc.NewClient("passthrough:///rig", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r.threads, r.turns = heddlev1.NewThreadServiceClient(r.conn), heddlev1.NewTurnServiceClient(r.conn)
	r.events, r.approvals = heddlev1.NewEventServiceClient(r.conn), heddlev1.NewApprovalServiceClient(r.conn)
	r.sessions, r.catalog = heddlev1.NewSessionServiceClient(r.conn), heddlev1.NewCatalogServiceClient(r.conn)
	if r.exec == nil {
		r.exec = newFakeExecutor()
	}
	r.exec.connect(ctx, t, executorv1.NewExecutorServiceClient(r.conn))
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("run: %v", err)
		}
		_ = r.conn.Close()
		srv.Stop()
	}
	t.Cleanup(r.stop)
}

// attach holds a session open until the returned function is called.
func (r *rig) attach(id string, gone heddlev1.OnDisconnect) (ctx context.Context, drop func()) {
	r.t.Helper()
	return r.attachWith(id, gone, map[string]string{"PATH": "/bin", "API_KEY": "secret"})
}

func (r *rig) attachWith(id string, gone heddlev1.OnDisconnect, env map[string]string) (ctx context.Context, drop func()) {
	r.t.Helper()
	stream, cancel := context.WithCancel(context.Background())
	s, err := r.sessions.Attach(stream, &heddlev1.AttachRequest{
		SessionId: id, OnDisconnect: gone, Cwd: "/work", Env: env})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(context.Background(), server.SessionKey, id), cancel
}

// thread starts a thread with an attached session "s1".
func (r *rig) thread(set *heddlev1.ThreadSettings) (context.Context, *heddlev1.Thread) {
	r.t.Helper()
	ctx, _ := r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	resp, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: set})
	if err != nil {
		r.t.Fatal(err)
	}
	return ctx, resp.GetThread()
}

func say(text string) *heddlev1.UserMessage {
	return &heddlev1.UserMessage{Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: text}}}}
}

func (r *rig) startTurn(ctx context.Context, threadID, text string) *heddlev1.Turn {
	r.t.Helper()
	resp, err := r.turns.StartTurn(ctx, &heddlev1.StartTurnRequest{ThreadId: threadID, Input: say(text)})
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.GetTurn()
}

// follow watches a thread from a seq.
func (r *rig) follow(threadID string, after uint64) *follower {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	r.t.Cleanup(cancel)
	w, err := r.events.Watch(ctx, &heddlev1.WatchRequest{ThreadId: threadID, After: after})
	if err != nil {
		r.t.Fatal(err)
	}
	return &follower{t: r.t, stream: w}
}

type follower struct {
	t      *testing.T
	stream grpc.ServerStreamingClient[heddlev1.WatchResponse]
	queue  []*heddlev1.Event
	seen   []*heddlev1.Event
}

func (f *follower) next() *heddlev1.Event {
	f.t.Helper()
	for len(f.queue) == 0 {
		resp, err := f.stream.Recv()
		if err != nil {
			f.t.Fatalf("watch: %v; seen %s", err, describe(f.seen))
		}
		f.queue = resp.GetEvents()
	}
	ev := f.queue[0]
	f.queue = f.queue[1:]
	f.seen = append(f.seen, ev)
	return ev
}

// until reads up to the first event that matches.
func (f *follower) until(match func(*heddlev1.Event) bool) *heddlev1.Event {
	f.t.Helper()
	for {
		if ev := f.next(); match(ev) {
			return ev
		}
	}
}

func (f *follower) turnEnd() *heddlev1.Turn {
	f.t.Helper()
	return f.until(func(e *heddlev1.Event) bool { return e.GetTurnCompleted() != nil }).GetTurnCompleted().GetTurn()
}

func (f *follower) approval() *heddlev1.Approval {
	f.t.Helper()
	return f.until(func(e *heddlev1.Event) bool { return e.GetApprovalRequested() != nil }).GetApprovalRequested().GetApproval()
}

// describe names events in a compact form: the kind, and for items the kind and
// status of the item.
func describe(events []*heddlev1.Event) string {
	var out []string
	for _, e := range events {
		out = append(out, name(e))
	}
	return strings.Join(out, " ")
}

func name(e *heddlev1.Event) string {
	switch p := e.GetPayload().(type) {
	case *heddlev1.Event_ItemStarted:
		return "start:" + kindOf(p.ItemStarted.GetItem())
	case *heddlev1.Event_ItemCompleted:
		return "end:" + kindOf(p.ItemCompleted.GetItem()) + ":" + strings.ToLower(strings.TrimPrefix(p.ItemCompleted.GetItem().GetStatus().String(), "ITEM_STATUS_"))
	case *heddlev1.Event_TurnCompleted:
		return "turn:" + strings.ToLower(strings.TrimPrefix(p.TurnCompleted.GetTurn().GetStatus().String(), "TURN_STATUS_"))
	case *heddlev1.Event_ItemDelta:
		return "delta"
	case *heddlev1.Event_OutputAdvanced:
		return "output"
	case *heddlev1.Event_TurnAccepted:
		return "accepted"
	case *heddlev1.Event_TurnStarted:
		return "started"
	case *heddlev1.Event_SteerAccepted:
		return "steer"
	case *heddlev1.Event_ApprovalRequested:
		return "ask"
	case *heddlev1.Event_ApprovalResolved:
		return "answer"
	case *heddlev1.Event_TokenUsageUpdated:
		return "usage"
	case *heddlev1.Event_ErrorRaised:
		if p.ErrorRaised.GetWillRetry() {
			return "retry"
		}
		return "error"
	case *heddlev1.Event_DiffUpdated:
		return "diff"
	case *heddlev1.Event_PlanUpdated:
		return "plan"
	case *heddlev1.Event_TerminalInteraction:
		return "stdin"
	case *heddlev1.Event_HistoryAppended:
		return "history"
	case *heddlev1.Event_ActionsIntended:
		return "intent"
	case *heddlev1.Event_ActionsResolved:
		return "resolved"
	case *heddlev1.Event_WarningRaised:
		return "warning"
	}
	return "other"
}

func kindOf(i *heddlev1.Item) string {
	switch i.GetContent().(type) {
	case *heddlev1.Item_UserMessage:
		return "user"
	case *heddlev1.Item_AgentMessage:
		return "agent"
	case *heddlev1.Item_Reasoning:
		return "reasoning"
	case *heddlev1.Item_CommandExecution:
		return "command"
	case *heddlev1.Item_FileChange:
		return "file"
	}
	return "item"
}

// visible leaves out what makes no notification, and collapses increments.
func visible(events []*heddlev1.Event) string {
	var out []string
	for _, e := range events {
		n := name(e)
		switch n {
		case "history", "intent", "resolved", "other", "accepted", "warning":
			continue
		case "delta", "output":
			if len(out) > 0 && out[len(out)-1] == n {
				continue
			}
		}
		out = append(out, n)
	}
	return strings.Join(out, " ")
}

// fakeModel answers with one scripted reply per request.
type fakeModel struct {
	t        *testing.T
	mu       sync.Mutex
	replies  []reply
	requests []model.Request
}

type reply func(ctx context.Context, yield func(model.Event) error) error

func (m *fakeModel) script(replies ...reply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replies = append(m.replies, replies...)
}

func (m *fakeModel) asked() []model.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]model.Request(nil), m.requests...)
}

// Client implements settings.Clients.
func (m *fakeModel) Client(config.Provider, func(string) string) (model.Client, error) { return m, nil }

// Stream implements model.Client.
func (m *fakeModel) Stream(ctx context.Context, req model.Request, yield func(model.Event) error) error {
	m.mu.Lock()
	req.Input = append([]*heddlev1.HistoryEntry(nil), req.Input...)
	m.requests = append(m.requests, req)
	if len(m.replies) == 0 {
		m.mu.Unlock()
		return &model.Error{Kind: model.KindOther, Message: "the script is over"}
	}
	next := m.replies[0]
	m.replies = m.replies[1:]
	m.mu.Unlock()
	if err := next(ctx, yield); err != nil {
		return err
	}
	return yield(model.Completed{Usage: &heddlev1.TokenUsage{TotalTokens: 10, InputTokens: 8, OutputTokens: 2}})
}

// speak streams one message in pieces.
func speak(id string, pieces ...string) reply {
	return func(_ context.Context, yield func(model.Event) error) error {
		if err := yield(model.ItemStarted{ID: id, Kind: model.KindMessage}); err != nil {
			return err
		}
		for _, p := range pieces {
			if err := yield(model.TextDelta{ItemID: id, Text: p}); err != nil {
				return err
			}
		}
		return yield(model.ItemDone{ID: id, Kind: model.KindMessage, Entry: assistant(id, strings.Join(pieces, ""))})
	}
}

func assistant(id, text string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{
		Id: id, Role: "assistant", Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: text}}}}}}
}

// calls streams whole tool calls.
func calls(list ...*heddlev1.ToolCall) reply {
	return func(_ context.Context, yield func(model.Event) error) error {
		for _, c := range list {
			c.Id = "fc_" + c.GetCallId()
			if err := yield(model.ItemDone{ID: c.GetId(), Kind: model.KindToolCall,
				Entry: &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolCall{ToolCall: c}}}); err != nil {
				return err
			}
		}
		return nil
	}
}

// hang streams part of a message, then waits for the end of the request.
func hang(id, part string) reply {
	return func(ctx context.Context, yield func(model.Event) error) error {
		if err := yield(model.ItemStarted{ID: id, Kind: model.KindMessage}); err != nil {
			return err
		}
		if err := yield(model.TextDelta{ItemID: id, Text: part}); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// cut streams part of a message, then breaks off.
func cut(id, part string) reply {
	return func(_ context.Context, yield func(model.Event) error) error {
		if err := yield(model.ItemStarted{ID: id, Kind: model.KindMessage}); err != nil {
			return err
		}
		if err := yield(model.TextDelta{ItemID: id, Text: part}); err != nil {
			return err
		}
		return &model.Error{Kind: model.KindOther, Message: "stream disconnected before completion: cut", Retry: model.RetryStream}
	}
}

func shell(id, cmd string, more ...string) *heddlev1.ToolCall {
	return &heddlev1.ToolCall{CallId: id, Name: "exec_command", Arguments: `{"cmd":"` + cmd + `"` + strings.Join(more, "") + `}`}
}

func patchOf(id, path string) *heddlev1.ToolCall {
	return &heddlev1.ToolCall{CallId: id, Name: "apply_patch", Freeform: true, Arguments: "*** Begin Patch\n*** Add File: " + path + "\n+x\n*** End Patch\n"}
}

// output is what the model was told about a call in its last request.
func (m *fakeModel) output(callID string) string {
	reqs := m.asked()
	if len(reqs) == 0 {
		return ""
	}
	for _, e := range reqs[len(reqs)-1].Input {
		if o := e.GetToolOutput(); o.GetCallId() == callID {
			return o.GetParts()[0].GetText()
		}
	}
	return ""
}

// fakeExecutor speaks the executor protocol. Commands are words: "echo X",
// "exit N", "sleep" (until interrupted), "stubborn" (until killed), "cat" (echoes
// its input), "reach HOST..." (asks for each).
type fakeExecutor struct {
	id  string
	net fakeNetwork
	// commits holds back each patch until something is received; nil does not.
	commits chan struct{}

	mu      sync.Mutex
	running map[string]*fakeProcess
	actions []*executorv1.Action
	results map[string]*executorv1.ActionResult
	send    func(*executorv1.ConnectRequest)
	leases  map[string]*executorv1.Lease
	// lose picks actions that never arrive; may be nil.
	lose func(*executorv1.Action) bool
	// leads says where a folder leads; nil says nothing.
	leads func(path string) string
}

type fakeProcess struct {
	action *executorv1.Action
	end    chan int32
	out    int64
}

func newFakeExecutor() *fakeExecutor {
	return &fakeExecutor{id: "exec-1", running: map[string]*fakeProcess{}, results: map[string]*executorv1.ActionResult{}, leases: map[string]*executorv1.Lease{}}
}

func (x *fakeExecutor) did(kind func(*executorv1.Action) bool) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, a := range x.actions {
		if kind(a) {
			n++
		}
	}
	return n
}

func isProcess(a *executorv1.Action) bool { return a.GetStartProcess() != nil }

func (x *fakeExecutor) alive() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.running)
}

func (x *fakeExecutor) connect(ctx context.Context, t *testing.T, c executorv1.ExecutorServiceClient) {
	t.Helper()
	stream, err := c.Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	x.mu.Lock()
	x.send = func(m *executorv1.ConnectRequest) {
		mu.Lock()
		defer mu.Unlock()
		_ = stream.Send(m)
	}
	reg := &executorv1.Register{ExecutorId: x.id, Version: "test", MinProtocol: 1, MaxProtocol: 1, BootId: "boot", Pid: int64(os.Getpid())}
	for _, l := range x.leases {
		reg.Leases = append(reg.Leases, l)
	}
	for id, p := range x.running {
		reg.Running = append(reg.Running, &executorv1.RunningAction{ActionId: id, LeaseId: p.action.GetLeaseId(), Epoch: p.action.GetEpoch(), Pid: 7, OutputBytes: p.out})
	}
	kept := make([]*executorv1.ActionResult, 0, len(x.results))
	for _, r := range x.results {
		kept = append(kept, r)
	}
	send := x.send
	x.mu.Unlock()
	send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Register{Register: reg}})
	x.net.again(send)
	for _, r := range kept {
		send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Result{Result: r}})
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			x.handle(m)
		}
	}()
}

func (x *fakeExecutor) handle(m *executorv1.ConnectResponse) {
	switch p := m.GetMessage().(type) {
	case *executorv1.ConnectResponse_Grant:
		x.mu.Lock()
		x.leases[p.Grant.GetLease().GetLeaseId()] = p.Grant.GetLease()
		x.mu.Unlock()
	case *executorv1.ConnectResponse_Renewal:
		x.out(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_RenewAck{RenewAck: &executorv1.RenewAck{Round: p.Renewal.GetRound()}}})
	case *executorv1.ConnectResponse_Revoke:
		x.mu.Lock()
		delete(x.leases, p.Revoke.GetLeaseId())
		for _, pr := range x.running {
			if pr.action.GetLeaseId() == p.Revoke.GetLeaseId() {
				select {
				case pr.end <- 137:
				default:
				}
			}
		}
		x.mu.Unlock()
		x.out(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_LeaseReleased{LeaseReleased: &executorv1.LeaseReleased{LeaseId: p.Revoke.GetLeaseId(), Epoch: p.Revoke.GetEpoch()}}})
	case *executorv1.ConnectResponse_Action:
		x.mu.Lock()
		lost := x.lose != nil && x.lose(p.Action)
		if !lost {
			x.actions = append(x.actions, p.Action)
		}
		x.mu.Unlock()
		if !lost {
			go x.run(p.Action)
		}
	case *executorv1.ConnectResponse_NetworkVerdict:
		x.net.answer(p.NetworkVerdict)
	case *executorv1.ConnectResponse_Control:
		x.control(p.Control)
	case *executorv1.ConnectResponse_ResultAck:
		x.mu.Lock()
		delete(x.results, p.ResultAck.GetActionId())
		x.mu.Unlock()
	}
}

func (x *fakeExecutor) out(m *executorv1.ConnectRequest) {
	x.mu.Lock()
	send := x.send
	x.mu.Unlock()
	send(m)
}

func (x *fakeExecutor) control(c *executorv1.ActionControl) {
	x.mu.Lock()
	p := x.running[c.GetActionId()]
	x.mu.Unlock()
	if p == nil {
		return
	}
	stubborn := strings.Contains(p.action.GetStartProcess().GetArgv()[2], "stubborn")
	switch m := c.GetControl().(type) {
	case *executorv1.ActionControl_Interrupt:
		if stubborn {
			time.AfterFunc(time.Second, func() { p.end <- 137 })
			return
		}
		p.end <- 130
	case *executorv1.ActionControl_Terminate:
		p.end <- 137
	case *executorv1.ActionControl_Stdin:
		argv := p.action.GetStartProcess().GetArgv()
		if verb, _, _ := strings.Cut(argv[len(argv)-1], " "); verb == "echo" || verb == "exit" {
			return // it reads nothing
		}
		x.print(p, string(m.Stdin.GetData()))
		if strings.Contains(string(m.Stdin.GetData()), "quit") {
			p.end <- 0
		}
	}
}

func (x *fakeExecutor) print(p *fakeProcess, s string) {
	x.mu.Lock()
	off := p.out
	p.out += int64(len(s))
	x.mu.Unlock()
	a := p.action
	x.out(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Output{Output: &executorv1.OutputChunk{
		ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(), Stream: 1, Offset: off, Data: []byte(s)}}})
}

func (x *fakeExecutor) run(a *executorv1.Action) {
	res := &executorv1.ActionResult{ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch()}
	switch k := a.GetKind().(type) {
	case *executorv1.Action_Prepare:
		res.Outcome = &executorv1.ActionResult_Prepared{Prepared: &executorv1.Prepared{Report: &heddlev1.SandboxReport{Backend: "fake"}}}
	case *executorv1.Action_Inspect:
		found := &executorv1.Inspection{CwdExists: true, Shell: "/bin/bash", Git: &heddlev1.GitInfo{Sha: "c0ffee"}}
		for _, path := range k.Inspect.GetPlaces() {
			if x.leads != nil {
				found.Places = append(found.Places, &heddlev1.Place{Path: path, Real: x.leads(path), Host: "h"})
			}
		}
		res.Outcome = &executorv1.ActionResult_Inspection{Inspection: found}
	case *executorv1.Action_PlanPatch:
		res.Outcome = &executorv1.ActionResult_PatchPlan{PatchPlan: planOf(a, k.PlanPatch)}
	case *executorv1.Action_CommitPatch:
		if x.commits != nil {
			<-x.commits
		}
		path := patchPath(k.CommitPatch.GetPatch(), k.CommitPatch.GetCwd())
		res.Outcome = &executorv1.ActionResult_PatchCommitted{PatchCommitted: &executorv1.PatchCommitted{
			Changes: []*heddlev1.FileUpdate{{Path: path, Kind: "add", Diff: "x\n"}}, Summary: "A " + path + "\n",
			After: []*executorv1.FileSnapshot{{Path: path, Exists: true, Content: []byte("x\n"), Mode: 0o644}}}}
	case *executorv1.Action_StartProcess:
		res.Outcome = x.process(a, k.StartProcess)
	default:
		res.Outcome = &executorv1.ActionResult_Error{Error: &heddlev1.ActionError{Code: "refused", Message: "not in this fake"}}
	}
	x.mu.Lock()
	res.LeaseId, res.Epoch = a.GetLeaseId(), a.GetEpoch()
	x.results[a.GetActionId()] = res
	delete(x.running, a.GetActionId())
	x.mu.Unlock()
	x.out(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Result{Result: res}})
}

func planOf(a *executorv1.Action, p *executorv1.PlanPatch) *executorv1.PatchPlan {
	if !strings.Contains(p.GetPatch(), "*** Add File: ") {
		return &executorv1.PatchPlan{Rejected: "apply_patch verification failed: no file in the patch"}
	}
	path := patchPath(p.GetPatch(), p.GetCwd())
	base := map[string][]byte{path: nil}
	plan := &executorv1.PatchPlan{
		Changes: []*heddlev1.FileUpdate{{Path: path, Kind: "add", Diff: "x\n"}}, BaseHashes: base,
		PlanHash: actionhash.Patch(p.GetPatch(), p.GetCwd(), base, a.GetPolicy(), a.GetWorkspace()),
		Summary:  "A " + path + "\n", Before: []*executorv1.FileSnapshot{{Path: path}},
	}
	if a.GetPolicy().GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY {
		plan.OutsideRoots = []string{path}
	}
	return plan
}

func patchPath(patch, cwd string) string {
	_, rest, _ := strings.Cut(patch, "*** Add File: ")
	path, _, _ := strings.Cut(rest, "\n")
	return cwd + "/" + path
}

func (x *fakeExecutor) process(a *executorv1.Action, s *executorv1.StartProcess) *executorv1.ActionResult_Process {
	p := &fakeProcess{action: a, end: make(chan int32, 4)}
	x.mu.Lock()
	x.running[a.GetActionId()] = p
	x.mu.Unlock()
	x.out(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_ActionStarted{ActionStarted: &executorv1.ActionStarted{
		ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(), Pid: 7}}})
	var code int32
	verb, arg, _ := strings.Cut(s.GetArgv()[len(s.GetArgv())-1], " ")
	switch verb {
	case "echo":
		x.print(p, arg+"\n")
	case "exit":
		code = int32(arg[0] - '0')
	case "reach":
		code = x.reach(p, strings.Fields(arg))
	case "sleep", "stubborn", "cat":
		x.print(p, "begun\n")
		code = <-p.end
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return &executorv1.ActionResult_Process{Process: &executorv1.ProcessResult{ExitCode: code, DurationMs: 1, StdoutBytes: p.out}}
}

// endAll ends every running command.
func (x *fakeExecutor) endAll(code int32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.running {
		p.end <- code
	}
}

// forget makes the executor come back without anything it had.
func (x *fakeExecutor) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.running)
	clear(x.leases)
	clear(x.results)
}

// drop forgets the replies that were not asked for.
func (m *fakeModel) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replies = nil
}
