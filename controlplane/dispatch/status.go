package dispatch

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Status describes the executors, connected or missed, by id.
func (d *Dispatcher) Status() []*heddlev1.ExecutorStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*heddlev1.ExecutorStatus, 0, len(d.executors))
	for _, id := range slices.Sorted(maps.Keys(d.executors)) {
		ex := d.executors[id]
		out = append(out, &heddlev1.ExecutorStatus{
			ExecutorId:     id,
			Address:        ex.peer.Address,
			Pid:            ex.reg.GetPid(),
			Labels:         ex.reg.GetLabels(),
			Report:         ex.reg.GetSandboxReport(),
			Leases:         int32(d.lessor.Count(id)),
			RunningActions: int32(len(ex.actions)),
			Connected:      ex.session != nil,
		})
	}
	return out
}

// Waiting says of every action that has no executor yet why, in queue order.
func (d *Dispatcher) Waiting() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Clock()
	out := make([]string, 0, len(d.waiting))
	for _, a := range d.waiting {
		out = append(out, fmt.Sprintf("%s: %s waits for %s: %s", a.spec.Scope, a.describe(), now.Sub(a.enqueued).Round(time.Millisecond), a.reason))
	}
	return out
}

// Active is the number of actions that wait or run and that somebody follows.
func (d *Dispatcher) Active() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, a := range d.actions {
		if a.state != stateDone && a.claimed && !a.acked {
			n++
		}
	}
	return n
}

// Logger is the configured logger, for what stands above.
func (d *Dispatcher) Logger() *slog.Logger { return d.cfg.Logger }
