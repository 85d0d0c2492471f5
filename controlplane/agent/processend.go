package agent

import (
	"context"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

// ask asks for the end of the process in the given way, at once or as soon as
// it is dispatched.
func (p *process) ask(how func(Handle)) {
	p.mu.Lock()
	h := p.handle
	p.wanted = how
	p.mu.Unlock()
	if h != nil {
		how(h)
	}
}

// end interrupts the process and waits until it is gone, bounded: an executor
// that cannot be reached does not hold up the turn's end.
func (p *process) end() {
	ctx := context.WithoutCancel(p.lt.agent.ctx)
	p.ask(func(h Handle) { p.logged(h.Interrupt(ctx)) })
	if p.within(endWait) {
		return
	}
	p.ask(func(h Handle) { p.logged(h.Terminate(ctx)) })
	if p.within(killWait) {
		return
	}
	p.finish(nil, errdefs.New(errdefs.UnknownOutcome, "the executor did not confirm the end of the command in time"))
}

func (p *process) logged(err error) {
	if err != nil {
		p.lt.agent.cfg.Logger.Warn("end process", "thread", p.lt.id, "item", p.item.GetId(), "error", err)
	}
}

func (p *process) within(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// endProcesses ends the matching processes together.
func (lt *live) endProcesses(match func(*process) bool) int {
	list := lt.processes(func(p *process) bool { return p.isRunning() && match(p) })
	var wg sync.WaitGroup
	for _, p := range list {
		wg.Go(p.end)
	}
	wg.Wait()
	return len(list)
}
