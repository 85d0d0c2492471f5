package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/proto/failpoint"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxProcesses bounds the processes of one thread.
	maxProcesses = 64
	// aggregatedLimit bounds the output that an item shows.
	aggregatedLimit = 1 << 20
	// announceEvery is the shortest time between two announcements of output.
	announceEvery = 10 * time.Millisecond
	// endWait is how long an interrupted process may take; the executor kills it
	// within about 1 s.
	endWait = 1200 * time.Millisecond
	// killWait is how long a process may take that was told to be killed.
	killWait = 150 * time.Millisecond
	// settleAfter is when a recorded result is sure to be durable; it is looked
	// at then instead of forcing a commit.
	settleAfter = 50 * time.Millisecond
)

// process is one command, from its intent to its completed item. Its id is the
// session id that the model knows.
type process struct {
	lt        *live
	id        int64
	turnID    string
	action    *executorv1.Action
	command   string
	tty       bool
	escalated bool
	// intent is set for a process from before a restart, and late then too.
	intent *heddlev1.ActionIntent
	late   *late
	// done is closed when the item's completion is in the log's queue.
	done  chan struct{}
	hosts hosts

	mu     sync.Mutex
	item   *heddlev1.Item
	handle Handle
	// wanted is how the process should end, asked for before it had a handle.
	wanted     func(Handle)
	running    bool
	finished   bool
	background bool
	exit       *int32
	failure    *heddlev1.ActionError
	// total is the length of the output, told what the model has had of it.
	total, told, dropped int64
	// announced is the offset up to which output was announced; cooling is true
	// while the next announcement waits.
	announced int64
	cooling   bool
}

// newProcess makes a process and gives it an id.
func (lt *live) newProcess(item *heddlev1.Item, action *executorv1.Action, cmd string) (*process, error) {
	p := &process{lt: lt, turnID: item.GetTurnId(), item: item, action: action, command: cmd, done: make(chan struct{})}
	lt.mu.Lock()
	defer lt.mu.Unlock()
	for id, old := range lt.procs {
		if len(lt.procs) < maxProcesses {
			break
		}
		if old.ended() {
			delete(lt.procs, id)
		}
	}
	if len(lt.procs) >= maxProcesses {
		return nil, fmt.Errorf("%d processes are open in this thread; end some of them first", maxProcesses)
	}
	for p.id == 0 || lt.procs[p.id] != nil {
		p.id = 1000 + rand.Int64N(99000)
	}
	lt.procs[p.id] = p
	return p, nil
}

func (lt *live) dropProcess(p *process) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if lt.procs[p.id] == p {
		delete(lt.procs, p.id)
	}
}

func (lt *live) process(id int64) *process {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.procs[id]
}

func (lt *live) processes(match func(*process) bool) []*process {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	var list []*process
	for _, p := range lt.procs {
		if match(p) {
			list = append(list, p)
		}
	}
	return list
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// isRunning reports whether the process was dispatched and has not ended.
func (p *process) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running && !p.finished
}

// start dispatches the action and follows it to its end on a goroutine.
func (p *process) start(principal string) {
	p.follow(func(ctx context.Context) (Handle, error) {
		if err := p.lt.pin(ctx, p.action); err != nil {
			return nil, err
		}
		// The process outlives the turn and, for a while, this control plane: only
		// its handle ends it.
		return p.lt.agent.cfg.Dispatcher.Start(context.WithoutCancel(ctx), p.spec(principal))
	})
}

func (p *process) spec(principal string) Spec {
	return Spec{ThreadID: p.lt.id, Principal: principal, Action: p.action, Output: p.output, Network: p}
}

func (p *process) follow(open func(context.Context) (Handle, error)) {
	a := p.lt.agent
	p.mu.Lock()
	p.running = true
	p.mu.Unlock()
	a.wg.Go(func() {
		h, err := open(a.ctx)
		if err != nil {
			if !errors.Is(err, ErrSuspended) {
				p.finish(nil, err)
			}
			return
		}
		p.attach(h)
		res, err := h.Result(a.ctx)
		if a.ctx.Err() != nil && err != nil {
			return
		}
		failpoint.Hit("agent/process-ended")
		recorded := p.finish(res, err)
		time.AfterFunc(settleAfter, func() {
			if recorded == nil || recorded() == nil || p.recordAgain() == nil {
				h.Settle()
			}
		})
	})
}

