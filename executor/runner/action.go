package runner

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/heddle-dev/heddle/executor/journal"
	"github.com/heddle-dev/heddle/executor/output"
	"github.com/heddle-dev/heddle/proto/failpoint"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// action is one accepted action from its acceptance to the acknowledgement of
// its result.
type action struct {
	id      string
	leaseID string
	epoch   uint64
	lease   *lease
	cancel  context.CancelCauseFunc

	wake      chan struct{} // capacity 1: delivery has something to look at
	acked     chan struct{} // closed: the result is acknowledged
	delivered chan struct{} // closed: the result was sent once

	input   *input   // nil for an action without standard input
	network *network // nil for an action without a proxied network

	mu        sync.Mutex
	started   bool
	pid       int64
	streams   []*output.Stream
	proc      Process
	size      *executorv1.Resize // asked for before the process ran
	result    *executorv1.ActionResult
	again     bool // the same action was sent again: answer again
	ackedOnce bool
}

// poke makes delivery look at the action.
func (a *action) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// announce describes an action without a result; nil for one with.
func (a *action) announce() *executorv1.RunningAction {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.result != nil {
		return nil
	}
	m := &executorv1.RunningAction{ActionId: a.id, LeaseId: a.leaseID, Epoch: a.epoch, Pid: a.pid}
	if a.input != nil {
		m.StdinSeq = a.input.received()
	}
	for i, s := range a.streams {
		if i == 0 {
			m.OutputBytes = s.State().Size
		} else {
			m.StderrBytes = s.State().Size
		}
	}
	return m
}

// submit accepts an action, joins a repeated one, or answers with a refusal.
func (r *Runner) submit(link Link, m *executorv1.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	l := r.leases[m.GetLeaseId()]
	if l == nil || l.epoch != m.GetEpoch() {
		held := "it is not held"
		if l != nil {
			held = fmt.Sprintf("epoch %d is held", l.epoch)
		}
		r.answer(link, failed(m, endedf(codeRefused, "lease %s under epoch %d: %s", m.GetLeaseId(), m.GetEpoch(), held)))
		return
	}
	if a := r.actions[m.GetActionId()]; a != nil && a.leaseID == l.id && a.epoch == l.epoch {
		a.mu.Lock()
		a.again = true
		a.mu.Unlock()
		a.poke()
		return
	}
	if err := r.admit(m); err != nil {
		r.answer(link, failed(m, err))
		return
	}
	state, err := r.cfg.Journal.Accept(m)
	if err != nil {
		r.answer(link, failed(m, endedf(codeIO, "the action could not be journalled: %v", err)))
		return
	}
	if state != journal.Unknown {
		r.answerKnown(link, m, state)
		return
	}
	failpoint.Hit("executor/accepted")
	r.begin(l, m)
}

// admit checks what does not depend on the lease.
func (r *Runner) admit(m *executorv1.Action) *endedError {
	if m.GetActionId() == "" || len(m.GetActionId()) > 256 {
		return endedf(codeRefused, "the action has no usable id")
	}
	if r.running >= r.cfg.Capacity {
		return endedf(codeRefused, "the executor is at its capacity of %d actions", r.cfg.Capacity)
	}
	if len(r.actions)-r.running >= maxOutbox && !r.dropOldest() {
		return endedf(codeRefused, "the executor holds %d results that are not acknowledged", maxOutbox)
	}
	return nil
}

// dropOldest gives up the oldest result whose lease is gone. Ids are ordered by
// time where the control plane makes them so.
func (r *Runner) dropOldest() bool {
	var oldest *action
	for _, a := range r.actions {
		if r.leases[a.leaseID] == a.lease || a.announce() != nil {
			continue
		}
		if oldest == nil || strings.Compare(a.id, oldest.id) < 0 {
			oldest = a
		}
	}
	if oldest == nil {
		return false
	}
	r.log.Warn("giving up a result that nobody acknowledged", "action_id", oldest.id)
	r.forgetLocked(oldest)
	return true
}

func failed(m *executorv1.Action, e *endedError) *executorv1.ActionResult {
	return &executorv1.ActionResult{
		ActionId: m.GetActionId(), LeaseId: m.GetLeaseId(), Epoch: m.GetEpoch(),
		Outcome: &executorv1.ActionResult_Error{Error: &heddlev1.ActionError{Code: e.code, Message: valid(e.message)}},
	}
}

// answer sends a result that belongs to no accepted action.
func (r *Runner) answer(link Link, res *executorv1.ActionResult) {
	r.spawn(func() {
		_ = link.Send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Result{Result: res}})
	})
}

// answerKnown repeats the recorded outcome under the lease it is asked for now.
func (r *Runner) answerKnown(link Link, m *executorv1.Action, state journal.State) {
	if res := r.cfg.Journal.Result(m.GetActionId()); res != nil {
		res.LeaseId, res.Epoch = m.GetLeaseId(), m.GetEpoch()
		r.answer(link, res)
		return
	}
	why := "this action was done before and its result was acknowledged"
	if state == journal.Running {
		why = "this action still runs under another lease"
	}
	r.answer(link, failed(m, endedf(codeRefused, "%s", why)))
}

