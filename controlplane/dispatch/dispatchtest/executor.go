// Package dispatchtest has an executor in memory for tests of what stands above
// the dispatcher: it keeps the rules of proto/heddle/executor/v1 (leases,
// epochs, one outcome per action id, results kept until acknowledged, output
// only within its window) and runs no process; a function plays each action.
package dispatchtest

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Executor is one fake executor. Run may be called again after it returned, like
// a reconnect of the same process.
type Executor struct {
	// Register is what it registers with; leases and running are filled in.
	Register *executorv1.Register
	// Play does an action on a goroutine of its own and must end it.
	Play func(*Job)

	mu     sync.Mutex
	stream executorv1.ExecutorService_ConnectClient
	window int64
	leases map[string]*executorv1.Lease
	jobs   map[string]*Job
}

// Job is one action being played.
type Job struct {
	Action *executorv1.Action
	// Controls arrive in order and are closed at the end; a job that does not read
	// loses none.
	Controls <-chan *executorv1.ActionControl

	x        *Executor
	controls chan *executorv1.ActionControl
	credit   *sync.Cond // on Executor.mu
	pid      int64
	sent     [3]int64
	acked    [3]int64
	result   *executorv1.ActionResult
}

// Run serves one session until the stream or ctx ends.
func (x *Executor) Run(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := executorv1.NewExecutorServiceClient(conn).Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect fake executor: %w", err)
	}
	if err := x.attach(stream); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			x.mu.Lock()
			x.stream = nil
			x.mu.Unlock()
			return fmt.Errorf("fake executor: %w", err)
		}
		x.handle(m)
	}
}

// attach registers and shows kept results again.
func (x *Executor) attach(stream executorv1.ExecutorService_ConnectClient) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.leases == nil {
		x.leases, x.jobs = map[string]*executorv1.Lease{}, map[string]*Job{}
	}
	reg := x.Register
	reg.MinProtocol, reg.MaxProtocol, reg.Leases, reg.Running = 1, 1, nil, nil
	for _, l := range x.leases {
		reg.Leases = append(reg.Leases, l)
	}
	for id, j := range x.jobs {
		if j.result == nil {
			reg.Running = append(reg.Running, &executorv1.RunningAction{ActionId: id, LeaseId: j.Action.GetLeaseId(), Epoch: j.Action.GetEpoch(), Pid: j.pid})
		}
	}
	x.stream = stream
	x.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Register{Register: reg}})
	m, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("register fake executor: %w", err)
	}
	x.window = m.GetRegistered().GetOutputWindow()
	for _, j := range x.jobs {
		if j.result != nil {
			x.sendResult(j.result)
		}
	}
	return nil
}

func (x *Executor) send(m *executorv1.ConnectRequest) {
	if x.stream != nil {
		_ = x.stream.Send(m) // the end of the stream shows in Recv
	}
}

func (x *Executor) sendResult(r *executorv1.ActionResult) {
	x.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Result{Result: r}})
}

func (x *Executor) handle(m *executorv1.ConnectResponse) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch k := m.GetMessage().(type) {
	case *executorv1.ConnectResponse_Assignments:
		x.leases = map[string]*executorv1.Lease{}
		for _, l := range k.Assignments.GetLeases() {
			x.leases[l.GetLeaseId()] = l
		}
	case *executorv1.ConnectResponse_Grant:
		x.leases[k.Grant.GetLease().GetLeaseId()] = k.Grant.GetLease()
	case *executorv1.ConnectResponse_Renewal:
		x.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_RenewAck{RenewAck: &executorv1.RenewAck{Round: k.Renewal.GetRound()}}})
	case *executorv1.ConnectResponse_Revoke:
		x.revoke(k.Revoke)
	case *executorv1.ConnectResponse_Action:
		x.accept(k.Action)
	case *executorv1.ConnectResponse_Control:
		if j := x.jobs[k.Control.GetActionId()]; j != nil && j.result == nil && j.Action.GetEpoch() == k.Control.GetEpoch() {
			j.controls <- k.Control
		}
	case *executorv1.ConnectResponse_OutputAck:
		if j := x.jobs[k.OutputAck.GetActionId()]; j != nil {
			j.acked[k.OutputAck.GetStream()] = k.OutputAck.GetOffset()
			j.credit.Broadcast()
		}
	case *executorv1.ConnectResponse_ResultAck:
		delete(x.jobs, k.ResultAck.GetActionId())
	}
}

