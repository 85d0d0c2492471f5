package agent

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// recoverRetry is the time between two tries to recover a thread while the store
// takes no writes.
const recoverRetry = time.Second

// AwaitSession waits for the client of a turn that was open at the last stop and
// reports whether it came back.
type AwaitSession func(ctx context.Context, sessionID string) bool

// recovered is a thread with something open from before a restart.
type recovered struct {
	lt    *live
	turn  *turn
	procs []*process
}

// Recover finds what was open when the last control plane stopped: its cost is
// that of what is open. Questions can be answered when it returns; turns go on
// with Resume.
func (a *Agent) Recover(ctx context.Context, back AwaitSession) error {
	a.back = back
	ids, err := a.store.OpenThreads(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		r, err := a.recoverThread(ctx, id)
		if err != nil {
			// One thread that cannot be read does not keep the others down.
			a.cfg.Logger.Error("recover thread", "thread", id, "error", err)
			if storeFails(err) {
				a.unrecovered = append(a.unrecovered, id)
			}
			continue
		}
		a.recovered = append(a.recovered, r)
	}
	return nil
}

func (a *Agent) recoverThread(ctx context.Context, id string) (*recovered, error) {
	lt, err := a.threadEvenArchived(ctx, id)
	if err != nil {
		return nil, err
	}
	r := &recovered{lt: lt}
	row, err := a.store.Thread(ctx, id)
	if err != nil {
		return nil, err
	}
	if turnID := row.GetActiveTurnId(); turnID != "" {
		if r.turn, err = a.recoverTurn(ctx, lt, turnID); err != nil {
			return nil, err
		}
	}
	return r, r.findProcesses(ctx)
}

// recoverTurn rebuilds the turn from its own events.
func (a *Agent) recoverTurn(ctx context.Context, lt *live, turnID string) (*turn, error) {
	row, err := a.store.Turn(ctx, lt.id, turnID)
	if err != nil {
		return nil, err
	}
	p, err := a.readPast(ctx, lt.id, row)
	if err != nil {
		return nil, err
	}
	pending, err := a.store.PendingApprovals(ctx, lt.id)
	if err != nil {
		return nil, err
	}
	t := newTurn(lt, row)
	t.resume = p
	t.first = p.first
	t.reviewing = p.entered && !p.left
	t.inputs = p.steers
	t.last = p.last
	t.continued = p.continued
	t.restoreDiff(p)
	for id := range p.calls {
		t.seen[id] = 1
	}
	for _, q := range pending {
		if q.GetTurnId() == turnID && q.GetCommand().GetNetwork() != nil {
			t.adoptHost(t.open(q))
		} else if q.GetTurnId() == turnID {
			p.asked[q.GetItemId()] = t.open(q)
		}
	}
	lt.setTurn(t)
	a.mu.Lock()
	a.count(lt.principal, 1)
	a.mu.Unlock()
	return t, nil
}

// findProcesses makes the processes whose items are open and were dispatched.
func (r *recovered) findProcesses(ctx context.Context) error {
	a := r.lt.agent
	items, err := a.store.OpenItems(ctx, r.lt.id)
	if err != nil {
		return err
	}
	intents, err := a.store.OpenActions(ctx, r.lt.id)
	if err != nil {
		return err
	}
	history, err := a.store.History(ctx, r.lt.id)
	if err != nil {
		return err
	}
	for _, item := range items {
		intent := processIntent(intents, item.GetId())
		if intent == nil {
			continue
		}
		size, err := a.cfg.Streams.Size(r.lt.id, item.GetId())
		if err != nil {
			return err
		}
		p := r.lt.restoreProcess(item, intent, size)
		p.describe(callOf(history, intent.GetCallId()))
		if r.turn == nil || item.GetTurnId() != r.turn.id() {
			p.background = true
		}
		r.procs = append(r.procs, p)
	}
	return nil
}

func processIntent(intents []*heddlev1.ActionIntent, itemID string) *heddlev1.ActionIntent {
	for _, i := range intents {
		if i.GetItemId() == itemID && i.GetKind() == "process" {
			return i
		}
	}
	return nil
}

func callOf(history []*heddlev1.HistoryEntry, callID string) *heddlev1.ToolCall {
	for i := len(history) - 1; i >= 0; i-- {
		if c := history[i].GetToolCall(); c.GetCallId() == callID && c != nil {
			return c
		}
	}
	return nil
}

// restoreProcess makes the process of an open item.
func (lt *live) restoreProcess(item *heddlev1.Item, intent *heddlev1.ActionIntent, size int64) *process {
	p := &process{
		lt: lt, turnID: item.GetTurnId(), item: item, action: &executorv1.Action{ActionId: intent.GetActionId()}, done: make(chan struct{}),
		total: size, announced: size, intent: intent, late: newLate(),
	}
	p.id, _ = strconv.ParseInt(item.GetCommandExecution().GetProcessId(), 10, 64)
	lt.mu.Lock()
	defer lt.mu.Unlock()
	for n := int64(1000); p.id == 0 || lt.procs[p.id] != nil; n++ {
		p.id = n
	}
	lt.procs[p.id] = p
	return p
}