// begin starts the two goroutines of an action: one does it, one delivers.
func (r *Runner) begin(l *lease, m *executorv1.Action) {
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &action{
		id: m.GetActionId(), leaseID: l.id, epoch: l.epoch, lease: l, cancel: cancel,
		wake: make(chan struct{}, 1), acked: make(chan struct{}), delivered: make(chan struct{}),
	}
	if takesInput(m) {
		a.input = newInput(a.overrun, a.poke)
	}
	if proxied(m) {
		a.network = newNetwork(a.poke)
	}
	r.actions[a.id] = a
	r.running++
	l.active.Add(1)
	r.spawn(func() {
		defer cancel(nil)
		r.finish(a, r.perform(ctx, a, m))
	})
	r.spawn(func() { r.deliver(a) })
}

// overrun ends a process that leaves its input unread.
func (a *action) overrun() {
	a.cancel(endedf(codeIO, "the process was ended: it left more than %d bytes of its input unread", maxInput))
}

// finish records the result: first in the journal, then for delivery.
func (r *Runner) finish(a *action, res *executorv1.ActionResult) {
	res.ActionId, res.LeaseId, res.Epoch = a.id, a.leaseID, a.epoch
	bound(res)
	failpoint.Hit("executor/finished")
	if err := r.cfg.Journal.Finish(res); err != nil {
		r.log.Error("a result could not be journalled", "action_id", a.id, "cause", err)
	}
	failpoint.Hit("executor/journalled")
	a.mu.Lock()
	a.result = res
	for _, s := range a.streams {
		s.Close()
	}
	a.proc = nil
	a.mu.Unlock()
	if a.input != nil {
		a.input.stop()
	}
	a.poke()
	a.lease.active.Done()
	r.mu.Lock()
	r.running--
	r.mu.Unlock()
}

// perform does the action.
func (r *Runner) perform(ctx context.Context, a *action, m *executorv1.Action) *executorv1.ActionResult {
	res := &executorv1.ActionResult{}
	var fault *heddlev1.ActionError
	switch k := m.GetKind().(type) {
	case *executorv1.Action_Prepare:
		fault = r.prepare(ctx, a, m, res)
	case *executorv1.Action_StartProcess:
		fault = r.process(ctx, a, m, k.StartProcess, res)
	case *executorv1.Action_PlanPatch:
		fault = r.planPatch(ctx, a, m, k.PlanPatch, res)
	case *executorv1.Action_CommitPatch:
		fault = r.commitPatch(ctx, a, m, k.CommitPatch, res)
	case *executorv1.Action_Inspect:
		fault = r.inspect(ctx, k.Inspect, res)
	case *executorv1.Action_ReadFile:
		fault = r.readFile(ctx, a, m, k.ReadFile, res)
	case *executorv1.Action_FileOperation:
		fault = r.fileOperation(ctx, a, m, k.FileOperation, res)
	case *executorv1.Action_WatchFiles:
		fault = r.watchFiles(ctx, a, res)
	case *executorv1.Action_SearchFiles:
		fault = r.searchFiles(ctx, a, k.SearchFiles.GetSearch(), res)
	default:
		fault = &heddlev1.ActionError{Code: codeRefused, Message: fmt.Sprintf("this executor does not know actions of kind %T", k)}
	}
	if fault != nil {
		res.Outcome = &executorv1.ActionResult_Error{Error: fault}
	}
	return res
}

// resultAck forgets an action whose result the control plane has for good.
func (r *Runner) resultAck(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.actions[id]; a != nil {
		if a.announce() != nil {
			r.log.Warn("acknowledgement of a result that was not sent", "action_id", id)
			return
		}
		r.forgetLocked(a)
		return
	}
	r.ackJournal(id)
}

func (r *Runner) forgetLocked(a *action) {
	delete(r.actions, a.id)
	if !a.ackedOnce {
		a.ackedOnce = true
		close(a.acked)
	}
	r.ackJournal(a.id)
}

func (r *Runner) ackJournal(id string) {
	if err := r.cfg.Journal.Ack(id); err != nil {
		r.log.Error("an acknowledgement could not be journalled", "action_id", id, "cause", err)
	}
}

func (r *Runner) outputAck(m *executorv1.OutputAck) {
	r.mu.Lock()
	a := r.actions[m.GetActionId()]
	r.mu.Unlock()
	if a == nil {
		return
	}
	a.mu.Lock()
	streams := a.streams
	a.mu.Unlock()
	if i := int(m.GetStream()) - 1; i >= 0 && i < len(streams) {
		streams[i].Ack(m.GetOffset())
		a.poke()
	}
}