// revoke ends what runs under a lease, then confirms.
func (x *Executor) revoke(r *executorv1.LeaseRevoke) {
	for _, j := range x.jobs {
		if j.Action.GetLeaseId() == r.GetLeaseId() && j.result == nil {
			x.end(j, &executorv1.ActionResult{Outcome: &executorv1.ActionResult_Error{
				Error: &heddlev1.ActionError{Code: "cancelled", Message: "lease revoked"}}})
		}
	}
	delete(x.leases, r.GetLeaseId())
	x.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_LeaseReleased{
		LeaseReleased: &executorv1.LeaseReleased{LeaseId: r.GetLeaseId(), Epoch: r.GetEpoch()}}})
}

func (x *Executor) accept(a *executorv1.Action) {
	if j := x.jobs[a.GetActionId()]; j != nil { // never done twice
		if j.result != nil {
			x.sendResult(j.result)
		}
		return
	}
	controls := make(chan *executorv1.ActionControl, 4096)
	j := &Job{Action: a, Controls: controls, controls: controls, x: x, credit: sync.NewCond(&x.mu)}
	x.jobs[a.GetActionId()] = j
	if l := x.leases[a.GetLeaseId()]; l.GetEpoch() != a.GetEpoch() {
		x.end(j, &executorv1.ActionResult{Outcome: &executorv1.ActionResult_Error{
			Error: &heddlev1.ActionError{Code: "refused", Message: "lease is not held"}}})
		return
	}
	go x.Play(j)
}

// end records and sends the result once.
func (x *Executor) end(j *Job, r *executorv1.ActionResult) {
	if j.result != nil {
		return
	}
	r.ActionId, r.LeaseId, r.Epoch = j.Action.GetActionId(), j.Action.GetLeaseId(), j.Action.GetEpoch()
	j.result = r
	close(j.controls)
	j.credit.Broadcast()
	x.sendResult(r)
}

// Start reports the start.
func (j *Job) Start(pid int64) {
	j.x.mu.Lock()
	defer j.x.mu.Unlock()
	j.pid = pid
	j.x.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_ActionStarted{ActionStarted: &executorv1.ActionStarted{
		ActionId: j.Action.GetActionId(), LeaseId: j.Action.GetLeaseId(), Epoch: j.Action.GetEpoch(), Pid: pid}}})
}

// Output sends bytes of a stream; it waits for credit and reports whether the
// action is still going on.
func (j *Job) Output(stream int32, data []byte) bool {
	j.x.mu.Lock()
	defer j.x.mu.Unlock()
	for j.result == nil && j.sent[1]+j.sent[2]-j.acked[1]-j.acked[2]+int64(len(data)) > j.x.window {
		j.credit.Wait()
	}
	if j.result != nil {
		return false
	}
	j.x.send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Output{Output: &executorv1.OutputChunk{
		ActionId: j.Action.GetActionId(), LeaseId: j.Action.GetLeaseId(), Epoch: j.Action.GetEpoch(),
		Stream: stream, Offset: j.sent[stream], Data: data}}})
	j.sent[stream] += int64(len(data))
	return true
}

// Exit ends the action as a process that exited.
func (j *Job) Exit(code int32) {
	j.End(&executorv1.ActionResult{Outcome: &executorv1.ActionResult_Process{Process: &executorv1.ProcessResult{ExitCode: code}}})
}

// Fail ends the action with an error.
func (j *Job) Fail(code, message string) {
	j.End(&executorv1.ActionResult{Outcome: &executorv1.ActionResult_Error{Error: &heddlev1.ActionError{Code: code, Message: message}}})
}

// End ends the action with an outcome.
func (j *Job) End(r *executorv1.ActionResult) {
	j.x.mu.Lock()
	defer j.x.mu.Unlock()
	j.x.end(j, r)
}
