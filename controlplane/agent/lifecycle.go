package agent

import (
	"context"
	"slices"
	"strconv"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// turnEnded is called after a turn's end is durable.
func (a *Agent) turnEnded(lt *live) {
	if a.cfg.Held != nil && !a.cfg.Held(lt.id) {
		a.wg.Go(func() { a.Unheld(lt.id) })
	}
}

// Unheld says that no session holds the thread any more: an idle thread's
// background terminals end and it is forgotten; an ephemeral one is gone.
func (a *Agent) Unheld(threadID string) {
	if a.peek(threadID) == nil {
		return
	}
	lt, err := a.thread(a.ctx, threadID) // one that somebody reads in just now is read to its end
	if err != nil {
		return
	}
	if err := lt.acquire(a.ctx); err != nil {
		return
	}
	defer lt.release()
	if lt.current() != nil || (a.cfg.Held != nil && a.cfg.Held(threadID)) {
		return
	}
	lt.endServers()
	lt.endProcesses(func(*process) bool { return true })
	if err := a.cfg.Dispatcher.ReleaseThread(a.ctx, threadID); err != nil {
		a.cfg.Logger.Warn("release the thread's lease", "thread", threadID, "error", err)
	}
	a.forget(lt)
	if !lt.ephemeral {
		return
	}
	if err := a.cfg.Log.Delete(a.ctx, threadID); err != nil {
		a.cfg.Logger.Error("drop an ephemeral thread", "thread", threadID, "error", err)
	}
	if err := a.cfg.Streams.DeleteThread(threadID); err != nil {
		a.cfg.Logger.Error("drop the output of an ephemeral thread", "thread", threadID, "error", err)
	}
}

// EndThread interrupts the running turn, ends every process, records the events
// and forgets the thread, for archive and delete. No turn can begin until done,
// which may be nil, has returned.
func (a *Agent) EndThread(ctx context.Context, threadID string, events []*heddlev1.Event, done func() error) error {
	lt, err := a.acquired(ctx, threadID)
	if err != nil {
		return err
	}
	defer lt.release()
	if t := lt.current(); t != nil {
		t.interrupt(causeThreadClosed)
		if err := t.awaitEnd(ctx); err != nil {
			return err
		}
	}
	for _, id := range a.children(threadID) {
		a.endAgent(ctx, id)
	}
	lt.endServers()
	lt.endProcesses(func(*process) bool { return true })
	if err := a.cfg.Dispatcher.ReleaseThread(ctx, threadID); err != nil {
		a.cfg.Logger.Warn("release the thread's lease", "thread", threadID, "error", err)
	}
	if len(events) > 0 {
		if err := lt.persist(ctx, events...); err != nil {
			return err
		}
	}
	a.forget(lt)
	if done == nil {
		return nil
	}
	return done()
}

// Terminals lists the processes that run in a thread.
func (a *Agent) Terminals(threadID string) []*heddlev1.BackgroundTerminal {
	lt := a.peek(threadID)
	if lt == nil {
		return nil
	}
	var list []*heddlev1.BackgroundTerminal
	for _, p := range lt.processes((*process).isRunning) {
		list = append(list, p.terminal())
	}
	slices.SortFunc(list, func(x, y *heddlev1.BackgroundTerminal) int { return int(x.GetStartedAtMs() - y.GetStartedAtMs()) })
	return list
}

func (p *process) terminal() *heddlev1.BackgroundTerminal {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &heddlev1.BackgroundTerminal{
		ItemId: p.item.GetId(), ProcessId: strconv.FormatInt(p.id, 10), Command: p.command,
		Cwd: p.item.GetCommandExecution().GetCwd(), TurnId: p.turnID, StartedAtMs: p.item.GetStartedAtMs(),
	}
	if p.handle != nil {
		b.OsPid = p.handle.PID()
	}
	return b
}

// Terminate ends one process of a thread, or all with an empty id, and returns
// how many it ended.
func (a *Agent) Terminate(threadID, processID string) int {
	lt := a.peek(threadID)
	if lt == nil {
		return 0
	}
	return lt.endProcesses(func(p *process) bool {
		return processID == "" || strconv.FormatInt(p.id, 10) == processID
	})
}
