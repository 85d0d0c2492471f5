package agent

import (
	"context"
	"slices"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

// subAgents are the sub-agents of a thread that this control plane knows to be
// open or closed; guarded by live.mu.
type subAgents struct {
	open   map[string]bool
	closed map[string]bool
	// started counts all of them, for their names.
	started int
}

// admitAgent takes a place for one more sub-agent and returns its number.
func (lt *live) admitAgent(id string, limit int) (int, error) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if len(lt.agents.open) >= limit {
		return 0, errdefs.New(errdefs.Overloaded, "%d sub-agents are open, which is the limit (agents.max_threads); close those that are not needed", len(lt.agents.open))
	}
	lt.openLocked(id)
	lt.agents.started++
	return lt.agents.started - 1, nil
}

func (lt *live) openAgent(id string) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	lt.openLocked(id)
}

func (lt *live) openLocked(id string) {
	if lt.agents.open == nil {
		lt.agents.open, lt.agents.closed = map[string]bool{}, map[string]bool{}
	}
	lt.agents.open[id] = true
	delete(lt.agents.closed, id)
}

func (lt *live) closeAgent(id string) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if lt.agents.closed == nil {
		lt.agents.open, lt.agents.closed = map[string]bool{}, map[string]bool{}
	}
	delete(lt.agents.open, id)
	lt.agents.closed[id] = true
}

// agentOpen is true for one that was not closed, also before a restart.
func (lt *live) agentOpen(id string) bool {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return !lt.agents.closed[id]
}

// children are the threads here whose parent is a thread.
func (a *Agent) children(parent string) []string {
	var ids []string
	for _, lt := range a.threads() {
		if lt.parent == parent {
			ids = append(ids, lt.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// RunningAgents are the sub-agents of a thread, and those under them, whose turns
// run, sorted.
func (a *Agent) RunningAgents(parent string) []string {
	var ids []string
	for _, id := range a.children(parent) {
		if a.running(id) != nil {
			ids = append(ids, id)
		}
		ids = append(ids, a.RunningAgents(id)...)
	}
	slices.Sort(ids)
	return ids
}

// stopAgent interrupts what an agent and those under it do.
func (a *Agent) stopAgent(id, cause string) {
	if t := a.running(id); t != nil {
		t.interrupt(cause)
	}
	a.stopAgents(id, cause)
}

// stopAgents interrupts all sub-agents of a thread: who stops an agent means all
// that works for it.
func (a *Agent) stopAgents(parent, cause string) {
	for _, id := range a.children(parent) {
		a.stopAgent(id, cause)
	}
}

// endAgent interrupts an agent, waits for the end of its turn, and ends its
// processes.
func (a *Agent) endAgent(ctx context.Context, id string) {
	a.stopAgent(id, causeThreadClosed)
	for _, id := range append(a.children(id), id) {
		lt := a.peek(id)
		if lt == nil {
			continue
		}
		if t := lt.current(); t != nil {
			select {
			case <-t.done:
			case <-t.stuck:
			case <-ctx.Done():
				return
			}
		}
		lt.endServers()
		lt.endProcesses(func(*process) bool { return true })
	}
}