// describe takes what the call says about the process.
func (p *process) describe(c *heddlev1.ToolCall) {
	if c == nil {
		return
	}
	parsed, err := tool.Parse(c)
	if err != nil {
		return
	}
	if e, ok := parsed.(*tool.ExecCommand); ok {
		p.command, p.tty, p.escalated = e.Cmd, e.TTY, e.Escalated
	}
}

// reattach follows a process that was started before the restart.
func (p *process) reattach() {
	p.mu.Lock()
	from := p.total
	p.mu.Unlock()
	p.follow(func(ctx context.Context) (Handle, error) {
		h, err := p.lt.agent.cfg.Dispatcher.Reattach(ctx, p.spec(p.lt.principal), from)
		if u, ok := errors.AsType[*UndeliveredError](err); ok && from == 0 {
			return p.deliver(ctx, u)
		}
		return h, err
	})
}

// Resume lets what Recover found go on.
func (a *Agent) Resume() {
	list, later := a.recovered, a.unrecovered
	a.recovered, a.unrecovered = nil, nil
	for _, r := range list {
		a.goOn(r)
	}
	if len(later) > 0 {
		a.wg.Go(func() { a.recoverLater(later) })
	}
}

func (a *Agent) goOn(r *recovered) {
	for _, p := range r.procs {
		p.reattach()
	}
	a.wg.Go(func() { a.resume(r) })
}

// recoverLater tries the threads again that a store without room kept from being
// recovered: else their turns would stay open until the next start.
func (a *Agent) recoverLater(ids []string) {
	for len(ids) > 0 {
		select {
		case <-time.After(recoverRetry):
		case <-a.ctx.Done():
			return
		}
		ids = slices.DeleteFunc(ids, func(id string) bool {
			r, err := a.recoverThread(a.ctx, id)
			if err == nil {
				a.goOn(r)
			}
			return !storeFails(err)
		})
	}
}

// storeFails reports whether the store took no writes, which may pass.
func storeFails(err error) bool {
	return errdefs.Is(err, errdefs.StoreUnavailable) || errdefs.Is(err, errdefs.UnknownOutcome)
}

func (a *Agent) resume(r *recovered) {
	t := r.turn
	if t == nil {
		a.resumeQueue(r.lt)
		// The client of a background terminal has the same time to come back.
		if a.cfg.Held != nil && !a.cfg.Held(r.lt.id) && !a.back(a.ctx, heldBy(r.lt.id)) && a.ctx.Err() == nil {
			a.Unheld(r.lt.id)
		}
		return
	}
	row := t.snapshot()
	if row.GetOnDisconnect() != heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE && !a.back(t.ctx, row.GetSessionId()) {
		t.interrupt(causeSessionLost)
	}
	t.mu.Lock()
	t.resume.waiting = false
	t.mu.Unlock()
	t.run()
}

// heldBy is an id that no session has: waiting for it lasts the whole grace.
func heldBy(threadID string) string { return "thread/" + threadID }

// continueCalls finishes what the turn had begun before the restart. With an
// interrupted turn it only closes it.
func (t *turn) continueCalls() error {
	p := t.resume
	for _, item := range p.open {
		t.closeShown(item)
	}
	var pending []*call
	for _, pc := range p.order {
		if !pc.answered {
			pending = append(pending, t.resumeCall(pc))
		}
	}
	if len(pending) == 0 {
		return context.Cause(t.ctx)
	}
	return t.runCalls(pending)
}

// abandonPast closes what was open in a turn whose client did not come back.
func (t *turn) abandonPast() error {
	history, err := t.agent.store.History(context.WithoutCancel(t.ctx), t.lt.id)
	if err != nil {
		t.agent.cfg.Logger.Error("read history", "thread", t.lt.id, "error", err)
	}
	t.history = history
	if err := t.continueCalls(); err != nil {
		return err
	}
	return context.Cause(t.ctx)
}

// closeShown completes a model item with what was shown of it.
func (t *turn) closeShown(item *heddlev1.Item) {
	item.Status = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
	item.CompletedAtMs = t.agent.now()
	if item.GetAgentMessage() != nil {
		t.last = item
	}
	t.record(itemCompleted(item))
}

// threadEvenArchived is thread for recovery, where archived threads count too.
func (a *Agent) threadEvenArchived(ctx context.Context, id string) (*live, error) {
	row, err := a.store.Thread(ctx, id)
	if err != nil {
		return nil, err
	}
	epoch, err := a.cfg.Log.Claim(ctx, id)
	if err != nil {
		return nil, err
	}
	a.Adopt(row, epoch, nil)
	return a.peek(id), nil
}

// cancelQuestion resolves a question that nobody will act on.
func (t *turn) cancelQuestion(p *approval.Pending) {
	if p == nil {
		return
	}
	if _, _, err := p.Decide(t.ctx, heddlev1.Decision_DECISION_CANCEL, nil, approval.ByInterrupt); err != nil && !errors.Is(err, context.Canceled) {
		t.agent.cfg.Logger.Error("cancel approval", "thread", t.lt.id, "error", err)
	}
}