func (p *process) attach(h Handle) {
	p.mu.Lock()
	p.handle = h
	wanted := p.wanted
	p.mu.Unlock()
	if wanted != nil {
		wanted(h)
	}
}

// output stores bytes, then announces them.
func (p *process) output(c *executorv1.OutputChunk) error {
	size, dropped, err := p.lt.agent.cfg.Streams.WriteAt(p.lt.id, p.item.GetId(), c.GetOffset(), c.GetData(), c.GetDropped())
	if err != nil {
		return fmt.Errorf("store the output of item %s: %w", p.item.GetId(), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return nil
	}
	p.total, p.dropped = size, dropped
	if !p.cooling {
		p.announce()
		p.cooling = true
		time.AfterFunc(announceEvery, p.cool)
	}
	return nil
}

func (p *process) cool() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished || p.announced >= p.total {
		p.cooling = false
		return
	}
	p.announce()
	time.AfterFunc(announceEvery, p.cool)
}

// announce says what is stored and was not announced. p.mu is held.
func (p *process) announce() {
	if p.announced >= p.total {
		return
	}
	p.lt.note(outputAdvanced(p.turnID, p.item.GetId(), p.announced, p.total-p.announced, p.dropped))
	p.announced = p.total
}

// finish completes the item, once. It returns how to wait until that is
// durable, nil when the item was completed before.
func (p *process) finish(res *executorv1.ActionResult, err error) func() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return nil
	}
	p.announce()
	p.finished = true
	a := p.lt.agent
	ce := p.item.GetCommandExecution()
	ce.OutputBytes, ce.DroppedBytes, ce.Background = p.total, p.dropped, p.background
	p.item.Status = heddlev1.ItemStatus_ITEM_STATUS_FAILED
	switch {
	case err != nil:
		ce.Error = actionError(err)
	case res.GetError() != nil:
		ce.Error = res.GetError()
	case res.GetProcess() != nil:
		pr := res.GetProcess()
		if pr.GetVerdict().GetSandboxLost() { // its exit status was not seen
			ce.Error = sandboxLost()
		} else {
			ce.ExitCode = proto.Int32(pr.GetExitCode())
		}
		ce.DurationMs = pr.GetDurationMs()
		ce.Verdict = pr.GetVerdict()
		ce.DroppedBytes = max(ce.DroppedBytes, pr.GetDroppedBytes())
		if pr.GetExitCode() == 0 && ce.Error == nil {
			p.item.Status = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
		}
	default:
		ce.Error = &heddlev1.ActionError{Code: "io", Message: "the executor sent no result"}
	}
	p.exit, p.failure = ce.ExitCode, ce.Error
	p.item.CompletedAtMs = a.now()
	if p.total > 0 {
		out, rerr := a.cfg.Streams.Aggregated(p.lt.id, p.item.GetId(), aggregatedLimit)
		if rerr != nil {
			a.cfg.Logger.Error("read output", "thread", p.lt.id, "item", p.item.GetId(), "error", rerr)
		}
		ce.AggregatedOutput = out
		if serr := a.cfg.Streams.Seal(p.lt.id, p.item.GetId()); serr != nil {
			a.cfg.Logger.Error("seal output", "thread", p.lt.id, "item", p.item.GetId(), "error", serr)
		}
		failpoint.Hit("agent/sealed")
	}
	events := []*heddlev1.Event{itemCompleted(p.item), actionsResolved(p.turnID, p.action.GetActionId())}
	b := p.lt.append(append(events, violationWarning(p.turnID, p.command, ce.GetVerdict())...)...)
	close(p.done)
	return func() error { return b.Wait(context.WithoutCancel(a.ctx)) }
}

// recordAgain completes the item once more when the first try was lost with a
// failed commit.
func (p *process) recordAgain() error {
	ctx := context.WithoutCancel(p.lt.agent.ctx)
	row, err := p.lt.agent.store.Item(ctx, p.lt.id, p.item.GetId())
	if err != nil || !row.Open() {
		return err
	}
	p.mu.Lock()
	events := []*heddlev1.Event{itemCompleted(p.item), actionsResolved(p.turnID, p.action.GetActionId())}
	p.mu.Unlock()
	err = p.lt.persist(ctx, events...)
	if err != nil {
		p.lt.agent.cfg.Logger.Error("record the end of a command", "thread", p.lt.id, "item", p.item.GetId(), "error", err)
	}
	return err
}
